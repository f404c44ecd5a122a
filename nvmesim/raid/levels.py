"""RAID levels: one record each, and all that is asked of a level before its plans.

A new level is a record here, its planner in `nvmesim.raid.planner`, and a line in
`nvmesim.raid.planner.plan.PLANNERS`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from nvmesim.errors import GeometryError, nearest

PARITY_LAYOUTS: Final = {
    # name: mdadm's short one
    "left-symmetric": "ls",
    "left-asymmetric": "la",
    "right-symmetric": "rs",
    "right-asymmetric": "ra",
    "parity-first": "pf",
    "parity-last": "pl",
}
ZONE_LAYOUTS: Final = {"original": "1", "alternate": "2"}
"""How md counts the chunks of a raid0 behind its shorter members. Source: md(4)."""
_COPY_LAYOUT: Final = re.compile(r"^(near|far|offset|n|f|o)[-_ ]?(\d{1,4})$")
_COPY_NAMES: Final = {"n": "near", "f": "far", "o": "offset"}


@dataclass(frozen=True)
class Level:
    """Properties of a RAID level."""

    name: str
    """As in a scenario: "raid5"."""
    number: int
    """As md has it; one of its own for a level that md has not."""
    least: int
    """Fewest members. Source: mdadm(8)."""
    planner: str
    """Key of `nvmesim.raid.planner.plan.PLANNERS`."""
    parity: int = 0
    """Blocks of parity in a stripe."""
    copies: Literal["one", "all", "layout"] = "one"
    """How often each block is there: once, on every member, or as the layout says."""
    layouts: Mapping[str, str] = field(default_factory=dict)
    """Name of a layout -> its short name; those of copies are open-ended and not listed."""
    default_layout: str = ""
    has_chunks: bool = True
    """False where each member is a whole copy."""
    any_chunk: bool = False
    """Any multiple of 4 KiB will do for a chunk, it need not be a power of two."""
    write_mostly: bool = False
    """Members can be kept from serving reads."""
    records: bool = False
    """A chunk is a record of ZFS: read as a whole, and written as a whole to a new place."""
    turns: int = 1
    """The layout repeats after so many times as many chunks as there are members."""

    @property
    def redundant(self) -> bool:
        """True if an array survives the loss of a member."""
        return self.parity > 0 or self.mirrored

    @property
    def mirrored(self) -> bool:
        """True if it keeps copies."""
        return self.copies != "one"

    @property
    def stripe_cache(self) -> bool:
        """True if requests go through md's stripe cache, in rows of 4 KiB."""
        return self.planner == "parity"

    def survives(self, members: int, copies: int = 1) -> int:
        """Members that may be missing, whichever they are.

        >>> [level_of(n).survives(6, 2) for n in ("raid0", "raid1", "raid6", "raid10")]
        [0, 5, 2, 1]
        """
        if self.copies == "all":
            return members - 1
        return self.parity if not self.mirrored else copies - 1

    def copies_of(self, members: int, layout: str) -> tuple[str, int]:
        """Kind of layout, and the number of copies of each block.

        >>> level_of("raid10").copies_of(6, "far3"), level_of("raid1").copies_of(3, "")
        (('far', 3), ('near', 3))
        """
        if self.copies == "all":
            return "near", members
        if self.copies == "layout":
            kind = layout.rstrip("0123456789")
            return kind, int(layout[len(kind) :])
        return layout, 1

    def layout(self, name: str | None) -> str:
        """Full name of the layout *name*, the default if None; GeometryError if it has none such.

        >>> level_of("raid5").layout(None), level_of("raid10").layout("f2")
        ('left-symmetric', 'far2')
        """
        if not name:
            return self.default_layout
        if self.copies == "layout":
            match = _COPY_LAYOUT.match(name.strip().lower())
            if match is None:
                known = nearest(name, ["near2", "far2", "offset2"])
                raise GeometryError(
                    f"layout is {name!r} for {self.name}; {known} (any number of copies)"
                )
            kind, copies = match.groups()
            if int(copies) < 1:
                raise GeometryError(
                    f"layout is {name!r}; {self.name} keeps at least 1 copy, 'near2' keeps 2"
                )
            return f"{_COPY_NAMES.get(kind, kind)}{int(copies)}"
        text = name.strip().lower().replace("_", "-")
        for full, short in self.layouts.items():
            if text in (full, short):
                return full
        if not self.layouts:
            raise GeometryError(f"layout is {name!r}; {self.name} has no layouts, leave it out")
        raise GeometryError(f"layout is {name!r} for {self.name}; {nearest(name, self.layouts)}")


LEVELS: Final = {
    level.name: level
    for level in (
        Level(
            "raid0", 0, 1, "pieces",  # mdadm builds one of one member with --force
            layouts=ZONE_LAYOUTS, default_layout="original", any_chunk=True,
        ),
        Level("raid1", 1, 2, "pieces", copies="all", has_chunks=False, write_mostly=True),
        Level("raid10", 10, 2, "pieces", copies="layout", default_layout="near2"),
        Level(
            "raid5", 5, 3, "parity", parity=1,
            layouts=PARITY_LAYOUTS, default_layout="left-symmetric",
        ),
        Level(
            "raid6", 6, 4, "parity", parity=2,
            layouts=PARITY_LAYOUTS, default_layout="left-symmetric",
        ),
        Level(
            "zfs-mirror", 100, 2, "records", copies="layout", default_layout="near2", records=True
        ),
        *(
            Level(f"raidz{n}", 100 + n, n + 1, "records", parity=n, records=True, turns=2)
            for n in (1, 2, 3)
        ),
    )
}  # fmt: skip


MD_LEVELS: Final = tuple(name for name, level in LEVELS.items() if not level.records)
"""Levels that keep each block at its place: those of Linux md, and of most controllers."""
POOL_LEVELS: Final = tuple(name for name, level in LEVELS.items() if level.records)
"""Levels of ZFS."""
CHOICES: Final = ("none", *LEVELS)
"""What a person chooses from, "none" for drives by themselves."""


def level_of(level: int | str) -> Level:
    """Return the record of *level*: ``5``, ``"5"`` or ``"raid5"``; GeometryError names the nearest.

    >>> level_of(6).name, level_of("raid10").number
    ('raid6', 10)
    """
    text = str(level).strip().lower()
    number = text.removeprefix("raid").removeprefix("-")
    for record in LEVELS.values():
        if text == record.name or number == str(record.number):
            return record
    raise GeometryError(f"level is {level!r}; {nearest(str(level), LEVELS)}")
