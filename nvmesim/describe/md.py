"""Readers of ``mdadm --detail`` and ``/proc/mdstat``."""

from __future__ import annotations

import re
from typing import Final

from nvmesim.capture.readers.reports.common import binary_size
from nvmesim.capture.text import Source, shown
from nvmesim.describe.facts import Array, Facts, whole_disk
from nvmesim.raid.levels import LEVELS, level_of

_PARITY: Final = {
    0: "left-asymmetric",
    1: "right-asymmetric",
    2: "left-symmetric",
    3: "right-symmetric",
    4: "parity-first",
    5: "parity-last",
}
"""Source: md's algorithm numbers, linux/raid/md_u.h."""
_AGAIN: Final = "run mdadm --detail /dev/md* as root again"


def read_detail(source: Source) -> Facts:
    """Read one or several arrays, their members by role."""
    blocks = re.split(r"^(?=/dev/\S+:$)", source.text().lstrip(), flags=re.M)
    return _facts([_detail(source, block) for block in blocks if block.strip()])


def _facts(arrays: list[Array]) -> Facts:
    return Facts(arrays=arrays, read=[_text(array) for array in arrays])


def _text(array: Array) -> str:
    missing = [str(role) for role, disk in enumerate(array.members) if disk is None]
    parts = (
        f"{array.name}: {array.level} of {len(array.members)}",
        array.layout,
        array.chunk and f"chunk {array.chunk // 1024} KiB",
        missing and f"role {', '.join(missing)} missing",
        array.spares and f"{len(array.spares)} spare",
        array.rebuild and "rebuilding",
    )
    return ", ".join(str(part) for part in parts if part)


def _detail(source: Source, block: str) -> Array:
    name = block.split(":", 1)[0].rsplit("/", 1)[-1]
    fields = {
        key.strip(): value.strip()
        for key, value in re.findall(r"^ +([A-Z][^:\n]*?) : (.*)$", block, re.M)
    }
    if "Raid Level" not in fields or "Raid Devices" not in fields:
        raise source.error(f"is cut: {name} has no level or no number of devices", _AGAIN)
    level = _level(source, name, fields["Raid Level"])
    n_roles = fields["Raid Devices"]
    if not re.fullmatch(r"[1-9]\d{0,3}", n_roles):
        raise source.error(f"{name}: Raid Devices is {shown(n_roles)!r}", _AGAIN)
    members: dict[int, str | None] = {}
    disks: dict[str, list[str]] = {"spare": [], "faulty": [], "replacing": []}
    for role, rest in re.findall(r"^ +(?:\d+|-) +\d+ +\d+ +(\d+|-) +(.+?)$", block, re.M):
        state, _, device = rest.rpartition(" ")
        if not device.startswith("/dev/") or device.endswith("/"):
            state, device = rest, ""
        disk = whole_disk(device)
        kind = "faulty" if "faulty" in state else "spare"
        if role != "-":
            is_there = device and "rebuilding" not in state
            members[int(role)] = disk if is_there else None
            kind = "" if is_there else "replacing"
        if kind and disk:
            disks[kind].append(disk)
    if sorted(members) != list(range(int(n_roles))):
        raise source.error(f"is cut: {name} lists {len(members)} of {n_roles} devices", _AGAIN)
    state, intent = fields.get("State", ""), fields.get("Intent Bitmap", "").lower()
    has_bitmap = bool(intent) or fields.get("Consistency Policy") == "bitmap"
    is_external = bool(intent) and not intent.startswith("internal")
    return Array(
        name=name,
        level=level,
        members=tuple(members[role] for role in range(int(n_roles))),
        layout=_layout(fields.get("Layout", ""), level),
        chunk=binary_size(fields.get("Chunk Size", "")),
        spares=tuple(disks["spare"]),
        faulty=tuple(disks["faulty"]),
        replacing=tuple(disks["replacing"]),
        rebuild="recovering" in state or "resyncing" in state,
        bitmap="external" if is_external else "internal" if has_bitmap else "none",
    )


def _level(source: Source, name: str, level: str) -> str:
    if level not in LEVELS:
        raise source.error(
            f"{name} is {shown(level)!r}, which nvmesim does not model",
            f"it has {', '.join(LEVELS)}; leave it out to describe the drives alone",
        )
    return level


def _layout(text: str, level: str) -> str | None:
    """Return the layout as a scenario names it: ``near=2`` is near2.

    >>> _layout("near=2", "raid10"), _layout("left-symmetric", "raid5"), _layout("", "raid0")
    ('near2', 'left-symmetric', None)
    """
    if not level_of(level).redundant or not level_of(level).has_chunks or not text:
        return None
    copies = re.match(r"(near|far|offset)=(\d+)", text)
    return f"{copies[1]}{copies[2]}" if copies else text.split()[0]


_ARRAY: Final = re.compile(
    r"^(md\S+) : (active|inactive)(?: \((?:auto-)?read-only\))? (?:(\w+) )?(.*)$"
)
_MEMBER: Final = re.compile(r"(\S{1,200}?)\[(\d+)\]((?:\([A-Z]\))*)")


def read_mdstat(source: Source) -> Facts:
    """Read the arrays; the roles of members are not in this file and are supposed."""
    text, again = source.text(), "copy /proc/mdstat again"
    if "unused devices:" not in text:
        raise source.error("is cut: the line 'unused devices' is missing", again)
    facts = Facts()
    for block in re.split(r"^(?=md\S+ : )", text, flags=re.M)[1:]:
        first, *rest = block.split("\n")
        head = _ARRAY.match(first)
        if head is None:
            raise source.error(f"has the line {shown(first)!r}", again)
        if head[2] == "inactive":
            facts.read.append(f"{head[1]} is inactive and left out")
            continue
        if not _MEMBER.search(head[4]) or " blocks" not in "".join(rest[:1]):
            raise source.error(f"is cut: {head[1]} has no members or no size", again)
        level = _level(source, head[1], head[3] or "")
        array, is_certain = _mdstat_array(head[1], level, head[4], block)
        if not is_certain:
            facts.assume(
                f"{array.name}: /proc/mdstat does not say the roles of its members; mdadm "
                "--detail does",
                unless="mdadm --detail",
                array=array.name,
            )
        facts.arrays.append(array)
        facts.read.append(_text(array))
    return facts


def _mdstat_array(name: str, level: str, listed: str, block: str) -> tuple[Array, bool]:
    """Return the array, and whether the roles of its members are certain.

    ``[n]`` is the number of the descriptor: it is the role until a member has been replaced.
    """
    found = _MEMBER.findall(listed)
    devices = [(whole_disk(d), int(n), flags) for d, n, flags in found if not d.endswith("/")]
    shape = block.split("\n")[1]
    up = re.search(r"\[(\d+)/\d+\] \[([U_]+)\]", block)
    roles = up[2] if up else "U" * len(devices)
    members: list[str | None] = [None] * len(roles)
    later = []
    for disk, number, flags in sorted(devices, key=lambda device: device[1]):
        if "(F)" in flags or "(S)" in flags:
            continue
        if number < len(roles) and roles[number] == "U" and members[number] is None:
            members[number] = disk
        else:
            later.append(disk)
    free = [role for role, state in enumerate(roles) if state == "U" and members[role] is None]
    for role, disk in zip(free, later, strict=False):
        members[role] = disk
    chunk = re.search(r"(\d{1,12}[kK]) chunks?", shape)
    if level_of(level).copies == "layout":
        copies = re.search(r"(\d{1,9}) (near|far|offset)-copies", shape)
        layout = f"{copies[2]}{copies[1]}" if copies else None
    else:
        algorithm = re.search(r"algorithm (\d+)", shape)
        layout = _PARITY.get(int(algorithm[1])) if algorithm else None
    array = Array(
        name=name,
        level=level,
        members=tuple(members),
        layout=layout,
        chunk=binary_size(chunk[1]) if chunk else None,
        spares=tuple(disk for disk, _, flags in devices if "(S)" in flags),
        replacing=tuple(later[len(free) :]),
        faulty=tuple(disk for disk, _, flags in devices if "(F)" in flags),
        rebuild=bool(re.search(r"\b(?:recovery|resync) *=", block)),
        bitmap="internal" if re.search(r"^[ \t]+bitmap:", block, re.M) else "none",
    )
    return array, not later
