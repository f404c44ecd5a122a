"""What a reader of one's own may get wrong is a line, too."""

import math
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from nvmesim.capture import registry
from nvmesim.capture.capture import Capture, Conditions, Measurement, OpResult
from nvmesim.capture.registry import guarded_read, read_capture
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError


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
        ("FORMAT = 'zork'\ndef sniff(head): return True", "has no read;"),
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
    entry = EntryPoint("zork", "zorkreader", registry.ENTRY_POINT)
    installed = (registry.InstalledReader(entry),)
    monkeypatch.setattr(registry, "installed_readers", lambda: installed)
    path = tmp_path / "run.zork"
    path.write_text("zork\n", encoding="utf-8")
    with pytest.raises(CaptureError, match=found) as caught:
        read_capture(path)
    assert "reader zorkreader of" in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.delitem(sys.modules, "zorkreader", raising=False)
