"""What a change of the kernel must not survive: equality with SimPy and the laws, JIT off, quickly.

Not collected by name: `tests.mutation` runs it.
"""

from __future__ import annotations

import pytest

from tests.engines.test_equality import compare_seeds
from tests.engines.test_laws import test_stations as stations_of


@pytest.mark.parametrize("block", range(6))
def test_engines_agree(block):
    compare_seeds(range(20 * block, 20 * block + 20))


def test_laws_hold():
    for seed in range(1000, 1006):
        stations_of(seed)
