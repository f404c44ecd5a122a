"""fio's logs: columns of every version, jobs of one run together, and what their JSON says."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture.capture import describe_capture, fio_bin_index, fio_bin_value
from nvmesim.capture.readers.fio import fio_log
from nvmesim.capture.readers.fio.log_rows import find_layout
from nvmesim.capture.registry import read_capture, read_captures
from nvmesim.warning import has
from tests.capture.contract import DATA, read_text

RUNS = DATA / "runs"
LOG = "x_clat.1.log"


@pytest.mark.parametrize(
    ("row", "version", "columns"),
    [
        ("5, 90, 0, 4096", None, "time_ms value ddir bs"),
        ("5, 90000, 0, 4096, 1", (3, 33), "time_ms value ddir bs prio"),
        ("5, 90000, 0, 4096, 0", None, "time_ms value ddir bs prio"),
        ("5, 90000, 0, 4096, 8192", (3, 10), "time_ms value ddir bs offset"),
        ("5, 90000, 0, 4096, 8192", None, "time_ms value ddir bs offset"),
        ("5, 90000, 0, 4096, 0x2000", None, "time_ms value ddir bs prio"),
        ("5, 90000, 0, 4096, 8192, 0", None, "time_ms value ddir bs offset prio"),
        ("5, 90000, 0, 4096, 0, 130164", None, "time_ms value ddir bs prio issue_ns"),
        ("5, 90000, 0, 4096, 8192, 0, 7", None, "time_ms value ddir bs offset prio issue_ns"),
        ("5, 90000, 95000, 1, 0, 0", (3, 42), "time_ms value max ddir bs prio"),
        ("5, 90000, 95000, 1, 0, 0, 0", None, "time_ms value max ddir bs offset prio"),
    ],
)
def test_columns(row: str, version: tuple[int, int] | None, columns: str) -> None:
    layout = find_layout([row.split(", ")] * 3, version, "clat")
    assert layout.columns == tuple(columns.split())
    assert layout.is_averaged == (", 0, 0" in row[-9:] and "4096" not in row)


def test_unit_by_version_and_by_values() -> None:
    slow = [[str(t), "90000", "0", "4096"] for t in range(0, 3000, 90)]
    assert find_layout(slow, (2, 17), "clat").ns_per_unit == 1000
    assert find_layout(slow, (3, 5), "clat").ns_per_unit == 1
    guessed = find_layout(slow, None, "clat")
    assert guessed.ns_per_unit == 1000  # 90 us every 90 ms as ns, one at a time as us
    assert "no version is known: its values were taken as us" in guessed.guesses[0]
    busy = [[str(k // 20), "90000", "0", "4096"] for k in range(400)]
    assert find_layout(busy, None, "clat").ns_per_unit == 1
    short = [["0", "95", "0", "4096"]]
    assert find_layout(short, None, "clat").ns_per_unit == 1000


def test_bins_are_inverse_to_their_values() -> None:
    index = np.arange(29 * 64)
    np.testing.assert_array_equal(fio_bin_index(fio_bin_value(index).astype(np.int64)), index)


def test_issue_times_give_the_depth() -> None:
    capture = read_capture(RUNS / "v3.42_rr_qd8_issuetime_clat.1.log.gz")
    assert capture.version == "3.42"
    conditions = capture.measurements[0].conditions
    assert (conditions.iodepth, conditions.engine, conditions.block_size) == (8, "libaio", 4096)
    frame = capture.requests.collect()
    assert (frame["complete_ns"] - frame["issue_ns"] == frame["latency_ns"]).all()
    assert frame["depth"].max() == 8
    assert frame["depth"].median() == 8
    assert frame["device"].unique().to_list() == ["testfile.bin"]


def test_times_since_1970_count_from_the_start() -> None:
    capture = read_capture(DATA / "fio-log" / "mix_uepoch_lat.1.log.gz")
    assert capture.requests.select(pl.col("complete_ns").min()).collect().item() == 0
    assert capture.measurements[0].ops["read"].lat is not None
    assert capture.measurements[0].ops["read"].clat is None


def test_jobs_that_ran_together_are_one_capture() -> None:
    captures = read_captures(sorted(RUNS.glob("nj2_perjob_clat.*")))
    (capture,) = captures.files
    assert capture.rows == 42
    assert capture.measurements[0].conditions.outstanding == 8
    assert capture.series is not None
    alone = read_capture(RUNS / "nj2_perjob_clat.2.log")
    assert alone.rows == 21
    assert has(alone.warnings, "logs-missing")


def test_averaged_logs_are_a_series_without_percentiles() -> None:
    capture = read_capture(DATA / "fio-log" / "v3.42_mix_both_clat.1.log")
    assert capture.requests is None
    assert capture.measurements[0].ops == {}
    assert capture.series.columns == ["time_s", "op", "kind", "value"]
    first = capture.series.row(0)
    assert first[:3] == (0.1, "read", "clat")
    assert first[3] == pytest.approx(132729e-9)
    assert has(capture.warnings, "averaged-log")
    windows = describe_capture(capture)["series"]
    assert {w["op"]: w["windows"] for w in windows} == {"read": 21, "write": 21}


def test_long_logs_are_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit nothing is kept, and two jobs' requests still come in order of time."""
    rows = [f"{k // 5}, {80000 + k}, {k % 2}, 4096, {4096 * k}, 0\n" for k in range(3000)]
    for job in (1, 2):
        (tmp_path / f"x_clat.{job}.log").write_text("".join(rows))
    paths = sorted(tmp_path.glob("*.log"))
    (small,) = read_captures(paths).files
    monkeypatch.setattr(fio_log, "KEEP_ROWS", 100)
    (large,) = read_captures(paths).files
    assert small.rows == large.rows == 6000
    order = ["complete_ns", "latency_ns"]
    a, b = small.requests.collect(), large.requests.collect()
    assert b["complete_ns"].is_sorted()
    assert a.sort(order).equals(b.sort(order))
    assert large.requests.filter(pl.col("op") == "read").select(pl.len()).collect().item() == 3000
    assert large.requests.head(7).collect().height == 7


def test_drift_is_said(tmp_path: Path) -> None:
    rows = [f"{k}, {80000 + 20 * k}, 0, 4096, 0\n" for k in range(4000)]
    capture = read_text("".join(rows), tmp_path, LOG)
    assert has(capture.warnings, "drift")
    appended = read_text("".join(rows) * 2, tmp_path, LOG)
    assert has(appended.warnings, "clock-steps-back")
