"""Whether each job has a target of its own, which decides how many it keeps busy."""

from pathlib import Path

import pytest

from nvmesim.calibrate.points import points_of
from nvmesim.capture.capture import Capture, Captures, Conditions, Measurement, OpResult


@pytest.mark.parametrize(
    ("targets", "per_job", "own"),
    [
        (2, 1, True),
        (4, 1, True),
        (4, 4, False),
        (2, 2, False),
        (1, 1, False),
        (4, None, False),
        (None, 1, False),
    ],
)
def test_jobs_have_targets_of_their_own(
    targets: int | None, per_job: int | None, own: bool
) -> None:
    conditions = Conditions(
        read_fraction=1.0,
        access="random",
        block_size=4096,
        jobs=4,
        iodepth=8,
        targets=targets,
        targets_per_job=per_job,
    )
    result = OpResult(count=10_000, bytes=0, iops=1000.0, bytes_per_s=4096e3)
    capture = Capture(
        Path("a.json"), "fio-json", None, (Measurement("a", conditions, {"read": result}),), rows=1
    )
    ((point,), _) = points_of(Captures((capture,)))
    assert point.own_targets is own
    assert point.targets == (targets or 1)
