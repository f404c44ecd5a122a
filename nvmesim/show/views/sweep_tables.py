"""A finished sweep: its axes, a grid or the best points, what cannot be built; and its page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from nvmesim.show.blocks import Block, Bullets, Cell, Charts, Line, Section, Table, Warnings, table
from nvmesim.show.page import document
from nvmesim.show.words import NOTHING_FULL, about, kiops, percent, plural
from nvmesim.study.designs import heading, short_keys, value_words

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS: Final = 24
MOST_COLUMNS: Final = 8
WIDE: Final = 5
"""Columns of a grid whose cells have room for their intervals; wider ones have a second grid."""
BEST: Final = 8
SHOWN_VALUES: Final = 8
PAGE_ROWS: Final = 400
"""Points in the page's table; the file that the sweep writes has all."""
MOST_LINES: Final = 6
"""Values of the second key that can be kept apart as lines."""
FALL: Final = 0.02
"""Loss of IOPS from which on a sweep of drives says why more bring less."""
MORE_MEMBERS: Final = (
    "more drives bring less: a RAID thread looks at each member of a row, so that a row costs it "
    "more (group_thread_cnt gives it workers)"
)
FIGURES: Final = ("IOPS", "95 % within", "p99 [us]", "CPU", "<limited by")

Row = dict[str, Any]


def sweep_blocks(frame: pl.DataFrame, keys: Sequence[str], *, asked: str = "") -> list[Block]:
    """Axes, then a table (one key), a grid of IOPS (two) or the best points (more)."""
    axes = {key: frame[key].unique(maintain_order=True).to_list() for key in keys}
    sizes = sorted(len(values) for values in axes.values())
    rows = frame.to_dicts()
    parts: list[Block] = [Line(_load_line(asked, keys), "soft")] if asked else []
    if len(keys) == 1 and sizes[0] <= MOST_ROWS:
        parts.append(points(rows, keys))
    elif len(keys) == 2 and sizes[0] <= MOST_COLUMNS and sizes[1] <= MOST_ROWS:
        parts += _grids("IOPS", rows, axes, _rate, _rate_span)
        if frame["lat_p99_us"].is_not_null().any():
            parts += _grids("p99 [us]", rows, axes, _p99, _p99_span)
    else:
        parts.append(Bullets(tuple(f"{key}: {_values(values)}" for key, values in axes.items())))
        best = frame.filter(frame["iops"].is_not_null()).sort("iops", descending=True)[:BEST]
        if len(best):
            title = f"best {len(best)} of {plural(len(frame), 'point')} by IOPS"
            parts += [Line(title, "soft"), points(best.to_dicts(), keys)]
    return [*parts, Warnings(tuple(impossible(frame, keys)))]


def _load_line(asked: str, keys: Sequence[str]) -> str:
    changed = any(key.startswith("workload") for key in keys)
    return f"asked, apart from what is swept: {asked}" if changed else f"asked: {asked}"


def sweep_page(
    frame: pl.DataFrame, keys: Sequence[str], *, title: str, asked: str = "",
    changes: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return one HTML page that loads nothing: pictures and points of a finished sweep."""
    over = "; ".join(f"{k}: {_values(frame[k].unique(maintain_order=True).to_list())}"
                     for k in keys)  # fmt: skip
    drawn = pictures(frame, keys)
    left = len(frame) - PAGE_ROWS
    found = points(frame.head(PAGE_ROWS).to_dicts(), keys)
    more = [Line(f"{left:,} more are in the file.")] if left > 0 else []
    lines = [_load_line(asked, keys)] if asked else []
    lines += [f"{plural(len(frame), 'point')} over {over}", *(f"with {c}" for c in changes)]
    return document(f"{title} · nvmesim sweep", [
        Line(title, "title"), *(Line(line, "soft") for line in lines),
        Warnings(tuple(impossible(frame, keys))),
        *([Section("Pictures", (Charts(drawn),))] if drawn else []),
        Section("Points", (found, *more)),
    ])  # fmt: skip


def pictures(frame: pl.DataFrame, keys: Sequence[str]) -> dict[str, tuple[Any, str]]:
    """Return title -> (chart, caption): IOPS and p99 against a key of numbers, and what is busy."""
    import polars as pl

    from nvmesim.show.charts.sweep import heat, load_curve, scaling

    known = frame.filter(pl.col("error").is_null())
    counts = {k: n for k in keys if (n := known[k].n_unique()) > 1}
    numbers = [k for k in counts if known[k].dtype.is_numeric()]
    if not numbers or len(counts) > 2:
        return {}
    over = max(numbers, key=lambda k: counts[k])
    by = next((k for k in counts if k != over), None)
    if by is not None and counts[by] > MOST_LINES:
        return {}
    short = {k: heading(s) for k, s in zip(keys, short_keys(keys), strict=True)}
    shown = known
    if by is not None:
        shown = known.with_columns(pl.col(by).cast(pl.String)).rename({by: short[by]})
        by = short[by]
    lines = f", a line for each value of {by}" if by else ""
    ideal = over.endswith("count")
    text = f"Simulated; bands: 95 % intervals{lines}."
    text += " Dotted: as many times the first point." * ideal
    drawn = scaling(shown, over, by=by, title=short[over], ideal=ideal)
    out: dict[str, tuple[Any, str]] = {f"IOPS against {short[over]}": (drawn, text)}
    if known["lat_p99_us"].is_not_null().sum() > 1:
        text = f"Each point another value of {short[over]}{lines}; "
        text += "dashed: the bound of the fullest part."
        out["p99 against IOPS"] = (load_curve(shown, by=by), text)
    if by is None and len(known) <= MOST_LINES * 3:
        text = "Share of the time that the fullest part of each kind works, in percent."
        out["Where the load is"] = (heat(known, over, title=short[over]), text)
    return out


def _values(values: Sequence[Any]) -> str:
    is_numbers = all(isinstance(v, int | float) for v in values)
    texts = [text_of(v) for v in (sorted(values) if is_numbers else values)]
    if len(texts) <= SHOWN_VALUES:
        return ", ".join(texts)
    return f"{texts[0]} … {texts[-1]} ({len(texts):,} values)"


def text_of(value: Any) -> str:
    """Return a value of a key as text."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def points(rows: Sequence[Row], keys: Sequence[str]) -> Table:
    """A row for each point: its figures, or why it cannot be built."""
    has_errors = any(row["error"] for row in rows)
    cells = []
    for row in rows:
        figures: list[str | Cell] = ["-", "", "-", "-", "cannot be built"]
        if row["error"] is None:
            ends = _p99_span(row)
            figures = [
                _rate(row), _rate_span(row), Cell(_p99(row), ends and f"({ends})"),
                percent(row["cpu_logical"]), NOTHING_FULL.get(row["verdict"]) or row["fullest"],
            ]  # fmt: skip
        why = [row["error"] or ""] if has_errors else []
        cells.append([*(text_of(row[k]) for k in keys), *figures, *why])
    heads = [f"<{heading(key)}" for key in short_keys(keys)]
    heads += [*FIGURES, *(["<why not"] if has_errors else [])]
    return table("Points", heads, cells, notes=[MORE_MEMBERS] * _falls(rows, keys))


def _falls(rows: Sequence[Row], keys: Sequence[str]) -> bool:
    """True if more drives bring less where a RAID thread is full."""
    if len(keys) != 1 or not keys[0].endswith("count"):
        return False
    full = [r for r in rows if r["verdict"] == "raid-engine"]
    counted = sorted(full, key=lambda r: r[keys[0]])
    return len(counted) > 1 and counted[-1]["iops"] < (1 - FALL) * counted[0]["iops"]


def _rate(row: Row) -> str:
    """IOPS; ~ where the precision was not reached."""
    if row["error"] is not None:
        return "-"
    return ("" if row["converged"] else "~") + kiops(row["iops"])


def _rate_span(row: Row) -> str:
    ends = (row["iops_low"], row["iops_high"])
    return "" if None in ends else " to ".join(map(about, ends))


def _p99(row: Row) -> str:
    p99 = row["lat_p99_us"]
    return "-" if p99 is None else f"{p99:,.0f}"


def _p99_span(row: Row) -> str:
    ends = (row["lat_p99_low_us"], row["lat_p99_high_us"])
    return "" if None in ends else " to ".join(f"{end:,.0f}" for end in ends)


def _grids(
    figure: str, rows: Sequence[Row], axes: dict[str, list[Any]], cell: Callable[[Row], str],
    within: Callable[[Row], str],
) -> list[Table]:  # fmt: skip
    """A figure with its 95 % intervals: in its cells, or beside it where there are many."""
    if min(map(len, axes.values())) <= WIDE:
        return [_grid(figure, rows, axes, lambda row: Cell(cell(row), within(row)))]
    title = f"95 % of {figure} within"
    return [_grid(figure, rows, axes, cell), _grid(title, rows, axes, within)]


def _grid(
    figure: str, rows: Sequence[Row], axes: dict[str, list[Any]], cell: Callable[[Row], str | Cell]
) -> Table:
    """The key with fewer values across, the other down; most IOPS are named below."""
    across, down = sorted(axes, key=lambda key: len(axes[key]))
    cells = {(row[down], row[across]): row for row in rows}
    best = max((r for r in rows if r["error"] is None), key=lambda r: r["iops"], default=None)
    short = dict(zip(axes, short_keys(list(axes)), strict=True))
    lines = [
        [text_of(value), *(cell(cells[value, other]) for other in axes[across])]
        for value in axes[down]
    ]
    over = [value_words(short[across], text_of(value)) for value in axes[across]]
    heads = [heading(short[down]), *over]
    notes = []
    if best is not None:
        where = ", ".join(value_words(short[k], text_of(best[k])) for k in (down, across))
        figure_in = figure.replace(" [us]", " in us")
        notes = [f"{figure_in}; most IOPS: {kiops(best['iops'])} with {where}"]
    return table(figure, heads, lines, notes=notes)


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
        good = set(frame.filter(frame["error"].is_null())[key].to_list())
        # Samples of a range hardly repeat a value: there one that cannot be says nothing of others.
        if len(keys) == 1 or len(set(map(str, values))) < len(values):
            out += [f"{key}={text_of(v)}" for v in dict.fromkeys(values) if v not in good]
    return out
