"""Charts to call by name: ``ns.charts.scaling(frame, "drives.0.count")``.

Of a result: `latency_cdf`, `utilization`, `reliefs`, `throughput_curve`, `latency_curve`,
`members`, `picture`. Of a sweep's frame: `scaling`, `load_curve`, `heat`. Of other answers:
`tornado` (`nvmesim.sensitivity`), `timeline` (`ns.timeline`), `cpu_ghz` and `cpu_load`
(`ns.size_cpu`). Each is an Altair chart that shows itself in a notebook as SVG; `save` writes SVG,
PNG or HTML. Nothing is loaded from anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nvmesim.errors import InputError
from nvmesim.show.blocks import Drawn, Line
from nvmesim.show.charts import base as _base
from nvmesim.show.charts.base import Column, Drawing
from nvmesim.show.charts.designs import cpu_ghz, cpu_load
from nvmesim.show.charts.result import (
    latency_cdf,
    latency_curve,
    members,
    reliefs,
    throughput_curve,
    utilization,
)
from nvmesim.show.charts.steps import timeline
from nvmesim.show.charts.sweep import heat, load_curve, scaling, tornado
from nvmesim.show.picture import picture as _picture

if TYPE_CHECKING:
    from nvmesim.predict.result import Result

__all__ = [
    "Column", "Drawing", "Picture", "cpu_ghz", "cpu_load", "heat", "latency_cdf", "latency_curve",
    "load_curve", "members", "picture", "reliefs", "save", "scaling", "throughput_curve",
    "timeline", "tornado", "utilization",
]  # fmt: skip

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
    svg = _picture(result)
    if not svg:
        raise InputError(f"{result.scenario}: this result does not know its server; simulate it")
    return Picture(svg, result.scenario)


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
        _base.save(drawn, path, title)
        return
    name, svg = title or drawn.name, _on_paper(drawn.svg)

    def png() -> bytes:
        import vl_convert

        return bytes(vl_convert.svg_to_png(svg, scale=_base.PNG_SCALE))

    def page() -> str:
        from nvmesim.show.page import document

        return document(name, [Line(name, "title"), Drawn(drawn.svg, drawn.name)])

    _base.write_as("picture", path, {".svg": lambda: svg, ".png": png, ".html": page})


def _on_paper(svg: str) -> str:
    """*svg* on white, its colours in place of variables, which few programs know."""
    light = dict(re.findall(r"(--[a-z]+):(#[0-9a-f]+)", svg.split("@media", 1)[0]))
    filled = _VARIABLE.sub(lambda found: light.get(found[1], "#000"), svg)
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return filled.replace("</style>", f"</style>{paper}", 1)
