"""Several dumps of one server put together; where they contradict each other, an error says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from nvmesim.capture.text import shown
from nvmesim.describe.facts import Array, Assumption, Disk, Facts, FoundCpu, Nodes, Slot
from nvmesim.describe.sections import DUMPS, ReadDump
from nvmesim.errors import InputError

Record = TypeVar("Record", Slot, Disk, Array)


def merged(read: Sequence[ReadDump]) -> Facts:
    """Return what all dumps say together, the more exact ones first."""
    ordered = sorted(read, key=lambda entry: DUMPS.index(entry.dump))
    every = [entry.facts for entry in ordered]
    whole = Facts(cpu=_cpu(ordered), nodes=_nodes(every))
    whole.packets = next((facts.packets for facts in every if facts.packets), None)
    whole.slots = _union((slot for facts in every for slot in facts.slots), "address")
    whole.disks = _union((disk for facts in every for disk in facts.disks), "name")
    whole.arrays = _union((array for facts in every for array in facts.arrays), "name")
    for entry in read:
        name = f"{shown(entry.path.name)} ({entry.dump.tool})"
        whole.read += [f"{name}: {text}" for text in entry.facts.read]
        for assumption in entry.facts.assumed:
            if assumption not in whole.assumed and not _is_answered(assumption, read):
                whole.assumed.append(assumption)
    return whole


def _is_answered(assumption: Assumption, read: Sequence[ReadDump]) -> bool:
    """True if a dump says what *assumption* supposes."""
    return any(
        entry.dump.tool == assumption.unless
        and (not assumption.array or assumption.array in {a.name for a in entry.facts.arrays})
        for entry in read
    )


def _cpu(read: Sequence[ReadDump]) -> FoundCpu | None:
    """Return the CPU of the first dump that names one; all must count alike."""
    found = [(entry, entry.facts.cpu) for entry in read if entry.facts.cpu]
    if not found:
        return None
    one, first = found[0]
    for entry, cpu in found[1:]:
        if (cpu.sockets, cpu.cores) != (first.sockets, first.cores):
            raise InputError(
                f"{one.path.name} ({one.dump.tool}) says {first.sockets} sockets of {first.cores} "
                f"cores, {entry.path.name} ({entry.dump.tool}) {cpu.sockets} of {cpu.cores}; give "
                "the dumps of one server"
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
