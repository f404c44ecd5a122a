"""Charts to call by name: ``ns.charts.scaling(frame, "drives.0.count")``.

Of a result: `latency_cdf`, `utilization`, `reliefs`, `throughput_curve`, `latency_curve`,
`members`, `picture`. Of a sweep's frame: `scaling`, `load_curve`, `heat`. Of other answers:
`tornado` (`nvmesim.sensitivity`), `timeline` (`ns.timeline`), `cpu_ghz` and `cpu_load`
(`ns.size_cpu`). Each is an Altair chart that shows itself in a notebook as SVG; `save` writes SVG,
PNG or HTML. Nothing is loaded from anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvmesim.errors import InputError
from nvmesim.show.charts.base import Column, Drawing, Picture, save
from nvmesim.show.charts.designs import cpu_ghz, cpu_load
from nvmesim.show.charts.result import (
    latency_cdf,
    latency_curve,
    members,
    reliefs,
    throughput_curve,
    timeline,
    utilization,
)
from nvmesim.show.charts.sweep import heat, load_curve, scaling, tornado
from nvmesim.show.picture import picture as _picture

if TYPE_CHECKING:
    from nvmesim.predict.result import Result

__all__ = [
    "Column", "Drawing", "Picture", "cpu_ghz", "cpu_load", "heat", "latency_cdf", "latency_curve",
    "load_curve", "members", "picture", "reliefs", "save", "scaling", "throughput_curve",
    "timeline", "tornado", "utilization",
]  # fmt: skip


def picture(result: Result) -> Picture:
    """The server of *result* under its load: sockets, links, adapters, drives, and what crosses.

    Raises InputError if the result was read from a file and does not know its server.
    """
    svg = _picture(result)
    if not svg:
        raise InputError(f"{result.scenario}: this result does not know its server; simulate it")
    return Picture(svg, result.scenario)
