"""Polars frames as tables: units in the headings, no more digits than are worth reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nvmesim.show.blocks import Table, table
from nvmesim.show.page import html
from nvmesim.show.words import gigabytes, kiops, percent

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS: Final = 60

Show = Callable[[Any], str]
_COLUMNS: Final[dict[str, tuple[str, Show]]] = {
    # column of a sweep: heading, how a value is shown
    "iops": ("IOPS", kiops), "iops_low": ("IOPS from", kiops), "iops_high": ("IOPS to", kiops),
    "bytes_per_s": ("GB/s", gigabytes), "cpu_logical": ("CPU", percent),
    "cpu_physical": ("CPU, of the cores", percent),
    "cycles_per_io": ("cycles per IO", "{:,.0f}".format),
    "ghz_per_miops": ("GHz per million IOPS", "{:.1f}".format), "share": ("share", percent),
    "verdict": ("<limited by", str), "station": ("<station", str),
}  # fmt: skip


class Shown:
    """A table that a notebook shows."""

    def __init__(self, shown: Table) -> None:
        self.table = shown

    def _repr_html_(self) -> str:
        return str(html([self.table]))

    def __repr__(self) -> str:
        """Return the table as text."""
        from nvmesim.show.terminal import text

        return text([self.table])


def table_of(frame: pl.DataFrame) -> Shown:
    """Return *frame* as a table with units; columns of `ns.sweep` are named as people name them.

    >>> import polars as pl
    >>> print(table_of(pl.DataFrame({"drives": [2], "iops": [1.2e6], "lat_p99_us": [150.4]})))
    drives   IOPS   p99 us
    2        1.2M      150
    """
    known = [_column(name, frame[name]) for name in frame.columns]
    cells = [
        ["-" if value is None else show(value) for value, (_, show) in zip(row, known, strict=True)]
        for row in frame.head(MOST_ROWS).rows()
    ]
    left = len(frame) - MOST_ROWS
    notes = [f"{left:,} rows more"] if left > 0 else []
    return Shown(table("Table", [heading for heading, _ in known], cells, notes=notes))


def _column(name: str, values: pl.Series) -> tuple[str, Show]:
    """Heading of a column, and how its values are shown."""
    if name in _COLUMNS:
        return _COLUMNS[name]
    if name.startswith("busy_"):
        return f"{name.removeprefix('busy_').replace('_', ' ')} busy", percent
    words = name.removeprefix("lat_").replace("_us", "").replace("_", ".") if (
        name.startswith("lat_")
    ) else name  # fmt: skip
    heading = f"{words} [us]" if name.endswith("_us") else words
    if name.endswith((" us", " kIOPS", " %")):
        heading = f"{name.rpartition(' ')[0]} [{name.rpartition(' ')[2]}]"
    if values.dtype.is_float():
        return heading, _digits
    return (heading, "{:,}".format) if values.dtype.is_integer() else (f"<{heading}", str)


def _digits(value: float) -> str:
    """Four digits, or whole thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
