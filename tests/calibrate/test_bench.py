"""The bench is lowered once for all depths: its network is the one that each depth would have."""

from dataclasses import fields, replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import Bench, BenchHost, _built
from nvmesim.calibrate.points import Point
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import get, names
from tests.calibrate.bench import drive

SHALLOW = Point("", 0.7, True, 4096, 4, 1, 1e5, None)


@pytest.mark.parametrize("stack", names("stack"))
@pytest.mark.parametrize("depth", [7, 256])
def test_a_deeper_network_is_the_one_of_that_depth(stack: str, depth: int) -> None:
    """256 x 4 take all 1,024 tags, and no more."""
    host = BenchHost(get("stack", stack), 2.4, parse_link("pcie4 x4"))
    bench = Bench(drive(), host)
    for point in (SHALLOW, replace(SHALLOW, targets=2, own_targets=True)):
        bench._prepared(replace(point, iodepth=3))
        deep = replace(point, iodepth=depth)
        made, own = bench._prepared(deep), _built(drive(), host, deep)
        for item in fields(own.lowered.network):
            a, b = (getattr(r.lowered.network, item.name) for r in (made, own))
            assert np.array_equal(a, b) if isinstance(b, np.ndarray) else a == b, item.name


@pytest.mark.parametrize("where", ["itself", "beside"])
def test_more_than_the_drive_can_do_is_offered(where: str) -> None:
    """What is outstanding stands at its limit: the backlog must not grow for ever."""
    host = BenchHost(get("stack", "linux-io_uring"), 2.4, parse_link("pcie4 x4"))
    offered = replace(SHALLOW, rate=1e9, most_outstanding=32)
    point = offered
    if where == "beside":
        point = replace(SHALLOW, rate=1000.0, arrivals="paced", beside=offered)
    bench = Bench(drive(), host)
    found = bench.measure(point, requests=2_000, seed=1)
    closed = bench.measure(replace(SHALLOW, iodepth=8), requests=2_000, seed=1)
    if where == "itself":
        assert found.iops == closed.iops
    else:
        assert found.iops == pytest.approx(1000, rel=0.05)
        assert found.mean_s > 0.5 * closed.mean_s
