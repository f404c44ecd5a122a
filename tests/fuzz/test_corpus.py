"""What once fell stays mended: every file of ``tests/corpus`` is read or refused in one line."""

import random
import time

import pytest

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import CORPUS, TARGETS, Target

SLOWEST_S = 5.0
KEPT = [(target, path) for target in TARGETS for path in sorted((CORPUS / target.name).glob("*"))]


@pytest.mark.parametrize(("target", "path"), KEPT, ids=lambda item: getattr(item, "name", ""))
def test_kept(target: Target, path) -> None:
    start = time.process_time()
    target.run(path.read_bytes())
    assert time.process_time() - start < SLOWEST_S


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_some_new_ones(target: Target) -> None:
    """A short run, the same each time; ``make fuzz`` runs a million."""
    rng = random.Random(20)
    seeds = target.seeds()
    was_read = [target.run(mutated(rng, seeds)) for _ in range(100)]
    # A mutator that only makes rubbish, or a reader that refuses all, would test nothing.
    assert any(was_read)
