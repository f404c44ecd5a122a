"""Valid networks with one number changed: rejected by `Network.check`, or safe to run."""

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.errors import DeadlockError, NetworkError
from nvmesim.network.network import Network
from tests.engines.strategies import numpy_roll, random_network

EXTREMES = (-(1 << 62), -2, -1, 0, 1, 2, 3, 5, 17, 1000, 1 << 20, 1 << 33, 1 << 62)


def array_names(net: Network) -> Iterator[str]:
    """Arrays of *net* that have an entry."""
    for item in fields(net):
        value = getattr(net, item.name)
        if isinstance(value, np.ndarray) and value.size:
            yield item.name


def changed(net: Network, name: str, at: int, value: int) -> Network:
    """*net* with the entry *at* of the flattened array *name* replaced."""
    array = getattr(net, name).copy()
    array.reshape(-1)[at] = value
    return replace(net, **{name: array})


def survive(seeds: range) -> tuple[int, int]:
    """Run what `check` lets pass; return how many it rejected and how many ran."""
    rejected = ran = 0
    for seed in seeds:
        net, roll = random_network(seed), numpy_roll(seed)
        names = [name for name in array_names(net) if name != "dist"] + ["ops"] * 20
        for name in names:
            size = getattr(net, name).size
            value = EXTREMES[roll(0, len(EXTREMES) - 1)]
            mutant = changed(net, name, roll(0, size - 1), value)
            try:
                engine = CompiledEngine(mutant, record=True)
                ran += 1
            except NetworkError:
                rejected += 1
                continue
            try:
                engine.advance(40, 200)
            except DeadlockError:
                continue
            except Exception as error:
                raise AssertionError(f"network {seed}, {name} = {value}: {error!r}") from error
    return rejected, ran
