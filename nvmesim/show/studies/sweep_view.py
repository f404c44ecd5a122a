"""How a finished sweep looks on a terminal: its axes, a grid or the best points, what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nvmesim.show.words import kiops, percent, plural
from nvmesim.study.naming import short_keys

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

MOST_ROWS = 24
MOST_COLUMNS = 10
BEST = 8
SHOWN_VALUES = 8

Row = dict[str, Any]


def sweep_view(frame: pl.DataFrame, keys: Sequence[str], *, grid: bool) -> RenderableType:
    """Axes, then a table (one key), a grid of IOPS (two) or the best points (more, or samples)."""
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import bullets, plain, warnings_view

    axes = {key: list(dict.fromkeys(frame[key].to_list())) for key in keys}
    sizes = sorted(len(values) for values in axes.values())
    parts: list[RenderableType] = [Text()]
    if grid and len(keys) == 1 and sizes[0] <= MOST_ROWS:
        parts.append(_points(frame.to_dicts(), keys))
    elif grid and len(keys) == 2 and sizes[0] <= MOST_COLUMNS and sizes[1] <= MOST_ROWS:
        parts += [plain("IOPS", "dim"), _grid(frame.to_dicts(), axes, _rate)]
        if frame["lat_p99_us"].is_not_null().any():
            parts += [Text(), plain("p99 us", "dim"), _grid(frame.to_dicts(), axes, _p99)]
    else:
        parts += bullets([f"{key}: {_values(values)}" for key, values in axes.items()])
        best = frame.filter(frame["iops"].is_not_null()).sort("iops", descending=True)[:BEST]
        if len(best):
            of = plural(len(frame), "point")
            parts += [Text(), plain(f"best {len(best)} of {of} by IOPS", "dim")]
            parts.append(_points(best.to_dicts(), keys))
    return Group(*parts, *warnings_view(impossible(frame, keys)))


def _values(values: Sequence[Any]) -> str:
    numbers = [v for v in values if isinstance(v, int | float)]
    texts = [text_of(v) for v in (sorted(numbers) if len(numbers) == len(values) else values)]
    if len(texts) <= SHOWN_VALUES:
        return ", ".join(texts)
    return f"{texts[0]} … {texts[-1]} ({len(values):,} values)"


def text_of(value: Any) -> str:
    """Return a value of a key as text.

    >>> text_of(0.30000000000000004), text_of("raid5")
    ('0.3', 'raid5')
    """
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _points(rows: Sequence[Row], keys: Sequence[str]) -> RenderableType:
    from nvmesim.show.terminal import rows_view

    headings = [*short_keys(keys), "IOPS", "p99 us", "CPU", "stopped by"]
    lines = [[*(text_of(row[k]) for k in keys), *figures_of(row)] for row in rows]
    return rows_view(headings, lines, left=len(keys))


def figures_of(row: Row) -> tuple[str, ...]:
    """Return IOPS, p99, CPU and what stops it of a point, as texts."""
    if row["error"] is not None:
        return ("-", "-", "-", "cannot be")
    stop = row["verdict"] if row["verdict"] in ("unstable", "latency-bound") else row["station"]
    return (
        _rate(row), _p99(row), percent(row["cpu_logical"]),
        str(stop),
    )  # fmt: skip


def _rate(row: Row) -> str:
    """IOPS in thousands; ~ where the precision was not reached."""
    if row["error"] is not None:
        return "-"
    return ("" if row["converged"] else "~") + kiops(row["iops"])


def _p99(row: Row) -> str:
    p99 = row["lat_p99_us"]
    return "-" if p99 is None else f"{p99:,.0f}"


def _grid(
    rows: Sequence[Row], axes: dict[str, list[Any]], cell: Callable[[Row], str]
) -> RenderableType:
    """The key with fewer values across, the other down; the point of the most IOPS has a star."""
    from nvmesim.show.terminal import rows_view

    across, down = sorted(axes, key=lambda key: len(axes[key]))
    cells = {(row[down], row[across]): row for row in rows}
    known = [row for row in rows if row["error"] is None]
    best = max(known, key=lambda row: row["iops"], default=None)
    short = dict(zip(axes, short_keys(list(axes)), strict=True))
    headings = [f"{short[down]} \\ {short[across]}", *map(text_of, axes[across])]
    lines = []
    for value in axes[down]:
        found = [cells[value, other] for other in axes[across]]
        lines.append([text_of(value), *(cell(r) + (" *" if r is best else "") for r in found)])
    return rows_view(headings, lines)


def impossible(frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """Lines on points that cannot be: how many, the first reason, and values that never can."""
    failed = frame.filter(frame["error"].is_not_null())
    if not len(failed):
        return []
    lines = [
        f"{len(failed):,} of {plural(len(frame), 'point')} cannot be built; the first: "
        f"{failed['error'][0]}"
    ]
    return lines + [f"{text}: none of its points can be built" for text in never(frame, keys)]


def never(frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """Values ("KEY=VALUE") all of whose points cannot be, among several of their key."""
    out = []
    for key in keys:
        values = frame[key].to_list()
        good = {v for v, e in zip(values, frame["error"].to_list(), strict=True) if e is None}
        wrong = [v for v in dict.fromkeys(values) if v not in good]
        # Samples of a range hardly repeat a value: there one that cannot be says nothing of others.
        listed = len(keys) == 1 or len(set(map(str, values))) < len(values)
        out += [f"{key}={text_of(value)}" for value in wrong if listed]
    return out
