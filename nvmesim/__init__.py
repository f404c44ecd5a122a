"""Predict how NVMe storage scales before the hardware is bought.

The public names are imported when they are first used, so that `import nvmesim` stays quick.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from nvmesim import numba_config as _numba_config
from nvmesim.version import __version__ as __version__

if TYPE_CHECKING:
    from nvmesim import catalog as catalog
    from nvmesim.calibrate.drive.fit import fit_drive as fit_drive
    from nvmesim.calibrate.evidence import DriveFit as DriveFit
    from nvmesim.calibrate.evidence import StackFit as StackFit
    from nvmesim.calibrate.stack.fit import fit_stack as fit_stack
    from nvmesim.capture.capture import Captures as Captures
    from nvmesim.capture.registry import read_captures as read_captures
    from nvmesim.predict.result import Result as Result
    from nvmesim.predict.simulate import compare as compare
    from nvmesim.predict.simulate import simulate as simulate
    from nvmesim.raid.map import raid_map as raid_map
    from nvmesim.scenario.load import load_scenario as load_scenario
    from nvmesim.scenario.schema import Scenario as Scenario
    from nvmesim.show.charts import named as charts  # noqa: F401
    from nvmesim.show.notebook import table as table
    from nvmesim.study.best import best as best
    from nvmesim.study.choose import choose as choose
    from nvmesim.study.diagnosis.diagnose import diagnose as diagnose
    from nvmesim.study.rank import rank as rank
    from nvmesim.study.sensitivity import sensitivity as sensitivity
    from nvmesim.study.size import size_cpu as size_cpu
    from nvmesim.study.sweep.api import sweep as sweep
    from nvmesim.study.timeline import timeline as timeline
    from nvmesim.ui.explore import explore as explore


_HOME: Final = {
    # public name: "module:name in it", or a module that is public as a whole
    "Captures": "nvmesim.capture.capture:Captures",
    "DriveFit": "nvmesim.calibrate.evidence:DriveFit",
    "Result": "nvmesim.predict.result:Result",
    "Scenario": "nvmesim.scenario.schema:Scenario",
    "StackFit": "nvmesim.calibrate.evidence:StackFit",
    "best": "nvmesim.study.best:best",
    "catalog": "nvmesim.catalog",
    "charts": "nvmesim.show.charts.named",
    "choose": "nvmesim.study.choose:choose",
    "compare": "nvmesim.predict.simulate:compare",
    "diagnose": "nvmesim.study.diagnosis.diagnose:diagnose",
    "explore": "nvmesim.ui.explore:explore",
    "fit_drive": "nvmesim.calibrate.drive.fit:fit_drive",
    "fit_stack": "nvmesim.calibrate.stack.fit:fit_stack",
    "load_scenario": "nvmesim.scenario.load:load_scenario",
    "raid_map": "nvmesim.raid.map:raid_map",
    "rank": "nvmesim.study.rank:rank",
    "read_captures": "nvmesim.capture.registry:read_captures",
    "sensitivity": "nvmesim.study.sensitivity:sensitivity",
    "simulate": "nvmesim.predict.simulate:simulate",
    "size_cpu": "nvmesim.study.size:size_cpu",
    "sweep": "nvmesim.study.sweep.api:sweep",
    "table": "nvmesim.show.notebook:table",
    "timeline": "nvmesim.study.timeline:timeline",
}
__all__ = list(_HOME)


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
    """Keeps `nvmesim.predict.simulate` the function when the submodule of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and ":" in _HOME.get(name, ""):
            return
        super().__setattr__(name, value)


_numba_config.ignore_file()
sys.modules[__name__].__class__ = _Package
