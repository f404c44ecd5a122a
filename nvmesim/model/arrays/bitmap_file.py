"""An external bitmap of md: a page of a file that is written before a region gets dirty.

All writes that wait when a page's write begins are noted by it, so the file is a server that works
in rounds. Where the file is, md does not care: its time is a number of the engine. Source: Linux
drivers/md/md-bitmap.c, md_bitmap_unplug and write_file_page.
"""

from __future__ import annotations

from typing import Final

from nvmesim.network.builder import Batches, Builder, const, op
from nvmesim.network.network import Kind, Op
from nvmesim.raid.arrays import PlanTable, with_rare_phase
from nvmesim.raid.planner.plan import SECTOR
from nvmesim.scenario.resolved import Volume

PAGE_WRITE: Final = (((0,), True, 0, SECTOR, 1),)
"""The phase in which it is written; its child is not a member's."""
MOST: Final = 1 << 20
"""Writes that one page's write notes at most: no limit."""


class BitmapFile:
    """The file of one volume's bitmap."""

    def __init__(self, b: Builder, volume: Volume) -> None:
        self._b = b
        self._volume = volume
        self._program = -1

    @property
    def is_written(self) -> bool:
        """True if the volume has such a file, and writing it takes time."""
        return self._volume.bitmap == "external" and self._volume.engine.bitmap_file.value >= 1

    def noted(self, table: PlanTable, *, sequential: bool, region: int) -> PlanTable:
        """*table* with the page's write before the first write to each *region* of the volume."""
        share = table.request_bytes / region if sequential else self._volume.first_dirty
        return with_rare_phase(table, PAGE_WRITE, min(share, 1.0))

    def program(self) -> int:
        """First operation of a page's write."""
        if self._program < 0:
            name = f"{self._volume.name} bitmap file"
            page = Batches(MOST, round(self._volume.engine.bitmap_file.value))
            station = self._b.station(name, Kind.ROUNDS, own=page)
            self._b.report(name, "raid-engine", station, resource="bitmap-file")
            self._program = self._b.program([const(station, 1), op(Op.END)])
        return self._program
