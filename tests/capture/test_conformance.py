"""What every reader of `READERS` must do, on every sample in `data`; readers of one's own; as JSON.

A sample is added by laying it into ``data/<name of the format>/``; nothing else is needed.
"""

import gzip
import json
import lzma
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from nvmesim.capture import registry
from nvmesim.capture.capture import Capture, Conditions, Measurement, OpResult, describe_capture
from nvmesim.capture.registry import READERS, guarded_read, read_capture
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError
from tests.capture.contract import DATA, check_whole, smallest

SAMPLES = sorted(
    path for reader in READERS for path in (DATA / reader.name).glob("*") if path.is_file()
)
IDS = [f"{path.parent.name}/{path.name}" for path in SAMPLES]
ONE_EACH = [smallest(reader.name) for reader in READERS]
"""For what is done to a file before its reader sees it."""
MAX_TRUNCATED_BYTES = 120_000
"""Larger samples are cut at every 10 % only: reading them a hundred times takes too long."""


def _expanded(path: Path) -> bytes:
    return Source(path).raw()


def _total(capture: Capture) -> int:
    return sum(op.count for m in capture.measurements for op in m.ops.values())


def _read_or_refuse(path: Path) -> Capture | None:
    refusal = ""
    try:
        capture = read_capture(path)
        check_whole(capture)
    except CaptureError as error:
        refusal = str(error)
    if not refusal:
        return capture
    assert "\n" not in refusal
    assert str(path) in refusal
    return None


@pytest.mark.parametrize("path", SAMPLES, ids=IDS)
def test_exactly_one_reader_accepts_a_sample(path: Path) -> None:
    head = Source(path).head
    assert [reader.name for reader in READERS if reader.sniff(head)] == [path.parent.name]


@pytest.mark.parametrize("path", SAMPLES, ids=IDS)
def test_a_sample_reads(path: Path) -> None:
    capture = read_capture(path)
    check_whole(capture)
    assert capture.file == path
    assert capture.rows > 0
    assert capture.skipped == 0
    if capture.requests is not None:
        assert capture.requests.collect().height > 0


@pytest.mark.parametrize("path", ONE_EACH, ids=lambda path: path.parent.name)
def test_name_and_compression_do_not_matter(path: Path, tmp_path: Path) -> None:
    raw = _expanded(path)
    alone = tmp_path / path.name  # the version of a log is that of results beside it
    alone.write_bytes(path.read_bytes())
    first = read_capture(alone)
    for pack in (gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress):
        packed = tmp_path / "capture.dat"
        packed.write_bytes(pack(raw))
        capture = read_capture(packed)
        assert (capture.format, capture.version) == (first.format, first.version)
        assert (capture.rows, _total(capture)) == (first.rows, _total(first))


@pytest.mark.parametrize("path", ONE_EACH, ids=lambda path: path.parent.name)
def test_encodings_of_windows(path: Path, tmp_path: Path) -> None:
    """PowerShell writes UTF-16 with a mark and CRLF; editors add a mark."""
    if b"\0" in _expanded(path):
        pytest.skip("not text")
    text = Source(path).text().replace("\n", "\r\n")
    first = read_capture(path)
    for encoding in ("utf-16", "utf-8-sig"):
        other = tmp_path / path.name.removesuffix(".gz")
        other.write_bytes(text.encode(encoding))
        capture = read_capture(other)
        assert capture.format == first.format
        assert (capture.rows, _total(capture)) == (first.rows, _total(first))


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("path", SAMPLES, ids=IDS)
def test_cut_anywhere(path: Path, step: int, tmp_path: Path) -> None:
    """A cut file is refused, or its complete rows are read and the rest is said."""
    raw = _expanded(path)
    uncut = read_capture(path)
    whole = uncut.rows
    cut = tmp_path / path.name.removesuffix(".gz")
    for percent in range(0, 100, step if len(raw) <= MAX_TRUNCATED_BYTES else 10 * step):
        cut.write_bytes(raw[: len(raw) * percent // 100])
        capture = _read_or_refuse(cut)
        assert capture is None or capture.rows <= whole
        at = len(raw) * percent // 100
        # Between two lines, or two records of blktrace, a cut cannot be seen.
        is_seam = raw[at - 1 : at] == b"\n" or raw[at : at + 1] == b"\n"
        is_seam |= raw[at : at + 4] == b"\x07tae"
        if capture is None or is_seam:
            continue
        said = capture.skipped > 0 or set(capture.warnings) - set(uncut.warnings)
        assert said or (capture.rows, _total(capture)) == (whole, _total(uncut))


@pytest.mark.parametrize(("iops", "fine"), [(0.0, True), (-1.0, False), (math.nan, False)])
def test_iops_that_are_no_rate_are_refused(tmp_path, iops, fine):
    path = tmp_path / "run.zork"
    path.write_text("zork\n", encoding="utf-8")
    conditions = Conditions(read_fraction=1.0, block_size=4096, jobs=1, iodepth=1)
    result = OpResult(count=1, bytes=4096, iops=iops, bytes_per_s=1.0)
    found = Capture(path, "zork", None, (Measurement("run", conditions, {"read": result}),), 1)
    reader = SimpleNamespace(name="zork", read=lambda _: found)
    if fine:
        assert guarded_read(reader, Source(path)) is found
        return
    with pytest.raises(CaptureError, match=r"run.zork.*run: IOPS that are no rate"):
        guarded_read(reader, Source(path))


MODULE = """
FORMAT = "zork"
def sniff(head): return head.text.startswith("zork")
def read(source): """


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import nothing_of_this_name", r"cannot be imported \(ModuleNotFoundError"),
        ("FORMAT = 'zork'\ndef sniff(head): return True", "has no attribute 'read'"),
        (MODULE + "return 1 / 0", r"run.zork: .*failed \(ZeroDivisionError"),
        (MODULE + "return 1", "run.zork: .*returned no Capture"),
        (MODULE.replace("head.text", "head.txt") + "return 1", r"failed to look .*AttributeError"),
    ],
)
def test_an_installed_reader_that_fails_is_named(
    code: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zorkreader.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "zorkreader", raising=False)
    installed = (registry.InstalledReader("zork", "zorkreader", "zorktools"),)
    monkeypatch.setattr(registry, "installed_readers", lambda: installed)
    path = tmp_path / "run.zork"
    path.write_text("zork\n", encoding="utf-8")
    with pytest.raises(CaptureError, match=found) as caught:
        read_capture(path)
    assert "reader zorkreader of zorktools" in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.delitem(sys.modules, "zorkreader", raising=False)


def described(name: str) -> dict:
    table = describe_capture(read_capture(DATA / name))
    return json.loads(json.dumps(table, allow_nan=False))


def test_keys() -> None:
    table = described("fio-json/randread_4k_qd4_nj3_group.json")
    first = ["file", "format", "version", "conditions", "rows", "skipped", "ops", "warnings"]
    assert list(table)[:8] == first
    assert (table["format"], table["version"], table["rows"]) == ("fio-json", "3.33", 1)
    assert table["conditions"]["outstanding"] == 12
    assert set(table["ops"]) == {"read"}
    read = table["ops"]["read"]
    assert (read["count"], read["bytes"]) == (184285, 754831360)
    assert read["latency_s"]["kind"] == "clat"
    assert read["latency_s"]["mean"] == pytest.approx(189.38e-6, rel=1e-4)
    assert read["latency_s"]["p50"] < read["latency_s"]["p99"] < read["latency_s"]["max"]
    assert read["lat_s"]["p50"] is None
    assert any(text.startswith("short run") for text in table["warnings"])


def test_latency_is_of_the_kind_with_a_distribution() -> None:
    read = described("fio-json/randread_4k_qd4_latpct_only.json.gz")["ops"]["read"]
    assert read["latency_s"]["kind"] == "lat"
    assert read["latency_s"]["p99"] > 0
    assert read["clat_s"]["p99"] is None


def test_several_measurements_share_only_what_is_equal() -> None:
    table = described("fio-json/jobfile_global_stonewall.json.gz")
    assert table["conditions"]["iodepth"] is None
    assert table["conditions"]["engine"] == "libaio"
    assert [m["conditions"]["iodepth"] for m in table["measurements"]] == [4, 16, 8]
    assert table["ops"]["read"]["count"] == sum(
        m["ops"]["read"]["count"] for m in table["measurements"] if "read" in m["ops"]
    )
    assert table["ops"]["read"]["latency_s"]["p99"] is None
    assert table["warnings"][0].startswith("warm-read: ")
