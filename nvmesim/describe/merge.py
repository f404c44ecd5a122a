"""Several dumps of one server put together; where they contradict each other, an error says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from nvmesim.capture.text import shown
from nvmesim.describe.dumps import DUMPS, Dump
from nvmesim.describe.facts import Array, Disk, Facts, FoundCpu, Nodes, Slot
from nvmesim.errors import InputError

Record = TypeVar("Record", Slot, Disk, Array)


def merged(read: Sequence[tuple[Path, Dump, Facts]]) -> Facts:
    """Return what all dumps say together, the more exact ones first."""
    ordered = sorted(read, key=lambda entry: DUMPS.index(entry[1]))
    every = [facts for _, _, facts in ordered]
    whole = Facts(system=_system(ordered), cpu=_cpu(ordered), nodes=_nodes(every))
    whole.packets = next((facts.packets for facts in every if facts.packets), None)
    detailed = any(dump.tool == "lspci -vv" for _, dump, _ in ordered)
    trees = [facts for _, dump, facts in ordered if dump.tool == "lspci -tv"]
    whole.slots = _union(
        (slot for f in every if not (detailed and f in trees) for slot in f.slots), "address"
    )
    whole.disks = _union((disk for facts in every for disk in facts.disks), "name")
    whole.arrays = _union((array for facts in every for array in facts.arrays), "name")
    for path, dump, facts in read:
        whole.read += [f"{shown(path.name)} ({dump.tool}): {text}" for text in facts.read]
        skip = detailed and facts in trees
        whole.assumed += [] if skip else [t for t in facts.assumed if t not in whole.assumed]
    _drop_answered(whole, read)
    return whole


def _drop_answered(whole: Facts, read: Sequence[tuple[Path, Dump, Facts]]) -> None:
    """Drop the doubts of /proc/mdstat about arrays that mdadm --detail describes."""
    known = {a.name for _, dump, f in read if dump.tool == "mdadm --detail" for a in f.arrays}
    whole.assumed = [
        text
        for text in whole.assumed
        if not ("/proc/mdstat" in text and text.split(":")[0] in known)
    ]


def _system(read: Sequence[tuple[Path, Dump, Facts]]) -> Any:
    named = {facts.system: path for path, _, facts in read if facts.system}
    if len(named) > 1:
        listed = " and ".join(f"{path.name} is from {system}" for system, path in named.items())
        raise InputError(f"{listed}; give the dumps of one server")
    return next(iter(named), None)


def _cpu(read: Sequence[tuple[Path, Dump, Facts]]) -> FoundCpu | None:
    """Return the CPU of the first dump that names one; all must count alike."""
    found = [(path, facts.cpu) for path, _, facts in read if facts.cpu]
    if not found:
        return None
    first_path, first = found[0]
    for path, cpu in found[1:]:
        if (cpu.sockets, cpu.cores) != (first.sockets, first.cores):
            raise InputError(
                f"{first_path.name} says {first.sockets} sockets of {first.cores} cores, "
                f"{path.name} {cpu.sockets} of {cpu.cores}; give the dumps of one server"
            )
    best = next((cpu for _, cpu in found if cpu.model), first)
    return replace(
        best,
        base_ghz=next((c.base_ghz for _, c in found if c.base_ghz), None),
        bogomips=next((c.bogomips for _, c in found if c.bogomips), None),
        guest=any(c.guest for _, c in found),
    )


def _nodes(every: Iterable[Facts]) -> Nodes | None:
    memory: dict[int, int | None] = {}
    socket_of: dict[int, int | None] = {}
    for nodes in (facts.nodes for facts in every if facts.nodes):
        for node, size in nodes.memory.items():
            memory[node] = memory.get(node) if size is None else size
        for node, socket in nodes.socket_of.items():
            socket_of[node] = socket_of.get(node) if socket is None else socket
    return Nodes(memory, socket_of) if memory else None


def _union(records: Iterable[Record], key: str) -> list[Record]:
    """Return one record for each *key*; what an earlier one leaves open a later one fills."""
    found: dict[str, Record] = {}
    for record in records:
        name = getattr(record, key)
        found[name] = _filled(found[name], record) if name in found else record
    return list(found.values())


def _filled(first: Record, second: Record) -> Record:
    missing = {
        f.name: getattr(second, f.name)
        for f in fields(first)
        if getattr(first, f.name) in (None, "", ())
    }
    filled: Record = replace(first, **missing)
    return filled
