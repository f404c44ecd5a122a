"""Memory depends on what is outstanding, not on how many requests are simulated."""

import pytest

from nvmesim.network.network import Network
from tests.engines import builder as b
from tests.engines.test_modes import run_python

GROWTH_KIB = 2048
"""Allowed growth of the peak: the allocator's own noise, against 160 MB for a word a request."""

CODE = """
import resource
from tests.engines.test_memory import jbod
from nvmesim.engine.compiled.engine import CompiledEngine
engine = CompiledEngine(jbod())
def peak(requests, batch=50_000):
    for _ in range(requests // batch):
        engine.advance(batch)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak(100_000), peak({}))
"""


def jbod() -> Network:
    """Closed loop of 64 over CPUs, 32 dies and a link, with exponential dies."""
    net = b.NetworkBuilder()
    cpu, link = net.fifo(4), net.fifo()
    dies = net.fifos([1] * 32)
    program = net.program(
        b.visit(cpu, 10**6),
        b.bank(dies, 32, dist=net.exponential(80 * 10**6)),
        b.visit(link, 10**6),
        b.visit(cpu, 10**6),
    )
    net.closed(program, 64)
    return net.build()


@pytest.mark.parametrize(
    "requests", [10_000_000, pytest.param(100_000_000, marks=pytest.mark.slow)]
)
def test_memory_is_flat(requests: int) -> None:
    before, after = map(int, run_python(CODE.format(requests)).split())
    assert after - before < GROWTH_KIB
