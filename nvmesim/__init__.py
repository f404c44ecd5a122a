"""Predict how NVMe storage scales before the hardware is bought.

The public names are imported when they are first used, so that `import nvmesim` stays quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nvmesim import catalog as catalog
    from nvmesim import charts as charts
    from nvmesim.choose.search import choose as choose
    from nvmesim.explore import explore as explore
    from nvmesim.fit.drive import fit_drive as fit_drive
    from nvmesim.fit.evidence import DriveFit as DriveFit
    from nvmesim.fit.evidence import StackFit as StackFit
    from nvmesim.fit.stack import fit_stack as fit_stack
    from nvmesim.model.raid_map import raid_map as raid_map
    from nvmesim.result.result import Result as Result
    from nvmesim.scenario.load import load_scenario as load_scenario
    from nvmesim.scenario.schema import Scenario as Scenario
    from nvmesim.simulate import compare as compare
    from nvmesim.simulate import simulate as simulate
    from nvmesim.sizing import size_cpu as size_cpu
    from nvmesim.sweep.api import sweep as sweep
    from nvmesim.sweep.ranking import rank as rank
    from nvmesim.sweep.sensitivity import sensitivity as sensitivity
    from nvmesim.timeline import timeline as timeline
    from nvmesim.trace.capture import Captures as Captures
    from nvmesim.trace.registry import read_captures as read_captures

__version__ = "0.1.0"

__all__ = [
    "Captures",
    "DriveFit",
    "Result",
    "Scenario",
    "StackFit",
    "catalog",
    "charts",
    "choose",
    "compare",
    "explore",
    "fit_drive",
    "fit_stack",
    "load_scenario",
    "raid_map",
    "rank",
    "read_captures",
    "sensitivity",
    "simulate",
    "size_cpu",
    "sweep",
    "timeline",
]

_HOME: Final = {
    # public name: "module:name in it", or a module that is public as a whole
    "Captures": "nvmesim.trace.capture:Captures",
    "DriveFit": "nvmesim.fit.evidence:DriveFit",
    "Result": "nvmesim.result.result:Result",
    "Scenario": "nvmesim.scenario.schema:Scenario",
    "StackFit": "nvmesim.fit.evidence:StackFit",
    "catalog": "nvmesim.catalog",
    "charts": "nvmesim.charts",
    "choose": "nvmesim.choose.search:choose",
    "compare": "nvmesim.simulate:compare",
    "explore": "nvmesim.explore:explore",
    "fit_drive": "nvmesim.fit.drive:fit_drive",
    "fit_stack": "nvmesim.fit.stack:fit_stack",
    "load_scenario": "nvmesim.scenario.load:load_scenario",
    "raid_map": "nvmesim.model.raid_map:raid_map",
    "rank": "nvmesim.sweep.ranking:rank",
    "read_captures": "nvmesim.trace.registry:read_captures",
    "sensitivity": "nvmesim.sweep.sensitivity:sensitivity",
    "simulate": "nvmesim.simulate:simulate",
    "size_cpu": "nvmesim.sizing:size_cpu",
    "sweep": "nvmesim.sweep.api:sweep",
    "timeline": "nvmesim.timeline:timeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nvmesim' has no attribute {name!r}")
    home, _, inside = _HOME[name].partition(":")
    module = importlib.import_module(home)
    value = getattr(module, inside) if inside else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `nvmesim.simulate` the function when the submodule of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and ":" in _HOME.get(name, ""):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
