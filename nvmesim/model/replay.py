"""The arrivals of a captured trace: an open loop that comes when the trace's requests came.

Sizes and operations are the trace's own; addresses are not kept (a hypothetical array has others),
so each request goes to a drawn place of its target. Devices of the trace become targets in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nvmesim.errors import ScenarioError
from nvmesim.warning import Warning

if TYPE_CHECKING:
    import polars as pl

MAX_SIZES = 64
"""Distinct sizes that are kept as they are; the sizes of a trace with more are rounded up to powers
of two of at least 4 KiB."""


@dataclass(frozen=True)
class Replay:
    """Arrivals in order of time."""

    kinds: tuple[tuple[bool, int, float], ...]
    """(write, bytes, share)"""
    kind: npt.NDArray[np.int64]
    """int64[n]: index into kinds"""
    arrival_ps: npt.NDArray[np.int64]
    """int64[n], ascending, from 0"""
    device: npt.NDArray[np.int64]
    """int64[n]: number of the device, in order of appearance"""
    notes: tuple[str, ...] = ()


def read_replay(path: Path, speed: float) -> Replay:
    """Read the arrivals of *path*, *speed* times as fast as they came.

    Raises ScenarioError when the file holds no requests with times, CaptureError when it cannot be
    read.
    """
    import polars as pl  # slow to import, and few runs replay a trace

    from nvmesim.capture.registry import read_capture

    capture = read_capture(path)
    if capture.requests is None:
        raise ScenarioError(
            f"{path.name}: holds results, not requests; replay a block trace, a log of single "
            "requests or an iolog"
        )
    issue = pl.coalesce(
        pl.col("issue_ns"), pl.col("complete_ns") - pl.col("latency_ns"), pl.col("complete_ns")
    )
    frame = (
        capture.requests.select(issue.alias("at"), pl.col("op").cast(pl.String), "bytes", "device")
        .filter(pl.col("at").is_not_null() & (pl.col("bytes") > 0))
        .sort("at", maintain_order=True)
        .collect()
    )
    if frame.is_empty():
        raise ScenarioError(f"{path.name}: no request in it has a time and a size")
    notes = []
    sizes = frame["bytes"]
    if sizes.n_unique() > MAX_SIZES:
        rounded = np.maximum(4096, 2 ** np.ceil(np.log2(sizes.to_numpy())).astype(np.int64))
        frame = frame.with_columns(pl.Series("bytes", rounded))
        text = f"{path.name}: {sizes.n_unique()} sizes are rounded up to powers of two"
        notes.append(Warning("sizes-rounded", text, path.name))
    return _replay(frame, speed, tuple(notes))


def _replay(frame: pl.DataFrame, speed: float, notes: tuple[str, ...]) -> Replay:
    write = (frame["op"] == "write").to_numpy().astype(np.int64)
    size = frame["bytes"].to_numpy().astype(np.int64)
    keys, kind, counts = np.unique(
        np.stack([write, size], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    kinds = tuple(
        (bool(w), int(n), float(count) / len(frame))
        for (w, n), count in zip(keys.tolist(), counts.tolist(), strict=True)
    )
    at = frame["at"].to_numpy().astype(np.int64)
    arrival = ((at - at[0]) * (1000 / speed)).astype(np.int64)
    names = frame["device"].fill_null("").to_numpy()
    _, first, device = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return Replay(
        kinds, kind.reshape(-1).astype(np.int64), arrival, rank[device.reshape(-1)], notes
    )


@dataclass(frozen=True)
class Replayed:
    """A network group that replays a trace."""

    replay: Replay
    first_flow: int
    n_targets: int


def arrival_arrays(
    user_group: Sequence[int], groups: Mapping[int, Replayed]
) -> dict[str, npt.NDArray[np.int64]]:
    """Arrivals of each user, for `Network`: those of its trace in turn, over all that replay it."""
    if not groups:
        return {}
    sharing: dict[int, list[int]] = {}
    for user, group in enumerate(user_group):
        if group in groups:
            sharing.setdefault(id(groups[group].replay), []).append(user)
    times, flows, pointer = [], [], [0]
    for user, group in enumerate(user_group):
        n = 0
        if group in groups:
            of = groups[group]
            users = sharing[id(of.replay)]
            mine = slice(users.index(user), None, len(users))
            place = of.replay.device[mine] % of.n_targets
            times.append(of.replay.arrival_ps[mine])
            flows.append(of.first_flow + place * len(of.replay.kinds) + of.replay.kind[mine])
            n = len(times[-1])
        pointer.append(pointer[-1] + n)
    return {
        "arrival_ps": np.concatenate(times),
        "arrival_flow": np.concatenate(flows),
        "user_arrival_ptr": np.array(pointer, np.int64),
    }
