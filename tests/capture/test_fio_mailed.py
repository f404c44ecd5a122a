"""fio's reports as mails have them: wrapped, quoted, trimmed; read right, or refused with why.

The reports in ``mailed`` are of fio 3.33, each behind its command. Whatever is done to them, no
number that is read may be another than that of the whole report.
"""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nvmesim.capture.capture import Latency, Op
from nvmesim.capture.readers.fio.fio_jobs import OTHER_MIX
from nvmesim.capture.readers.fio.normal_output import INHERITED, WRAPPED
from nvmesim.capture.readers.fio.normal_section import NO_TIME, TRIMMED
from nvmesim.capture.registry import read_capture
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.contract import read_text as read

REPORTS = sorted((Path(__file__).parent / "mailed").glob("*.txt"))
ROUNDED = 0.03
"""IOPS, bandwidth and bytes are printed with three digits or four."""
LOAD = ("iodepth", "jobs", "access", "block_size", "engine", "direct")
LINES = {
    "command": r"^\$",
    "banner": r"\(g=\d\)",
    "version": r"^fio-|^Starting",
    "header": r"\(groupid=",
    "slat and clat": r"^\s*(slat|clat) ",
    "latencies": r"^\s*(slat|clat|lat) \(\w+\): min",
    "percentiles": r"^\s*\||percentiles",
    "windows": r"^\s*(bw|iops) ",
    "cpu": r"^\s*cpu ",
    "depths": r"IO depths|submit  |complete  ",
    "issued": r"^\s*issued",
    "target": r"latency   :",
    "sums": r"Run status|^\s*(READ|WRITE): bw",
    "drives": r"Disk stats|util=",
}
Change = Callable[[str], str]


def hard(width: int) -> Change:
    """Wrap as a terminal does: after so many characters."""
    return lambda text: "\n".join(
        line[at : at + width]
        for line in text.split("\n")
        for at in range(0, max(len(line), 1), width)
    )


def soft(width: int, indent: str = "") -> Change:
    """Wrap as a mailer does: at blanks."""

    def change(text: str) -> str:
        found = []
        for line in text.split("\n"):
            current = re.match(r"\s*", line)[0] if len(line) > width else line
            words = re.findall(r"\S+\s*", line) if len(line) > width else []
            for word in words:
                if current.strip() and len((current + word).rstrip()) > width:
                    found.append(current.rstrip())
                    current = indent
                current += word
            found.append(current.rstrip())
        return "\n".join(found)

    return change


def quoted(mark: str) -> Change:
    return lambda text: "".join(f"{mark}{line}\n" for line in text.split("\n"))


def without(*names: str) -> Change:
    pattern = re.compile("|".join(LINES[name] for name in names))
    return lambda text: "\n".join(x for x in text.split("\n") if not pattern.search(x))


def only(pattern: str) -> Change:
    return lambda text: "\n".join(x for x in text.split("\n") if re.match(pattern, x))


def then(*changes: Change) -> Change:
    def change(text: str) -> str:
        for one in changes:
            text = one(text)
        return text

    return change


def in_prose(text: str) -> str:
    return f"Hi,\n\nwith 4 drives at iodepth 3 I see:\n\n{text}\n\nAny idea?\n\nThanks,\nB.\n"


def changes() -> Iterator[tuple[str, Change]]:
    for width in (68, 72, 76, 80, 85):
        yield f"hard {width}", hard(width)
        yield f"hard {width} and quoted", then(hard(width), quoted(">> "))
        yield f"soft {width}", soft(width)
        yield f"soft {width} indented", soft(width, "\t")
        yield f"quoted, then wrapped at {width}", then(quoted("> "), soft(width))
    yield "no-break spaces", lambda text: text.replace("  ", " \u00a0")
    for name in LINES:
        yield f"without {name}", without(name)
    kept = ("command", "banner", "header", "latencies")
    core = without(*(name for name in LINES if name not in kept))
    yield "IOPS and latencies", core
    yield "IOPS and latencies, no load", then(core, without("command", "banner"))
    yield "bare lines", only(r"\s*(read|write): IOPS|\$")
    yield "bare lines, no command", only(r"\s*(read|write): IOPS")
    yield "sums", only(r"\s*(READ|WRITE): bw|\$")
    yield "sums, no command", only(r"\s*(READ|WRITE): bw")
    rng = random.Random(5)
    for number in range(25):
        names = rng.sample(sorted(LINES), rng.randint(1, 5))
        wrap = rng.choice((hard, soft))(rng.choice((72, 76, 80, 90)))
        quote = rng.choice((lambda text: text, quoted("> "), quoted(">>> ")))
        yield f"mix {number}", then(without(*names), in_prose, wrap, quote)


CHANGES = list(changes())


def assert_same_latency(found: Latency | None, whole: Latency | None) -> None:
    if found is None:
        return
    for name in ("mean_s", "min_s", "max_s", "stddev_s"):
        assert getattr(found, name) in (None, pytest.approx(getattr(whole, name), rel=1e-4))
    for percent, value in found.percentiles_s.items():
        assert value == pytest.approx(whole.percentiles_s[percent])


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_no_number_is_another(report: Path, name: str, change: Change, tmp_path: Path) -> None:
    whole: dict[Op, tuple] = {
        op: (m.conditions, result)
        for m in read_capture(report).measurements
        for op, result in m.ops.items()
    }
    text = change(report.read_text())
    try:
        capture = read(text, tmp_path)
    except CaptureError:
        assert name.startswith("sums")
        with pytest.raises(CaptureError, match="is a part of fio's report: sums"):
            read(text, tmp_path)
        return
    found = [
        (m.conditions, op, result) for m in capture.measurements for op, result in m.ops.items()
    ]
    assert {op for _, op, _ in found} == set(whole)
    for conditions, op, result in found:
        load, expected = whole[op]
        assert result.iops == pytest.approx(expected.iops, rel=ROUNDED)
        assert result.bytes_per_s == pytest.approx(expected.bytes_per_s, rel=ROUNDED)
        assert result.count in (0, pytest.approx(expected.count, rel=ROUNDED))
        for kind in ("clat", "lat", "slat"):
            assert_same_latency(getattr(result, kind), getattr(expected, kind))
        for key in LOAD:
            assert getattr(conditions, key) in (None, getattr(load, key)), key
        assert conditions.read_fraction == pytest.approx(load.read_fraction, abs=0.01)


def test_what_was_done_is_said(tmp_path: Path) -> None:
    text = REPORTS[0].read_text()
    assert has(read(soft(72)(text), tmp_path).warnings, WRAPPED)
    assert has(read(without("issued")(text), tmp_path).warnings, TRIMMED)
    assert has(read("  read: IOPS=14.0k, BW=54.7MiB/s (57.3MB/s)", tmp_path).warnings, NO_TIME)
    assert not has(read(text, tmp_path).warnings, WRAPPED, TRIMMED, NO_TIME, INHERITED)


def test_a_command_of_another_load_is_not_taken(tmp_path: Path) -> None:
    text = re.sub(r"--rw=\w+ ", "--rw=write --numjobs=9 ", REPORTS[0].read_text())
    conditions = read(text, tmp_path).measurements[0].conditions
    assert (conditions.access, conditions.iodepth, conditions.direct) == ("random", 16, None)


def test_depth_is_what_the_report_says_if_nothing_else_does(tmp_path: Path) -> None:
    text = without("command", "banner")(REPORTS[0].read_text())
    conditions = read(text, tmp_path).measurements[0].conditions
    assert (conditions.iodepth, conditions.engine) == (16, None)
    conditions = (
        read(without("command", "banner", "target")(text), tmp_path).measurements[0].conditions
    )
    assert conditions.iodepth is None


def test_what_verify_reads_is_not_called_another_mix_than_asked() -> None:
    """Its reads come after the writes: each phase has all of its own, and asked for no mix."""
    capture = read_capture(Path(__file__).parent / "mailed" / "ver.txt")
    assert {has(m.warnings, "phases") for m in capture.measurements} == {True}
    assert {has(m.warnings, OTHER_MIX) for m in capture.measurements} == {False}
