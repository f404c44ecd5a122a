"""What a notebook shows: how each answer is drawn, and Polars frames as tables with units."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from nvmesim.show import blocks
from nvmesim.show.words import LIMITS, gigabytes, kiops, percent

if TYPE_CHECKING:
    import polars as pl

_DRAWERS: Final = {
    # (class, form): "module of nvmesim.show:function" that gives charts by title, one, or blocks
    ("Result", "chart"): "charts.result:all_charts",
    ("Result", "html"): "report:fragment",
    ("Result", "text"): "answer:blocks_of",
    ("DriveFit", "chart"): "charts.fit_charts:all_charts",
    ("DriveFit", "html"): "views.fits:fragment",
    ("StackFit", "chart"): "charts.fit_charts:all_charts",
    ("StackFit", "html"): "views.fits:fragment",
    ("Sizing", "chart"): "charts.designs:sizing_charts",
    ("Sizing", "html"): "views.inputs:sizing_blocks",
    ("Best", "chart"): "charts.designs:best_charts",
    ("Best", "html"): "views.designs:best_fragment",
    ("Choice", "chart"): "charts.designs:choice_chart",
    ("Timeline", "chart"): "charts.result:timeline",
}


def drawn(answer: object, form: str, *args: Any, **options: Any) -> Any:
    """Return *answer* as *form* ("chart": all of them, one below the other; "html" or "text")."""
    known = (_DRAWERS.get((kind.__name__, form)) for kind in type(answer).__mro__)
    home = next(filter(None, known), None)
    if home is None:
        raise AttributeError(f"{type(answer).__name__} is not drawn as {form}")
    module, _, name = home.partition(":")
    found = getattr(import_module(f"nvmesim.show.{module}"), name)(answer, *args, **options)
    if form == "chart":
        from nvmesim.show.charts.base import column

        return column(found) if isinstance(found, dict) else found
    return f"<div>{_html(found)}</div>" if form == "html" else _text(found)


def _html(shown: Iterable[blocks.Block]) -> str:
    from nvmesim.show.page import html

    return html(shown)


def _text(shown: Iterable[blocks.Block]) -> str:
    from nvmesim.show.terminal import text

    return text(shown)


MOST_ROWS: Final = 60

Show = Callable[[Any], str]
_COLUMNS: Final[dict[str, tuple[str, Show]]] = {
    # column of a sweep: heading, how a value is shown
    "iops": ("IOPS", kiops), "iops_low": ("IOPS from", kiops), "iops_high": ("IOPS to", kiops),
    "bytes_per_s": ("GB/s", gigabytes), "cpu_logical": ("CPU", percent),
    "cpu_physical": ("CPU, of the cores", percent),
    "cycles_per_io": ("cycles per IO", "{:,.0f}".format),
    "ghz_per_miops": ("GHz per million IOPS", "{:.1f}".format), "share": ("share", percent),
    "verdict": ("<limited by", lambda v: str(LIMITS.get(v, v))),
    "station": ("<fullest station", str), "fullest": ("<fullest part", str),
}  # fmt: skip


class Shown:
    """A table that a notebook shows."""

    def __init__(self, shown: blocks.Table) -> None:
        self.table = shown

    def _repr_html_(self) -> str:
        return _html([self.table])

    def __repr__(self) -> str:
        return _text([self.table])


def table(frame: pl.DataFrame) -> Shown:
    """Return *frame* as a table with units; columns of `ns.sweep` are named as people name them.

    >>> import polars as pl
    >>> print(table(pl.DataFrame({"drives": [2], "iops": [1.2e6], "lat_p99_us": [150.4]})))
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
    return Shown(blocks.table("Table", [heading for heading, _ in known], cells, notes=notes))


def _column(name: str, values: pl.Series) -> tuple[str, Show]:
    """Heading of a column, and how its values are shown."""
    if name in _COLUMNS:
        return _COLUMNS[name]
    if name.startswith("busy_"):
        return f"{name.removeprefix('busy_').replace('_', ' ')} busy", percent
    heading, _, unit = name.rpartition(" ")
    if unit in ("us", "kIOPS", "%"):
        heading = f"{heading} [{unit}]"
    elif name.startswith("lat_"):
        heading = name.removeprefix("lat_").replace("_us", " [us]").replace("_", ".")
    else:
        heading = f"{name} [us]" if name.endswith("_us") else name
    if values.dtype.is_float():  # four digits, or whole thousands
        return heading, lambda v: f"{v:,.0f}" if abs(v) >= 100 else f"{v:.4g}"
    return (heading, "{:,}".format) if values.dtype.is_integer() else (f"<{heading}", str)
