"""The contract of `Capture`, held by the conformance suite and by the fuzzer on any file.

And how tests read what they have written.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from nvmesim.capture.capture import REQUEST_SCHEMA, Capture, Latency, Measurement, describe_capture
from nvmesim.capture.registry import read_capture
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from nvmesim.warning import has

DATA = Path(__file__).parent / "data"


def smallest(name: str) -> Path:
    """The smallest sample of a format."""
    return min((DATA / name).glob("*"), key=lambda sample: len(Source(sample).raw()))


def check_latency(latency: Latency) -> None:
    """Hold that every number is finite and sane and the percentiles ascend."""
    numbers = [latency.mean_s, latency.min_s, latency.max_s, latency.stddev_s]
    numbers += list(latency.percentiles_s.values())
    for number in numbers:
        assert number is None or (math.isfinite(number) and 0 <= number <= 1e6)
    values = [latency.percentiles_s[p] for p in sorted(latency.percentiles_s)]
    assert values == sorted(values)
    assert all(0 <= p <= 100 for p in latency.percentiles_s)
    if latency.bin_s is not None:
        assert latency.bin_count is not None
        assert latency.bin_s.dtype == "float64"
        assert latency.bin_count.dtype == "int64"
        assert (latency.bin_s[1:] > latency.bin_s[:-1]).all()
        assert (latency.bin_count >= 0).all()


def check_capture(capture: Capture) -> None:
    """Hold the contract of `Capture`, whatever the file was."""
    assert capture.rows >= 0
    assert capture.skipped >= 0
    for measurement in capture.measurements:
        assert set(measurement.ops) <= {"read", "write"}
        for op in measurement.ops.values():
            assert op.count >= 0
            assert op.bytes >= 0
            assert math.isfinite(op.iops)
            assert op.iops >= 0
            assert math.isfinite(op.bytes_per_s)
            for latency in (op.clat, op.lat, op.slat):
                if latency is not None:
                    check_latency(latency)
    if capture.requests is not None:
        assert set(capture.requests.collect_schema().names()) >= set(REQUEST_SCHEMA.names())


def check_whole(capture: Capture) -> None:
    """The contract, the JSON of ``nvmesim trace`` and the table of requests."""
    check_capture(capture)
    json.dumps(describe_capture(capture), allow_nan=False)
    if capture.requests is not None:
        assert capture.requests.collect().height == capture.rows


def check_refusal(error: CaptureError, path: str) -> None:
    """One line that names the file."""
    assert "\n" not in str(error)
    assert path in str(error)


def written(path: Path, data: str | bytes) -> Path:
    """Write *data* as it is, and return *path*."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def read_text(text: str, tmp_path: Path, name: str = "capture.txt") -> Capture:
    """Read *text* as a file of that name."""
    return read_capture(written(tmp_path / name, text))


def only(path: Path) -> Measurement:
    """The one measurement of a file."""
    (measurement,) = read_capture(path).measurements
    return measurement


def refused(text: str, tmp_path: Path, name: str = "capture.txt") -> str:
    """Why *text* is refused, without the file's name."""
    with pytest.raises(CaptureError) as caught:
        read_text(text, tmp_path, name)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{tmp_path / name}: ")


def table(capture: Capture) -> pl.DataFrame:
    """The requests of *capture*."""
    return capture.requests.collect()


def counted(warnings: Iterable[str], code: str) -> int:
    """Number that the warning with *code* begins with; 0 if there is none."""
    return next((int(w.split()[0]) for w in warnings if has([w], code)), 0)


def sample(name: str, *changes: tuple[str, str]) -> str:
    """The text of a file in ``data``, unpacked; with *changes*, each of which it must hold."""
    text = Source(DATA / name).text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text
