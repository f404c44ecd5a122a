"""Published traces: units, depth, damage, long files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvmesim.capture import lines
from nvmesim.capture.readers import table_rows
from nvmesim.capture.registry import read_capture
from nvmesim.capture.requests import table as request_table
from tests.capture import composed
from tests.capture.contract import written

WRITERS = {
    "msr-cambridge": composed.msr,
    "alibaba": composed.alibaba,
    "tencent-cbs": composed.tencent,
    "k5cloud": composed.k5cloud,
    "systor17": composed.systor,
    "spc": composed.spc,
}
RESOLUTION = {"msr-cambridge": 100, "tencent-cbs": 10**9}
TIMED = ("msr-cambridge", "systor17")


def rows(path: Path) -> pl.DataFrame:
    requests = read_capture(path).requests
    return requests.collect()


@pytest.mark.parametrize("name", WRITERS)
def test_units(name: str, tmp_path: Path) -> None:
    expected = composed.requests(60)
    if name == "systor17":
        answered = np.arange(60) % 20 != 19
        expected = {key: column[answered] for key, column in expected.items()}
    path = written(tmp_path / "t", WRITERS[name](60))
    assert read_capture(path).format == name
    found = rows(path).sort("issue_ns", maintain_order=True)
    unit = RESOLUTION.get(name, 1000)
    times = expected["time"] // unit * unit
    assert found["issue_ns"].to_list() == (times - times[0]).tolist()
    assert found["bytes"].to_list() == expected["bytes"].tolist()
    assert found["offset"].to_list() == expected["offset"].tolist()
    assert (found["op"] == "write").to_list() == expected["write"].tolist()
    if name in TIMED:
        assert found["latency_ns"].to_list() == expected["latency"].tolist()
        assert found["complete_ns"].null_count() == 0
    else:
        assert found["latency_ns"].null_count() == found["depth"].null_count() == 60


@pytest.mark.parametrize("name", TIMED)
def test_depth_is_what_is_outstanding_at_issue(name: str, tmp_path: Path) -> None:
    found = rows(written(tmp_path / "t", WRITERS[name](200)))
    for device in found["device"].unique():
        part = found.filter(pl.col("device") == device)
        issue, complete = part["issue_ns"].to_numpy(), part["complete_ns"].to_numpy()
        expected = [int(((issue <= t) & (complete > t)).sum()) for t in issue]
        assert part["depth"].to_list() == expected


@pytest.mark.parametrize("name", WRITERS)
def test_chunks_of_any_size_give_the_same(name: str, tmp_path: Path, monkeypatch) -> None:
    path = written(tmp_path / "t", WRITERS[name](200))
    whole = rows(path)
    cut = lines.chunks
    monkeypatch.setattr(table_rows, "chunks", lambda source: cut(source, 900))
    monkeypatch.setattr("nvmesim.capture.lines.CHUNK", 900)
    parts = rows(path)
    key = ["issue_ns", "device", "offset"]
    assert parts.sort(key).equals(whole.sort(key))
    monkeypatch.setattr(request_table, "KEEP_ROWS", 5)
    assert (
        rows(path)
        .drop("depth", strict=False)
        .sort(key)
        .equals(whole.drop("depth", strict=False).sort(key))
    )


def test_damage_is_counted(tmp_path: Path) -> None:
    bad = [
        "128166620794097839,hm,1,Read,3221266432,4096\n",
        "128166620794097838,hm,1,Write,-4096,4096,100\n",
        "128166620794097840,hm,1,Flush,0,0,10\n",
        ";;;\n",
        "128166620794097841,hm,1,Write,4096,NaN,10\n",
        "128166620794097841,hm,1,Write,4096,99999999999999999999999,10\n",
        "128166620794097841,hm,1,Write,4096,4096,-10\n",
        "128166620794097841,hm,1,Write,4096,4096,9223372036854775807\n",
    ]
    good = composed.msr(10)
    text = (
        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"
        + good
        + "\n\n"
        + "".join(bad)
    )
    text += (
        '"128166620794097842","hm",1,"write",4096,4096,10\n128166620794097842,hm,1,Read,0,4096,1'
    )
    capture = read_capture(written(tmp_path / "t", text))
    assert capture.rows == 11
    assert capture.skipped == len(bad) + 1


def test_requests_without_a_response_are_said(tmp_path: Path) -> None:
    capture = read_capture(written(tmp_path / "t", composed.systor(60)))
    assert (capture.rows, capture.skipped) == (57, 0)
    assert capture.warnings == ("3 requests without a response (left out)",)


def test_arrivals_only_is_said(tmp_path: Path) -> None:
    capture = read_capture(written(tmp_path / "t", composed.k5cloud()))
    assert capture.measurements[0].warnings == ("no latencies in this format: arrivals only",)
    assert capture.measurements[0].ops["read"].clat is None
