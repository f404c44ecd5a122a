"""Charts to call by name: ``ns.charts.scaling(frame, "drives.0.count")``.

Of a result: `latency_cdf`, `utilization`, `reliefs`, `throughput_curve`, `latency_curve`,
`members`, `waiting`, `picture`, `latency_over_time`, `throughput_over_time`. Of a sweep's frame:
`scaling`, `load_curve`, `heat`, `pareto`. Of other answers: `tornado` (`nvmesim.sensitivity`),
`timeline` (`ns.timeline`), `cpu_ghz` and `cpu_load` (`ns.size_cpu`). Each is an
Altair chart that shows itself in a notebook as SVG; `save` writes SVG, PNG or HTML. Nothing is
loaded from anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nvmesim.errors import InputError
from nvmesim.files import written
from nvmesim.show.blocks import Block, Drawn, Line
from nvmesim.show.charts import timeline as charts_timeline
from nvmesim.show.charts.base import PNG_SCALE, SUFFIXES, Column, Drawing, column
from nvmesim.show.charts.base import save as _save
from nvmesim.show.charts.cpu_load import cpu_ghz, cpu_load
from nvmesim.show.charts.result import (
    latency_cdf,
    latency_curve,
    members,
    reliefs,
    throughput_curve,
    utilization,
)
from nvmesim.show.charts.sweep import heat, load_curve, pareto, scaling, tornado
from nvmesim.show.charts.time_series import latency_over_time, throughput_over_time
from nvmesim.show.charts.waiting import charts as _waiting
from nvmesim.show.picture import server as _server

if TYPE_CHECKING:
    from nvmesim.predict.result import Result
    from nvmesim.study.timeline import Timeline

__all__ = [
    "Column",
    "Drawing",
    "Picture",
    "cpu_ghz",
    "cpu_load",
    "heat",
    "latency_cdf",
    "latency_curve",
    "latency_over_time",
    "load_curve",
    "members",
    "pareto",
    "picture",
    "reliefs",
    "save",
    "scaling",
    "throughput_curve",
    "throughput_over_time",
    "timeline",
    "tornado",
    "utilization",
    "waiting",
]

_VARIABLE: Final = re.compile(r"var\((--[a-z]+)\)")


@dataclass(frozen=True, repr=False)
class Picture:
    """A drawing that is SVG from the start."""

    svg: str
    name: str

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        """Return one line."""
        return f"<Picture of {self.name!r}>"


def picture(result: Result) -> Picture:
    """The server of *result* under its load: sockets, links, adapters, drives, and what crosses.

    Raises InputError if the result was read from a file and does not know its server.
    """
    svg = _server.picture(result)
    if not svg:
        raise InputError(f"{result.scenario}: this result does not know its server; simulate it")
    return Picture(svg, result.scenario)


def waiting(result: Result) -> Column:
    """Loss of a striped volume to its slowest member; needs ``simulate(…, waits=True)``."""
    found = _waiting(result.waits)
    if not found:
        raise InputError("no waits were simulated; use ns.simulate(…, waits=True) on a volume")
    return column(found)


def timeline(recorded: Timeline, requests: int | None = None) -> Drawing:
    """Every step of the first *requests*: a lane for each request and each of its commands."""
    return charts_timeline.chart(recorded, requests)


def save(drawn: Drawing | Column | Picture, path: str | Path, title: str = "") -> None:
    """Write *drawn* to *path*: .svg, .png, or an .html page that loads nothing.

    >>> import tempfile
    >>> import polars as pl
    >>> frame = pl.DataFrame({"drives": [1, 2], "iops": [6e5, 1.2e6]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(scaling(frame, "drives"), Path(folder) / "scaling.svg")
    ...     (Path(folder) / "scaling.svg").read_text()[:4]
    '<svg'
    """
    if not isinstance(drawn, Picture):
        _save(drawn, path, title)
        return
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: a picture is saved as {', '.join(SUFFIXES)}; name such a file")
    with written(target) as beside:
        beside.write_bytes(_as(drawn, suffix, title or drawn.name))


def _as(drawn: Picture, suffix: str, title: str) -> bytes:
    if suffix == ".html":
        from nvmesim.show import page

        blocks: list[Block] = [Line(title, "title"), Drawn(drawn.svg, drawn.name)]
        return page.document(title, blocks).encode("utf-8")
    svg = _on_paper(drawn.svg)
    if suffix == ".svg":
        return svg.encode("utf-8")
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))


def _on_paper(svg: str) -> str:
    """*svg* on white, its colours in place of variables, which few programs know."""
    light = dict(re.findall(r"(--[a-z]+):(#[0-9a-f]+)", svg.split("@media", 1)[0]))
    filled = _VARIABLE.sub(lambda found: light.get(found[1], "#000"), svg)
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return filled.replace("</style>", f"</style>{paper}", 1)
