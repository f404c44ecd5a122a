"""The page of a sweep: its pictures, then every point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nvmesim.show import page as html
from nvmesim.show.page import escaped
from nvmesim.show.studies.sweep_view import figures_of, impossible, text_of
from nvmesim.show.words import plural
from nvmesim.study.naming import short_keys

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS: Final = 400
"""Points in the page's table; the file that the sweep writes has all."""
MOST_LINES: Final = 6
"""Values of the second key that can be kept apart as lines."""


def sweep_page(
    frame: pl.DataFrame, keys: Sequence[str], *, title: str, changes: Sequence[str] = ()
) -> str:
    """Return one HTML page that loads nothing: pictures and points of a finished sweep."""
    body = [f"<h1>{escaped(title)}</h1>", f'<p class="soft">{escaped(_asked(frame, keys))}</p>']
    body += [f'<p class="soft">with {escaped(change)}</p>' for change in changes]
    lines = impossible(frame, keys)
    if lines:
        body.append(f'<div class="warnings">{html.listing(lines)}</div>')
    drawn = pictures(frame, keys)
    if drawn:
        body.append(html.section("Pictures", html.figures(drawn)))
    body.append(html.section("Points", _table(frame, keys)))
    return html.document(f"{title} · nvmesim sweep", "\n".join(body))


def _asked(frame: pl.DataFrame, keys: Sequence[str]) -> str:
    notes = [f"{key}: {_listed(list(dict.fromkeys(frame[key].to_list())))}" for key in keys]
    return f"{plural(len(frame), 'point')} over {'; '.join(notes)}"


def _listed(values: Sequence[Any]) -> str:
    texts = [text_of(v) for v in values]
    return ", ".join(texts) if len(texts) <= 12 else f"{texts[0]} … {texts[-1]} ({len(texts)})"


def pictures(frame: pl.DataFrame, keys: Sequence[str]) -> dict[str, tuple[Any, str]]:
    """Return title -> (chart, caption): IOPS and p99 against a key of numbers, and what is busy."""
    import polars as pl

    from nvmesim.show.charts.sweep import heat, load_curve, scaling

    known = frame.filter(pl.col("error").is_null())
    axis = _axis(known, keys)
    if axis is None:
        return {}
    over, by = axis
    short = dict(zip(keys, short_keys(keys), strict=True))
    shown = known.with_columns(pl.col(by).cast(pl.String)) if by else known
    lines = f", a line for each {short[by]}" if by else ""
    ideal = over.endswith("count")
    text = f"Simulated, with 95 % intervals{lines}."
    text += " Dotted: as many times the first point." * ideal
    drawn = scaling(shown, over, by=by, title=short[over], ideal=ideal)
    out: dict[str, tuple[Any, str]] = {f"IOPS against {short[over]}": (drawn, text)}
    if known["lat_p99_us"].is_not_null().sum() > 1:
        text = f"Each point another {short[over]}{lines}; dashed: the bound of the fullest station."
        out["p99 against IOPS"] = (load_curve(shown, by=by), text)
    if by is None and len(known) <= MOST_LINES * 3:
        text = "Share of the time that the fullest station of each kind works, in percent."
        out["Where the load is"] = (heat(known, over, title=short[over]), text)
    return out


def _axis(known: pl.DataFrame, keys: Sequence[str]) -> tuple[str, str | None] | None:
    """The key of numbers with most values, and one other key if it is the only one that varies."""
    varied = [k for k in keys if known[k].n_unique() > 1]
    numbers = [k for k in varied if known[k].dtype.is_numeric()]
    if not numbers or len(varied) > 2:
        return None
    over = max(numbers, key=lambda k: known[k].n_unique())
    others = [k for k in varied if k != over]
    if others and known[others[0]].n_unique() > MOST_LINES:
        return None
    return over, others[0] if others else None


def _table(frame: pl.DataFrame, keys: Sequence[str]) -> str:
    rows = frame.head(MOST_ROWS).to_dicts()
    cells = [
        [escaped(t) for t in (*(text_of(r[k]) for k in keys), *figures_of(r), r["error"] or "")]
        for r in rows
    ]
    headings = (*short_keys(keys), "IOPS", "p99, µs", "CPU", "stopped by", "why not")
    last = len(headings) - 1
    if not any(r["error"] for r in rows):
        cells, headings = [c[:-1] for c in cells], headings[:-1]
        last -= 1
    table = html.table(
        headings,
        cells,
        left=(*range(len(keys)), *range(4 + len(keys) - 1, last + 1)),
        name="Points",
    )
    more = len(frame) - len(rows)
    return table + (f'<p class="soft">{more:,} more are in the file.</p>' if more > 0 else "")
