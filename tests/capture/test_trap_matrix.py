# ruff: noqa: E501 - lines are as long as the tools print them
"""Every reader of requests against every trap: one table, so that no reader is forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from nvmesim.capture.capture import Capture
from nvmesim.capture.registry import READERS, read_capture
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.contract import check_whole

DATA = Path(__file__).parent / "data"
N = 40
S = 10**9
START = 1000 * S
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
HUGE, NEGATIVE = "9" * 30, "-5"


class Request(NamedTuple):
    """ns, ns, bytes, bytes."""

    issue: int
    took: int
    offset: int
    size: int
    write: bool

    @property
    def end(self) -> int:
        return self.issue + self.took

    @property
    def rwbs(self) -> str:
        return "W" if self.write else "R"

    @property
    def span(self) -> str:
        return f"{self.offset // 512} + {self.size // 512}"


def requests(n: int = N) -> list[Request]:
    """Up to three at a time; offsets tell them apart."""
    return [
        Request(
            START + 100_000 * i,
            80_000 + 1000 * (i * 7 % 200),
            65536 * (i + 1),
            4096 << i % 3,
            i % 3 == 0,
        )
        for i in range(n)
    ]


Line = tuple[int, str]
"""Its place in time and its text."""


@dataclass(frozen=True)
class Form:
    """How a tool prints a request: one line, or one at its issue and one at its completion."""

    lines: Callable[[Request], list[Line]]
    header: str = ""
    says_disorder: bool = True
    """Whether a file whose time steps back is said to."""

    @property
    def has_events(self) -> bool:
        return len(self.lines(requests(1)[0])) > 1

    def text(self, wanted: list[Request]) -> str:
        found = sorted(line for request in wanted for line in self.lines(request))
        return self.header + "".join(f"{text}\n" for _, text in found)


def seconds(ns: int, digits: int = 9) -> str:
    return f"{ns // S}.{ns % S // 10 ** (9 - digits):0{digits}d}"


def _blkparse(r: Request) -> list[Line]:
    tail = f"{r.rwbs:>3} {r.span}"
    return [
        (r.issue, f"259,0    1        7 {seconds(r.issue):>14}   372  D {tail} [fio]"),
        (r.end, f"259,0    1        9 {seconds(r.end):>14}     0  C {tail} [0]"),
    ]


def _perf(r: Request) -> list[Line]:
    return [
        (
            r.issue,
            f"fio   538 [001] {seconds(r.issue)}: block:block_rq_issue: 259,0 {r.rwbs} {r.size} () {r.span} [fio]",
        ),
        (
            r.end,
            f"fio   538 [001] {seconds(r.end)}: block:block_rq_complete: 259,0 {r.rwbs} () {r.span} [0]",
        ),
    ]


def _ftrace(r: Request) -> list[Line]:
    head = "  fio-538  [001] d..1."
    return [
        (
            r.issue,
            f"{head} {seconds(r.issue, 6)}: block_rq_issue: 259,0 {r.rwbs} {r.size} () {r.span} [fio]",
        ),
        (r.end, f"{head} {seconds(r.end, 6)}: block_rq_complete: 259,0 {r.rwbs} () {r.span} [0]"),
    ]


def _bpftrace(r: Request) -> list[Line]:
    tail = f"259,0,{r.offset // 512},{r.size // 512},{r.rwbs}"
    return [(r.issue, f"{r.issue},D,{tail}"), (r.end, f"{r.end},C,{tail}")]


def _biosnoop(r: Request) -> list[Line]:
    text = f"{seconds(r.end, 6):<11} fio            372     nvme0n1   {r.rwbs} {r.offset // 512:<10} {r.size:<7} {r.took / 1e6:7.3f}"
    return [(r.end, text)]


def _msr(r: Request) -> list[Line]:
    ticks = 128166372003061629 + r.issue // 100
    return [
        (
            r.issue,
            f"{ticks},hm,1,{'Write' if r.write else 'Read'},{r.offset},{r.size},{r.took // 100}",
        )
    ]


FORMS = {
    "blkparse": Form(_blkparse),
    "perf-script": Form(_perf),
    "ftrace": Form(_ftrace),
    "bpftrace-csv": Form(_bpftrace, "ts_ns,ev,dev_major,dev_minor,sector,nr_sector,rwbs\n"),
    "biosnoop": Form(_biosnoop, "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n"),
    "msr-cambridge": Form(_msr),
    "systor17": Form(
        lambda r: [(r.issue, f"{seconds(r.issue)},{seconds(r.took)},{r.rwbs},3,{r.offset},{r.size}")],
        "Timestamp,Response,IOType,LUN,Offset,Size\n",
    ),
    "alibaba": Form(lambda r: [(r.issue, f"7,{r.rwbs},{r.offset},{r.size},{1577808 * S + r.issue // 1000}")]),
    "tencent-cbs": Form(
        lambda r: [(r.issue, f"{1538323200 + r.issue // S},{r.offset // 512},{r.size // 512},{r.write:d},1360")]
    ),
    "k5cloud": Form(lambda r: [(r.issue, f"1157,{seconds(r.issue)},{r.rwbs},{r.offset},{r.size}")]),
    "spc": Form(lambda r: [(r.issue, f"0,{r.offset // 512},{r.size},{r.rwbs},{seconds(r.issue, 6)}")]),
    "fio-log": Form(
        lambda r: [(r.end, f"{r.end // 10**6}, {r.took}, {r.write:d}, {r.size}, {r.offset}, 0")]
    ),
    "fio-iolog": Form(
        lambda r: [(r.issue, f"{r.issue // 1000} /dev/nvme0n1 {'write' if r.write else 'read'} {r.offset} {r.size}")],
        "fio version 3 iolog\n0 /dev/nvme0n1 add\n",
    ),
}  # fmt: skip
EVENTS = [name for name, form in FORMS.items() if form.has_events]
LINES = [name for name in FORMS if name not in EVENTS]
ALL = pytest.mark.parametrize("name", FORMS)


def table(capture: Capture) -> pl.DataFrame:
    """The requests in order of their offsets, without what a damaged line next to them changes."""
    return capture.requests.collect().sort("offset").drop("depth", "device")


def read(path: Path, text: str) -> Capture:
    path.write_text(text)
    capture = read_capture(path)
    check_whole(capture)
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
    if found["latency_ns"].null_count() == 0:
        assert found["latency_ns"].to_list() == [r.took for r in requests()]


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
    whole = read(tmp_path / "t", form.text(requests()))
    capture = read(tmp_path / "d", text)
    assert (capture.rows, capture.skipped) == (N, 0)
    columns = ["offset", "bytes", "op", "latency_ns"]
    assert table(capture).select(columns).equals(table(whole).select(columns))
    assert has(set(capture.warnings) - set(whole.warnings), "clock-steps-back")


@ALL
def test_a_step_forward_of_the_clock_loses_nothing(name: str, tmp_path: Path) -> None:
    later = [
        r._replace(issue=r.issue + (3600 * S if i >= N // 2 else 0))
        for i, r in enumerate(requests())
    ]
    whole = read(tmp_path / "t", FORMS[name].text(requests()))
    capture = read(tmp_path / "d", FORMS[name].text(later))
    assert capture.rows + has(capture.warnings, "no-completion") == N
    columns = ["offset", "bytes", "op", "latency_ns"]
    assert table(capture).select(columns).equals(table(whole).select(columns))


@ALL
def test_neighbours_out_of_order_are_the_same_requests(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    whole = read(tmp_path / "t", form.text(requests()))
    lines = form.text(requests()).removeprefix(form.header).splitlines(keepends=True)
    for i in range(0, len(lines) - 1, 2):
        lines[i], lines[i + 1] = lines[i + 1], lines[i]
    capture = read(tmp_path / "d", form.header + "".join(lines))
    assert (capture.rows, capture.skipped) == (N, 0)
    columns = ["offset", "bytes", "op", "latency_ns"]
    assert table(capture).select(columns).equals(table(whole).select(columns))


@pytest.mark.parametrize("name", EVENTS)
def test_duplicate_events_are_left_out_and_said(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    whole = read(tmp_path / "t", form.text(requests()))
    lines = form.text(requests()).removeprefix(form.header).splitlines(keepends=True)
    capture = read(tmp_path / "d", form.header + "".join(2 * line for line in lines))
    assert table(capture).equals(table(whole))
    assert has(capture.warnings, "duplicates", "no-issue")


@pytest.mark.parametrize("name", LINES)
def test_lines_that_are_there_twice_are_requests_twice(name: str, tmp_path: Path) -> None:
    """Two requests may be alike in all that such a line says: none is dropped."""
    form = FORMS[name]
    lines = form.text(requests()).removeprefix(form.header).splitlines(keepends=True)
    capture = read(tmp_path / "d", form.header + "".join(2 * line for line in lines))
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
    smallest = min((DATA / name).glob("*"), key=lambda sample: len(Source(sample).raw()))
    text = Source(smallest).text()
    places = list(NUMBER.finditer(text))
    for match in places[:: max(1, len(places) // 120)]:
        path.write_text(text[: match.start()] + value + text[match.end() :])
        refusal = ""
        try:
            check_whole(read_capture(path))
        except CaptureError as error:
            refusal = str(error)
        assert not refusal or (str(path) in refusal and "\n" not in refusal)
