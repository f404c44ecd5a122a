"""Readers of ``mdadm --detail`` and ``/proc/mdstat``."""

from __future__ import annotations

import re
from typing import Final, Literal

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
Bitmap = Literal["none", "internal", "external"]


def read_detail(source: Source) -> Facts:
    """Read one or several arrays, their members by role."""
    blocks = re.split(r"^(?=/dev/\S+:$)", source.text().lstrip(), flags=re.M)
    arrays = [_detail(source, block) for block in blocks if block.strip()]
    return Facts(arrays=arrays, read=[array_text(array) for array in arrays])


def _detail(source: Source, block: str) -> Array:
    name = block.split(":", 1)[0].rsplit("/", 1)[-1]
    fields = {
        key.strip(): value.strip()
        for key, value in re.findall(r"^ +([A-Z][^:\n]*?) : (.*)$", block, re.M)
    }
    if "Raid Level" not in fields or "Raid Devices" not in fields:
        raise source.error(f"is cut: {name} has no level or no number of devices", _AGAIN)
    level = _level(source, name, fields["Raid Level"])
    roles = fields["Raid Devices"]
    if not re.fullmatch(r"[1-9]\d{0,3}", roles):
        raise source.error(f"{name}: Raid Devices is {shown(roles)!r}", _AGAIN)
    members, spares, faulty, replacing = _table(source, name, block, int(roles))
    state = fields.get("State", "")
    return Array(
        name=name,
        level=level,
        members=members,
        layout=_layout(fields.get("Layout", ""), level),
        chunk=binary_size(fields.get("Chunk Size", "")),
        spares=spares,
        faulty=faulty,
        replacing=replacing,
        rebuild="recovering" in state or "resyncing" in state,
        bitmap=_bitmap(fields),
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
    return f"{copies.group(1)}{copies.group(2)}" if copies else text.split()[0]


def _bitmap(fields: dict[str, str]) -> Bitmap:
    stated = fields.get("Intent Bitmap", "")
    if stated:
        return "internal" if stated.lower().startswith("internal") else "external"
    return "internal" if fields.get("Consistency Policy") == "bitmap" else "none"


def _table(
    source: Source, name: str, block: str, n_roles: int
) -> tuple[tuple[str | None, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return (members by role, spares, faulty, being rebuilt) from the table of devices."""
    rows = re.findall(r"^ +(?:\d+|-) +\d+ +\d+ +(\d+|-) +(.+?)$", block, re.M)
    members: dict[int, str | None] = {}
    spares: list[str] = []
    faulty: list[str] = []
    replacing: list[str] = []
    for role, rest in rows:
        state, _, device = rest.rpartition(" ")
        if not device.startswith("/dev/") or device.endswith("/"):
            state, device = rest, ""
        disk = whole_disk(device)
        if role == "-":
            found = faulty if "faulty" in state else spares
            found += [disk] if disk else []
        elif "rebuilding" in state or not device:
            members[int(role)] = None
            replacing += [disk] if device else []
        else:
            members[int(role)] = disk
    if sorted(members) != list(range(n_roles)):
        raise source.error(f"is cut: {name} lists {len(members)} of {n_roles} devices", _AGAIN)
    ordered = tuple(members[role] for role in range(n_roles))
    return ordered, tuple(spares), tuple(faulty), tuple(replacing)


def array_text(array: Array) -> str:
    """Say what *array* is."""
    missing = [str(role) for role, disk in enumerate(array.members) if disk is None]
    parts = [f"{array.name}: {array.level} of {len(array.members)}"]
    parts += [array.layout] if array.layout else []
    parts += [f"chunk {array.chunk // 1024} KiB"] if array.chunk else []
    parts += [f"role {', '.join(missing)} missing"] if missing else []
    parts += [f"{len(array.spares)} spare"] if array.spares else []
    parts += ["rebuilding"] if array.rebuild else []
    return ", ".join(parts)


_ARRAY: Final = re.compile(
    r"^(md\S+) : (active|inactive)(?: \((?:auto-)?read-only\))? (?:(\w+) )?(.*)$"
)
_MEMBER: Final = re.compile(r"(\S{1,200}?)\[(\d+)\]((?:\([A-Z]\))*)")


def read_mdstat(source: Source) -> Facts:
    """Read the arrays; the roles of members are not in this file and are supposed."""
    text = source.text()
    if "unused devices:" not in text:
        raise source.error(
            "is cut: the line 'unused devices' is missing", "copy /proc/mdstat again"
        )
    facts = Facts()
    for block in re.split(r"^(?=md\S+ : )", text, flags=re.M)[1:]:
        array = _mdstat_array(source, block, facts)
        if array is not None:
            facts.arrays.append(array)
            facts.read.append(array_text(array))
    return facts


def _mdstat_array(source: Source, block: str, facts: Facts) -> Array | None:
    lines = block.split("\n")
    head = _ARRAY.match(lines[0])
    if head is None:
        raise source.error(f"has the line {shown(lines[0])!r}", "copy /proc/mdstat again")
    name, state, level, rest = head.groups()
    if state == "inactive":
        facts.read.append(f"{name} is inactive and left out")
        return None
    found = _MEMBER.findall(rest)
    devices = [(whole_disk(d), int(n), flags) for d, n, flags in found if not d.endswith("/")]
    shape = lines[1] if len(lines) > 1 else ""
    if not devices or " blocks" not in shape:
        raise source.error(f"is cut: {name} has no members or no size", "copy /proc/mdstat again")
    level = _level(source, name, level or "")
    up = re.search(r"\[(\d+)/\d+\] \[([U_]+)\]", block)
    roles = up.group(2) if up else "U" * len(devices)
    active = [(disk, n) for disk, n, flags in devices if "(F)" not in flags and "(S)" not in flags]
    members, recovering, certain = _roles(active, roles)
    if not certain:
        facts.assume(
            f"{name}: /proc/mdstat does not say the roles of its members; mdadm --detail does",
            unless="mdadm --detail",
            array=name,
        )
    chunk = re.search(r"(\d{1,12}[kK]) chunks?", shape)
    return Array(
        name=name,
        level=level,
        members=members,
        layout=_mdstat_layout(shape, level),
        chunk=binary_size(chunk.group(1)) if chunk else None,
        spares=tuple(disk for disk, _, flags in devices if "(S)" in flags),
        replacing=tuple(recovering),
        faulty=tuple(disk for disk, _, flags in devices if "(F)" in flags),
        rebuild=bool(re.search(r"\b(?:recovery|resync) *=", block)),
        bitmap="internal" if re.search(r"^[ \t]+bitmap:", block, re.M) else "none",
    )


def _roles(
    active: list[tuple[str, int]], roles: str
) -> tuple[tuple[str | None, ...], list[str], bool]:
    """Return (members, disks beyond the roles that are up, whether roles follow from numbers).

    ``[n]`` is the number of the descriptor: it is the role until a member has been replaced.
    """
    members: list[str | None] = [None] * len(roles)
    later = []
    for disk, number in sorted(active, key=lambda entry: entry[1]):
        if number < len(roles) and roles[number] == "U" and members[number] is None:
            members[number] = disk
        else:
            later.append(disk)
    free = [role for role, up in enumerate(roles) if up == "U" and members[role] is None]
    for role, disk in zip(free, later, strict=False):
        members[role] = disk
    return tuple(members), later[len(free) :], not later


def _mdstat_layout(shape: str, level: str) -> str | None:
    if level_of(level).copies == "layout":
        copies = re.search(r"(\d{1,9}) (near|far|offset)-copies", shape)
        return f"{copies.group(2)}{copies.group(1)}" if copies else None
    number = re.search(r"algorithm (\d+)", shape)
    return _PARITY.get(int(number.group(1))) if number else None
