"""Every reader of requests against every trap: one table, so that no reader is forgotten."""

import re
from pathlib import Path

import polars as pl
import pytest

from nvmesim.capture.capture import Capture
from nvmesim.capture.registry import READERS, read_capture
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.composed import FORMS, N, S, requests
from tests.capture.contract import check_whole, smallest, written

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
HUGE, NEGATIVE = "9" * 30, "-5"
EVENTS = [name for name, form in FORMS.items() if form.has_events]
LINES = [name for name in FORMS if name not in EVENTS]
ALL = pytest.mark.parametrize("name", FORMS)


COLUMNS = ["offset", "bytes", "op", "latency_ns"]
TICK_NS = {"tencent-cbs": S, "msr-cambridge": 100, "systor17": 1, "k5cloud": 1}
"""In what a public trace counts its times, if not in microseconds."""


def table(capture: Capture) -> pl.DataFrame:
    """The requests in order of their offsets, without what a damaged line next to them changes."""
    return capture.requests.collect().sort("offset").drop("depth", "device")


def lines_of(name: str) -> list[str]:
    form = FORMS[name]
    return form.text(requests()).removeprefix(form.header).splitlines(keepends=True)


def read(path: Path, text: str) -> Capture:
    capture = read_capture(written(path, text))
    check_whole(capture)
    return capture


def check_same(name: str, text: str, tmp_path: Path) -> Capture:
    """Hold that *text* has all requests of the form, and return what is read of it."""
    whole = read(tmp_path / "t", FORMS[name].text(requests()))
    capture = read(tmp_path / "d", text)
    assert (capture.rows, capture.skipped) == (N, 0)
    assert table(capture).select(COLUMNS).equals(table(whole).select(COLUMNS))
    return capture


def said(capture: Capture, whole: Capture) -> bool:
    return capture.skipped > whole.skipped or bool(set(capture.warnings) - set(whole.warnings))


@ALL
def test_all_requests_are_read(name: str, tmp_path: Path) -> None:
    capture = read(tmp_path / "t", FORMS[name].text(requests()))
    assert (capture.format, capture.rows, capture.skipped) == (name, N, 0)
    found = table(capture)
    assert found["offset"].to_list() == [r.offset for r in requests()]
    assert found["bytes"].to_list() == [r.size for r in requests()]
    assert (found["op"] == "write").to_list() == [r.write for r in requests()]
    if found["latency_ns"].null_count() == 0:
        assert found["latency_ns"].to_list() == [r.took for r in requests()]
        assert found["complete_ns"].null_count() == 0
    else:
        assert found["latency_ns"].null_count() == N
        assert capture.measurements[0].ops["read"].clat is None
    tick = TICK_NS.get(name, 1000)
    times = [r.issue // tick * tick for r in requests()]
    if name != "fio-log":  # it has the time of the completion, in ms
        assert (found["issue_ns"] - found["issue_ns"][0]).to_list() == [t - times[0] for t in times]


@pytest.mark.parametrize("name", ["msr-cambridge", "systor17"])
def test_depth_is_what_is_outstanding_at_issue(name: str, tmp_path: Path) -> None:
    found = read(tmp_path / "t", FORMS[name].text(requests(200))).requests.collect()
    for device in found["device"].unique():
        part = found.filter(pl.col("device") == device)
        issue, complete = part["issue_ns"].to_numpy(), part["complete_ns"].to_numpy()
        expected = [int(((issue <= t) & (complete > t)).sum()) for t in issue]
        assert part["depth"].to_list() == expected


@pytest.mark.parametrize("name", [n for n in FORMS if n not in ("fio-log", "fio-iolog")])
def test_a_table_that_is_not_kept_in_memory_is_the_same(name, tmp_path: Path, monkeypatch) -> None:
    path = written(tmp_path / "t", FORMS[name].text(requests()))
    kept = table(read_capture(path))
    monkeypatch.setattr(request_table, "KEEP_ROWS", 5)
    assert table(read_capture(path)).equals(kept)


@ALL
@pytest.mark.parametrize("value", [HUGE, NEGATIVE], ids=["huge", "negative"])
def test_a_number_that_cannot_be_costs_its_own_line_and_is_said(
    name: str, value: str, tmp_path: Path
) -> None:
    form = FORMS[name]
    text = form.text(requests())
    whole = read(tmp_path / "t", text)
    lines = text.splitlines()
    at = len(lines) // 2
    line = lines[at]
    others = table(whole)
    for match in NUMBER.finditer(line):
        lines[at] = line[: match.start()] + value + line[match.end() :]
        capture = read(tmp_path / "d", "\n".join(lines) + "\n")
        assert N - 1 <= capture.rows <= N, lines[at]
        found = table(capture)
        if capture.rows < N:
            assert said(capture, whole), lines[at]
            assert found["offset"].is_in(others["offset"].implode()).all()
        else:  # a column that nobody needs: a CPU, a thread, a name
            assert found.equals(others), lines[at]


@ALL
def test_a_step_back_of_the_clock_loses_nothing(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    first = requests()[: N // 2]
    second = [r._replace(issue=r.issue - 10 * S) for r in requests()[N // 2 :]]
    text = form.text(first) + form.text(second).removeprefix(form.header)
    capture = check_same(name, text, tmp_path)
    assert has(capture.warnings, "clock-steps-back")
    whole = read(tmp_path / "t", form.text(requests()))
    assert not has(whole.warnings, "clock-steps-back")


@ALL
def test_a_step_forward_of_the_clock_loses_nothing(name: str, tmp_path: Path) -> None:
    later = [r._replace(issue=r.issue + 3600 * S * (i >= N // 2)) for i, r in enumerate(requests())]
    whole = read(tmp_path / "t", FORMS[name].text(requests()))
    capture = read(tmp_path / "d", FORMS[name].text(later))
    assert capture.rows + has(capture.warnings, "no-completion") == N
    assert table(capture).select(COLUMNS).equals(table(whole).select(COLUMNS))


@ALL
def test_neighbours_out_of_order_are_the_same_requests(name: str, tmp_path: Path) -> None:
    lines = lines_of(name)
    for i in range(0, len(lines) - 1, 2):
        lines[i], lines[i + 1] = lines[i + 1], lines[i]
    check_same(name, FORMS[name].header + "".join(lines), tmp_path)


@pytest.mark.parametrize("name", EVENTS)
def test_duplicate_events_are_left_out_and_said(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    whole = read(tmp_path / "t", form.text(requests()))
    capture = read(tmp_path / "d", form.header + "".join(2 * line for line in lines_of(name)))
    assert table(capture).equals(table(whole))
    assert has(capture.warnings, "duplicates", "no-issue")


@pytest.mark.parametrize("name", LINES)
def test_lines_that_are_there_twice_are_requests_twice(name: str, tmp_path: Path) -> None:
    """Two requests may be alike in all that such a line says: none is dropped."""
    twice = FORMS[name].header + "".join(2 * line for line in lines_of(name))
    capture = read(tmp_path / "d", twice)
    assert (capture.rows, capture.skipped) == (2 * N, 0)


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize(("kept", "code"), [(1, "no-issue"), (0, "no-completion")])
def test_halves_of_a_request_are_left_out_and_said(
    name: str, kept: int, code: str, tmp_path: Path
) -> None:
    form = FORMS[name]
    lines = [
        line
        for i, r in enumerate(requests())
        for k, line in enumerate(form.lines(r))
        if i != 7 or k == kept
    ]
    capture = read(tmp_path / "d", form.header + "".join(f"{line}\n" for _, line in sorted(lines)))
    assert capture.rows == N - 1
    assert has(capture.warnings, code)


RESULTS = [
    r.name for r in READERS if r.name not in ("blktrace", "fio-log", "fio-iolog", "blkparse")
]
RESULTS = [name for name in RESULTS if name not in ("tracepoints", "biosnoop", "public-trace")]


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("value", [HUGE, NEGATIVE, "0", "1e400"])
def test_results_with_a_number_that_cannot_be(name: str, value: str, tmp_path: Path) -> None:
    """Refused in a line that names the file, or read as something that can be."""
    path = tmp_path / "t"
    text = Source(smallest(name)).text()
    places = list(NUMBER.finditer(text))
    for match in places[:: max(1, len(places) // 60)]:
        path.write_text(text[: match.start()] + value + text[match.end() :])
        refusal = ""
        try:
            check_whole(read_capture(path))
        except CaptureError as error:
            refusal = str(error)
        assert not refusal or (str(path) in refusal and "\n" not in refusal)
