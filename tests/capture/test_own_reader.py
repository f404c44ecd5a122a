"""What a reader of one's own may get wrong is a line, too."""

import math
from types import SimpleNamespace

import pytest

from nvmesim.capture.capture import Capture, Conditions, Measurement, OpResult
from nvmesim.capture.registry import guarded_read
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
