"""Parts of all charts: data inside, no network, one look, a text for those who do not see them.

A chart shows itself in a notebook as SVG and saves itself as SVG, PNG or HTML; none of these asks a
server for anything.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import altair as alt

from nvmesim.errors import InputError
from nvmesim.files import written
from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.vega import vega_lite_version

WIDTH: Final = 560
LOG_LABELS: Final = "datum.value >= 1 ? format(datum.value, ',') : format(datum.value, '~g')"
PERCENT_LABELS: Final = "format(100 * datum.value, '~g') + ' %'"
LEGEND_COLUMNS: Final = 6
"""Of more entries a legend takes another line."""
PASSED: Final = 0.98
"""A bound belongs to the demands at one load: where the simulated curve passes it, it does not hold
for the others (write buffers fill, reads merge) and is not drawn."""
SUFFIXES: Final = (".svg", ".png", ".html")
PNG_SCALE: Final = 2.0

_GRID: Final = "#dfe2e6"
_LOOK: Final[dict[str, Any]] = {
    "background": "#ffffff",
    "font": "Arial, Helvetica, Liberation Sans, sans-serif",
    "view": {"stroke": None, "continuousWidth": WIDTH, "discreteWidth": WIDTH},
    "axis": {
        "gridColor": _GRID, "domainColor": palette.MUTED, "tickColor": _GRID,
        "titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 12,
    },
    "legend": {"labelFontSize": 12, "titleFontWeight": "normal"},
    "title": {"anchor": "start", "fontSize": 14, "offset": 10},
    "text": {"fontSize": 11},
}  # fmt: skip


class _Offline(alt.TopLevelMixin):
    """Shown and saved with no network."""

    def _repr_mimebundle_(self, *args: Any, **kwds: Any) -> Any:
        """SVG, unless another renderer was chosen (``altair.renderers.enable``)."""
        return _shown(cast("Drawn", self)) or super()._repr_mimebundle_(*args, **kwds)

    def save(self, fp: Any, *args: Any, **kwds: Any) -> None:
        """Write SVG, PNG or HTML by the ending of *fp*; with options of Altair's, Altair does."""
        if args or kwds or not isinstance(fp, str | Path):
            super().save(fp, *args, **kwds)
        else:
            save(cast("Drawn", self), fp)


class Drawing(_Offline, alt.LayerChart):
    """Layers over each other that need no network to be shown or saved."""


class Column(_Offline, alt.VConcatChart):
    """Charts one below the other that need no network to be shown or saved."""


Drawn: TypeAlias = alt.LayerChart | alt.VConcatChart


def layered(*layers: alt.Chart, height: int, says: str = "") -> Drawing:
    """Layers over each other; *says* is what a reader hears instead of the picture."""
    drawn = Drawing(layer=list(layers), height=height)
    if says:
        drawn.description = says
    return drawn


def column(charts: Mapping[str, alt.LayerChart], width: int = WIDTH) -> Column:
    """Title -> chart, one below the other."""
    found = [c.properties(title=title, width=width) for title, c in charts.items()]
    stacked = Column(vconcat=found)
    apart = alt.ScaleResolveMap(color="independent", strokeDash="independent", shape="independent")
    stacked.resolve = alt.Resolve(scale=apart)
    return stacked


def inline(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Data that travel inside the chart."""
    return alt.InlineData(values=[dict(row) for row in rows])


def nothing(words: str) -> Drawing:
    """A chart of no data, which says so."""
    text = alt.Chart(inline([{"text": words}])).mark_text(align="left", color=palette.MUTED)
    return layered(text.encode(alt.Text("text:N"), x=alt.value(0)), height=30, says=words)


def legend(title: str | None = None, *, lines: bool = False) -> alt.Legend:
    """A legend above the chart; of *lines* it shows strokes, so that dashes can be told apart."""
    shared: dict[str, Any] = {"orient": "top", "title": title, "columns": LEGEND_COLUMNS,
                              "symbolOpacity": 1, "labelLimit": 260}  # fmt: skip
    if lines:
        shared |= {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2.5}
    return alt.Legend(**shared)


def rounded(value: float) -> float:
    """Four significant digits: less page, and nobody sees more.

    >>> rounded(123456.7), rounded(0.0123456)
    (123500.0, 0.01235)
    """
    return float(f"{value:.4g}")


def log_ticks(values: Sequence[float]) -> list[float]:
    """Ticks 1, 2, 5, 10, … over the range of *values*, fewer per decade over many decades.

    >>> log_ticks([8.0, 600.0])
    [10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
    >>> log_ticks([121.0, 180.0])
    [130.0, 140.0, 160.0, 180.0]
    """
    known = [v for v in values if v > 0 and math.isfinite(v)]
    if not known:
        return [1.0]
    low, high = min(known), max(known)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps: tuple[float, ...] = (1, 2, 5) if high / low < 10**5 else (1,)
    if high / low < 20:
        steps = (1, 1.5, 2, 3, 4, 5, 7)
    if high / low < 2:
        steps = (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)
    ticks = [float(f"{s}e{d}") for d in decades for s in steps]
    inside = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
    return inside or [float(f"{low:.2g}"), float(f"{high:.2g}")]


# Shown and saved ----------------------------------------------------------------------------------


def styled(drawn: Drawn) -> dict[str, Any]:
    """The Vega-Lite specification of *drawn* in the look of this package."""
    spec: dict[str, Any] = drawn.to_dict(context={})
    spec["config"] = _LOOK | _without_defaults(spec.get("config", {}))
    return spec


def _without_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Configuration of the user: Altair's own theme sets the size of the view and no more."""
    return {k: v for k, v in config.items() if k != "view" or set(v) - {"continuousWidth",
            "continuousHeight"}}  # fmt: skip


def to_svg(drawn: Drawn) -> str:
    """*drawn* as an SVG document, with its words for readers.

    >>> to_svg(nothing("no points"))[:38]
    '<svg role="img" aria-label="no points"'
    """
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(styled(drawn), vl_version=vega_lite_version()))
    text = html.escape(summary.one_line(_words(drawn)), quote=True)
    return svg.replace("<svg", f'<svg role="img" aria-label="{text}"', 1)


def to_png(drawn: Drawn, scale: float = PNG_SCALE) -> bytes:
    """*drawn* as PNG, *scale* pixels for each of its own."""
    import vl_convert

    return bytes(
        vl_convert.vegalite_to_png(styled(drawn), vl_version=vega_lite_version(), scale=scale)
    )


def _shown(drawn: Drawn) -> dict[str, Any] | None:
    if alt.renderers.active != "default":
        return None
    return {"image/svg+xml": to_svg(drawn), "text/plain": _words(drawn)}


def _words(drawn: Drawn) -> str:
    text = drawn.description
    return text if isinstance(text, str) else f"<{type(drawn).__name__}>"


def save(drawn: Drawn, path: str | Path, title: str = "") -> None:
    """Write *drawn* to *path*: .svg, .png, or an .html page that loads nothing.

    Raises InputError for another ending or a folder that is not there.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: a chart is saved as {', '.join(SUFFIXES)}; name such a file")
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}; create it first")
    if suffix == ".png":
        data = to_png(drawn)
    elif suffix == ".svg":
        data = to_svg(drawn).encode("utf-8")
    else:
        from nvmesim.show.page import chart_page

        data = chart_page(drawn, title or target.stem).encode("utf-8")
    with written(target) as beside:
        beside.write_bytes(data)
