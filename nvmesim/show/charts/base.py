"""Parts of all charts: data inside, no network, one look, a text for those who do not see them."""

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import altair as alt
import numpy as np

from nvmesim.array_types import Ints
from nvmesim.errors import InputError
from nvmesim.files import written
from nvmesim.show import palette
from nvmesim.show import words as summary
from nvmesim.show.charts import vega_lite_version

WIDTH: Final = 560
LOG_LABELS: Final = "datum.value >= 1 ? format(datum.value, ',') : format(datum.value, '~g')"
PERCENT_LABELS: Final = "format(100 * datum.value, '~g') + ' %'"
LEGEND_COLUMNS: Final = 6
"""Of more entries a legend takes another line."""
_NINES: Final = ("0", "90", "99", "99.9", "99.99", "99.999")
TAIL_LABELS: Final = (
    "".join(f"datum.value == {i} ? '{p} %' : " for i, p in enumerate(_NINES)) + "'99.9999 %'"
)
PASSED: Final = 0.98
"""Share of a bound that the simulated curve may reach: where it passes, the bound is not drawn."""
PNG_SCALE: Final = 2.0
_AT_X: Final[Any] = alt.XValue  # a pixel; untyped in Altair
_AT_Y: Final[Any] = alt.YValue

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
        if alt.renderers.active != "default":
            return super()._repr_mimebundle_(*args, **kwds)
        drawn = cast("Drawn", self)
        return {"image/svg+xml": to_svg(drawn), "text/plain": _words(drawn)}

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


def layered(*layers: alt.Chart, height: int, says: str) -> Drawing:
    """Layers over each other; *says* is what a reader hears instead of the picture."""
    drawn = Drawing(layer=list(layers), height=height)
    drawn.description = says
    return drawn


def column(charts: Mapping[str, alt.LayerChart]) -> Column:
    """Title -> chart, one below the other."""
    stacked = Column(vconcat=[c.properties(title=t, width=WIDTH) for t, c in charts.items()])
    apart = alt.ScaleResolveMap(color="independent", strokeDash="independent", shape="independent")
    stacked.resolve = alt.Resolve(scale=apart)
    return stacked


def nothing(words: str) -> Drawing:
    """A chart of no data, which says so."""
    text = mark("text", [{"text": words}], alt.Text("text:N"), _AT_X(0), align="left",
                color=palette.MUTED)  # fmt: skip
    return layered(text, height=30, says=words)


# A chart is rows, axes, series and marks ----------------------------------------------------------

Rows: TypeAlias = list[dict[str, Any]]
FEWEST_BEYOND: Final = 10
"""A tail is drawn, and compared, as far as this many samples lie beyond it."""
FIRST_SHARE: Final = 0.002
"""The fastest few per mille are a flat line that only stretches the axis."""
NUMBER: Final = ",.4~g"
"""Format of numbers in tips."""


def mark(
    kind: str, rows: Sequence[Mapping[str, Any]], *encoding: Any,
    tips: Sequence[alt.Tooltip] | None = None, **look: Any,
) -> alt.Chart:  # fmt: skip
    """Marks of a *kind* ("line", "point", "bar", "rule", "text"), one a row or series."""
    data = alt.InlineData(values=[dict(row) for row in rows])  # travels inside the chart
    drawn: alt.Chart = getattr(alt.Chart(data), f"mark_{kind}")(**look).encode(*encoding)
    return drawn if tips is None else drawn.encode(tooltip=list(tips))


def tips(*fields: str) -> list[alt.Tooltip]:
    """Lines that a mark shows under the mouse, as "field: title with its unit: format".

    >>> tips("kiops: throughput, kIOPS: ,.4~g", "name")[0].to_dict()["title"]
    'throughput, kIOPS'
    >>> tips("drives: drives (kIOPS: chunks per second): ,.4~g")[0].to_dict()["format"]
    ',.4~g'
    """
    found = []
    for text in fields:
        field, _, rest = text.partition(": ")
        title, _, form = rest.rpartition(": ")
        if not title or " " in form:  # a title may have a colon of its own
            title, form = rest, ""
        number: dict[str, Any] = {"format": form} if form else {}
        number["type"] = "quantitative" if form else "nominal"
        found.append(alt.Tooltip(field=field, title=title or field, **number))
    return found


def _axis(
    field: str, title: str | None = None, *, log: Sequence[float] | None = None,
    log2: Sequence[float] | None = None, names: Sequence[str] | None = None,
    domain: tuple[float, float] | None = None, percents: Sequence[float] | None = None,
    nines: bool = False, zero: bool = True, padding: float | None = None,
    ticks: int | Sequence[float] | None = None, labels: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What an axis is made of.

    *log*: with ticks for these values; *log2*: base 2, a tick at each; *names*: categories in this
    order; *percents*: shares, with these ticks; *nines*: steps of one more nine.
    """
    if names is not None:
        axis: dict[str, Any] = {"labelLimit": 260}
        return {"shorthand": f"{field}:N", "title": title, "sort": list(names), "axis": axis}
    scale: dict[str, Any] = {"nice": domain is None, "zero": zero}
    axis = {}
    if log is not None or log2 is not None:
        scale = {"type": "log", **({} if log2 is None else {"base": 2}), "nice": False}
        values = log_ticks(log or ()) if log2 is None else sorted(set(log2))
        axis = {"labelExpr": LOG_LABELS, "values": values}
        title = f"{title} (log)"
    elif nines:
        scale = {"domainMin": 0, "nice": False}
        axis = {"values": list(range(7)), "labelExpr": TAIL_LABELS}
    if percents is not None:
        axis = {"labelExpr": PERCENT_LABELS, "values": list(percents)}
    scale |= {} if domain is None else {"domain": list(domain)}
    scale |= {} if padding is None else {"padding": padding}
    if ticks is not None:
        axis |= {"tickCount": ticks} if isinstance(ticks, int) else {"values": list(ticks)}
    axis |= {} if labels is None else {"labelExpr": labels}
    found = {"shorthand": f"{field}:Q", "title": title, "scale": alt.Scale(**scale)}
    return found | ({"axis": alt.Axis(**axis)} if axis else {})


def x(field: str, title: str | None = None, **how: Any) -> alt.X:
    """The horizontal axis; options as `_axis`."""
    return alt.X(**_axis(field, title, **how))


def y(field: str, title: str | None = None, **how: Any) -> alt.Y:
    """The vertical axis; options as `_axis`."""
    return alt.Y(**_axis(field, title, **how))


SERIES: Final = ("#2a78b8", "#d55e00", "#009e73", "#8a5fa8", "#1c1f24", "#e69f00")
DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 2, 2, 2), (4, 4), (1, 3))
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
MOST_SERIES: Final = len(SERIES)


@dataclass(frozen=True)
class Series:
    """How lines and points that belong together are told apart: by colour, dash and shape."""

    colour: alt.Color
    dash: alt.StrokeDash
    shape: alt.Shape


def series(
    field: str, names: Sequence[str], *, colours: Sequence[str] = SERIES,
    dashes: Sequence[Sequence[int]] = DASHES, shapes: Sequence[str] = SHAPES,
    title: str | None = None, shown: bool | None = None, lines: bool = False,
    columns: int = LEGEND_COLUMNS,
) -> Series:  # fmt: skip
    """The encodings of *names*; a legend unless there is one, or as *shown* says."""
    unique = list(dict.fromkeys(names))
    key: dict[str, Any] = {"orient": "top", "title": title, "columns": columns,
                           "symbolOpacity": 1, "labelLimit": 260}  # fmt: skip
    if lines:
        key |= {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2.5}
    is_shown = len(unique) > 1 if shown is None else shown
    how: dict[str, Any] = {"sort": unique, "legend": alt.Legend(**key) if is_shown else None}

    def encoding(kind: Callable[..., Any], choices: Sequence[Any]) -> Any:
        used = [choices[i % len(choices)] for i, _ in enumerate(unique)]
        return kind(f"{field}:N", scale=alt.Scale(domain=unique, range=used), **how)

    return Series(
        encoding(alt.Color, colours),
        encoding(alt.StrokeDash, [list(dash) for dash in dashes]),
        encoding(alt.Shape, shapes),
    )


def level(
    axis: alt.X | alt.Y, at: float, text: str = "", *, light: bool = False
) -> list[alt.Chart]:
    """A dashed line across the chart at *at*, named above its left or below its right end."""
    field = axis.shorthand.partition(":")[0]
    rows = [{field: rounded(at), "text": text}]
    colour, dash = (palette.MUTED, [2, 3]) if light else (palette.ACCENT, [6, 4])
    drawn = [mark("rule", rows, axis, strokeDash=dash, strokeWidth=1.3, color=colour)]
    if text:
        is_x = isinstance(axis, alt.X)
        place = _AT_Y(8) if is_x else _AT_X(4)
        look: dict[str, Any] = {"align": "right", "dx": -5} if is_x else {"align": "left", "dy": -7}
        drawn.append(mark("text", rows, axis, place, alt.Text("text:N"), fontSize=10, color=colour,
                          **look))  # fmt: skip
    return drawn


def points_of_nines(
    at_s: Iterable[float], counts: Sequence[int] | Ints, step: float
) -> Iterator[dict[str, float]]:
    """Points of a CDF of bins at *at_s*: "us" and "nines", -log10(1 - p), *step* apart."""
    below = np.cumsum(counts)
    total, last = int(below[-1]), -math.inf
    for value, count in zip(at_s, below.tolist(), strict=True):
        if count >= FIRST_SHARE * total and total - count >= FEWEST_BEYOND:
            nines = math.log10(total / (total - count))
            if nines - last >= step:
                yield {"us": rounded(float(value) * 1e6), "nines": round(nines, 4)}
                last = nines


def rounded(value: float) -> float:
    """Four significant digits: less page, and nobody sees more."""
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
    """The Vega-Lite specification of *drawn* in the look of this package, the user's own on top."""
    spec: dict[str, Any] = drawn.to_dict(context={})
    size = {"continuousWidth", "continuousHeight"}
    own = {k: v for k, v in spec.get("config", {}).items() if k != "view" or set(v) - size}
    spec["config"] = _LOOK | own
    return spec


@dataclass(frozen=True, repr=False)
class Picture:
    """A drawing that is SVG from the start."""

    svg: str
    name: str

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {self.name!r}>"

    def on_paper(self) -> str:
        """The drawing on white, its colours in place of variables, which few programs know."""
        light = dict(re.findall(r"(--[a-z]+):(#[0-9a-f]+)", self.svg.split("@media", 1)[0]))
        filled = re.sub(r"var\((--[a-z]+)\)", lambda found: light.get(found[1], "#000"), self.svg)
        paper = '<rect width="100%" height="100%" fill="#fff"/>'
        return filled.replace("</style>", f"</style>{paper}", 1)


def to_svg(drawn: Drawn) -> str:
    """*drawn* as an SVG document, with its words for readers.

    >>> to_svg(nothing("no points"))[:38]
    '<svg role="img" aria-label="no points"'
    """
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(styled(drawn), vl_version=vega_lite_version()))
    text = html.escape(summary.one_line(_words(drawn)), quote=True)
    return svg.replace("<svg", f'<svg role="img" aria-label="{text}"', 1)


def _words(drawn: Drawn) -> str:
    text = drawn.description
    return text if isinstance(text, str) else f"<{type(drawn).__name__}>"


def save(drawn: Drawn | Picture, path: str | Path, title: str = "") -> None:
    """Write *drawn* to *path*: .svg, .png, or an .html page that loads nothing; or InputError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(nothing("no points"), Path(folder) / "none.svg")
    ...     (Path(folder) / "none.svg").read_text()[:4]
    '<svg'
    """
    import vl_convert

    from nvmesim.show.blocks import Drawn, Line
    from nvmesim.show.page import chart_page, document

    target = Path(path)
    ending, is_picture = target.suffix.lower(), isinstance(drawn, Picture)
    if ending not in (".svg", ".png", ".html"):
        what = "picture" if is_picture else "chart"
        raise InputError(f"{path}: a {what} is saved as .svg, .png, .html; name such a file")
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}; create it first")
    data: str | bytes
    if isinstance(drawn, Picture):
        name, data = title or drawn.name, drawn.on_paper()
        if ending == ".html":
            data = document(name, [Line(name, "title"), Drawn(drawn.svg, drawn.name)])
        elif ending == ".png":
            data = vl_convert.svg_to_png(data, scale=PNG_SCALE)
    elif ending == ".html":
        data = chart_page(drawn, title or target.stem)
    elif ending == ".png":
        how: dict[str, Any] = {"vl_version": vega_lite_version(), "scale": PNG_SCALE}
        data = vl_convert.vegalite_to_png(styled(drawn), **how)
    else:
        data = to_svg(drawn)
    with written(target) as beside:
        beside.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
