"""How each answer is drawn: the one table from an answer's class to what draws it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_DRAWERS: Final = {
    # (class, form): "module of nvmesim.show:function"
    ("Result", "chart"): "charts.result:chart",
    ("Result", "html"): "report:fragment",
    ("Result", "text"): "answer:printed",
    ("DriveFit", "chart"): "charts.fit_points:chart",
    ("DriveFit", "html"): "evidence.fits:fragment",
    ("StackFit", "chart"): "charts.fit_points:chart",
    ("StackFit", "html"): "evidence.fits:fragment",
    ("Sizing", "chart"): "charts.cpu_load:chart",
    ("Sizing", "html"): "studies.input_views:fragment",
    ("Best", "chart"): "charts.designs:best_chart",
    ("Best", "html"): "studies.best_view:fragment",
    ("Choice", "chart"): "charts.designs:choice_chart",
    ("Timeline", "chart"): "charts.timeline:chart",
}


def drawer(answer: object, form: str) -> Callable[..., Any]:
    """Return what draws *answer* as *form* ("chart", "html" or "text").

    >>> drawer(type("Result", (), {})(), "chart").__module__
    'nvmesim.show.charts.result'
    """
    for kind in type(answer).__mro__:
        found = _DRAWERS.get((kind.__name__, form))
        if found:
            module, _, name = found.partition(":")
            function: Callable[..., Any] = getattr(import_module(f"nvmesim.show.{module}"), name)
            return function
    raise AttributeError(f"{type(answer).__name__} is not drawn as {form}")
