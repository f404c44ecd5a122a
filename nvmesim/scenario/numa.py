"""Where a load's threads, buffers and interrupts are: found, and checked against the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nvmesim.errors import ScenarioError, nearest
from nvmesim.scenario.resolved import Adapter, Socket, WorkloadGroup
from nvmesim.scenario.schema import WorkloadSpec


def placed(
    group: WorkloadGroup,
    spec: WorkloadSpec,
    sockets: tuple[Socket, ...],
    adapters: tuple[Adapter, ...],
    key: str,
) -> WorkloadGroup:
    """Return *group* with the places that *spec* states; ScenarioError for those not there."""
    if spec.floating is not None and group.socket is not None:
        raise ScenarioError(
            f"{key}.floating is about threads of every socket; these are pinned to socket "
            f"{group.socket}: leave out one of the two"
        )
    if spec.interrupts is not None:
        _there(spec.interrupts, sockets, f"{key}.interrupts")
    buffers, peer = _buffers(spec.buffers, sockets, adapters, key)
    return replace(
        group, floating=spec.floating or "spread", buffers=buffers, peer=peer,
        interrupts=spec.interrupts,
    )  # fmt: skip


def _there(socket: int, sockets: tuple[Socket, ...], key: str) -> None:
    if socket >= len(sockets):
        there = "socket 0 only" if len(sockets) == 1 else f"sockets 0 to {len(sockets) - 1}"
        raise ScenarioError(f"{key} is {socket}; the server has {there}")


def _buffers(
    stated: int | str | None,
    sockets: tuple[Socket, ...],
    adapters: tuple[Adapter, ...],
    key: str,
) -> tuple[int | None, int | None]:
    """(socket, adapter) of the data: at most one of the two."""
    if stated is None:
        return None, None
    if isinstance(stated, str):
        names = [adapter.name for adapter in adapters]
        if stated not in names:
            hint = nearest(stated, names) if names else "the scenario has no adapters"
            raise ScenarioError(
                f"{key}.buffers is {stated!r}, not an adapter; {hint}, or a socket's number"
            )
        return None, names.index(stated)
    _there(stated, sockets, f"{key}.buffers")
    if not sockets[stated].has_memory:
        raise ScenarioError(f"{key}.buffers is {stated}, a socket without memory")
    return stated, None


def check_pool(groups: Sequence[WorkloadGroup], sockets: tuple[Socket, ...]) -> None:
    """Raise ScenarioError if some threads float in one pool where the model has none.

    A pool takes all logical CPUs of equal sockets, so nothing else may be pinned beside it.
    """
    pooled = [g.name for g in groups if g.floating == "pool"]
    others = [g.name for g in groups if g.floating != "pool"]
    if not pooled or len(sockets) == 1:
        return
    if others:
        raise ScenarioError(
            f"workload: {pooled[0]} floats in one pool, {others[0]} does not; "
            "floating = 'pool' is for all groups of a scenario or for none"
        )
    first = sockets[0]
    for socket in sockets[1:]:
        same = socket.cpu.threads_per_core == first.cpu.threads_per_core
        if socket.ghz != first.ghz or not same:
            raise ScenarioError(
                f"workload: {pooled[0]} floats in one pool; sockets 0 and {socket.index} have CPUs "
                "of different speed, so say floating = 'spread', or a socket for each group"
            )
