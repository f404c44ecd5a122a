"""`ns.explore`: sliders for a scenario's keys; each position is simulated anew."""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nvmesim.errors import InputError, NvmesimError
from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict, with_values
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.schema import Scenario
from nvmesim.show import answer, words
from nvmesim.show.blocks import Block, Line, table
from nvmesim.show.page import html
from nvmesim.study.sweep.api import Progress, tables_of
from nvmesim.ui.work import Cancelled, first_look
from nvmesim.version import install_command

TRAIL: Final = 6
"""Positions before this one that stay in sight."""


def explore(
    scenario: Scenario | str | Path | Mapping[str, Any],
    over: Mapping[str, Any],
    *,
    requests: int | None = None,
    seed: int | None = None,
) -> Any:
    """Return sliders for the keys in *over* above an answer that follows them (ipywidgets).

    *over* maps keys as ``--set`` takes them to (low, high) or (low, high, step) for a slider, or to
    a list for a menu; each starts at the scenario's own value if that is among them. A position is
    followed with a first look of few requests, as in `nvmesim ui`, and then simulated in the
    background as `nvmesim run` does; with *requests*, for so many requests at once. The random
    numbers are the same everywhere, so that what moves is the design.

    Raises InputError if ipywidgets is not installed or a range is empty.
    """
    try:
        import ipywidgets as widgets
    except ImportError:
        raise InputError(f"explore needs ipywidgets: {install_command('lab')}") from None
    tables, base = tables_of(scenario)
    now = _now(tables, base, over)
    controls = {key: _control(widgets, key, text, now[key]) for key, text in over.items()}
    shown = widgets.HTML()
    view = _View(tables, base, requests, seed)
    background = ThreadPoolExecutor(1, thread_name_prefix="nvmesim-explore")

    def moved() -> Mapping[str, Any]:
        values = {key: control.value for key, control in controls.items()}
        view.move(values)
        return values

    def follow(_change: Any = None) -> None:
        values = moved()
        if requests is not None:
            shown.value = view.html(values)
            return
        shown.value = view.html(values, is_first_look=True)
        background.submit(refine, values)

    def refine(values: Mapping[str, Any]) -> None:
        def progress(_what: str, _share: float) -> None:
            if not view.is_at(values):  # ends as if Ctrl-C had been pressed
                raise Cancelled

        with suppress(Cancelled):
            progress("", 0)
            found = view.html(values, progress)
            progress("", 1)
            shown.value = found

    for control in controls.values():
        control.observe(follow, names="value")
    shown.value = view.html(moved())
    return widgets.VBox([*controls.values(), shown])


class _View:
    """The answer under the sliders, and what it was at the positions before."""

    def __init__(
        self, tables: Mapping[str, Any], base: str, requests: int | None, seed: int | None
    ) -> None:
        self._tables, self._base = tables, base
        self._requests, self._seed = requests, seed
        self._trail: list[list[str]] = []
        self._values: Mapping[str, Any] = {}
        self._now: list[str] = []
        """Row of the position that is shown."""

    def move(self, values: Mapping[str, Any]) -> None:
        """Go to *values*; the position before joins those before it."""
        if self._now:
            self._trail = [*self._trail, self._now][-TRAIL:]
        self._values, self._now = values, []

    def is_at(self, values: Mapping[str, Any]) -> bool:
        """True if the sliders have not moved since *values*."""
        return values is self._values

    def html(
        self, values: Mapping[str, Any], progress: Progress | None = None, *,
        is_first_look: bool = False,
    ) -> str:  # fmt: skip
        """Simulate at *values* and say what comes out; an impossible design says why."""
        started = time.perf_counter()
        try:
            scenario = scenario_from_dict(with_values(self._tables, values), self._base)
            if is_first_look:
                result = first_look(scenario, self._seed)
            else:  # as `nvmesim run` does, without reliefs
                result = simulate(scenario, requests=self._requests, seed=self._seed,
                                  reliefs=False, progress=progress)  # fmt: skip
        except NvmesimError as error:
            return _wrapped([Line(str(error), "head")])
        took = 1e3 * (time.perf_counter() - started)
        rate = words.kiops(result.total.iops.value)
        p99 = words.microseconds(words.latency_at(result.total.latency, "p99"))
        before = table("Before", [*map(_short, values), "IOPS", "p99 [us]"], self._trail[::-1])
        if self.is_at(values):  # work in the background may be late
            self._now = [*map(str, values.values()), rate, p99]
        # of a first look it is not known yet how sure it is
        sure = "" if is_first_look else f", probably {words.span(result.total.iops)}"
        figures = answer.cards(result, is_first_look=True) if is_first_look else answer.ops(result)
        stage = "; first look, refining …" if is_first_look else ""
        shown: list[Block] = [
            Line(f"{rate} IOPS{sure}", "head"),
            Line(result.bottleneck.sentence), figures, answer.stations(result),
            Line(f"{result.requests:,} requests simulated in {took:.0f} ms{stage}", "soft"),
        ]  # fmt: skip
        return _wrapped([*shown, Line("before:", "soft"), before] if self._trail else shown)


def _wrapped(blocks: Sequence[Block]) -> str:
    return f'<div class="nvmesim-explore" role="status">{html(blocks)}</div>'


def _short(key: str) -> str:
    """The last word of a key."""
    parts = [p for p in key.split(".") if not p.isdigit() and p != "*"]
    return parts[-2] if parts[-1] == "count" and len(parts) > 1 else parts[-1]


def _now(tables: Mapping[str, Any], base: str, keys: Iterable[str]) -> dict[str, Any]:
    """The value of a scenario at each of *keys*, of the first of a list; None: there is none."""
    scenario = scenario_from_dict(tables, base)
    filled, loads = scenario.model_dump(mode="json"), resolve(scenario).workload
    found = {}
    for key in keys:
        parts = key.split(".")
        found[key] = next((v for t in (tables, filled) if (v := _at(t, parts)) is not None), None)
        if found[key] is None and parts[0] == "workload":
            found[key] = getattr(loads[0], parts[-1], None)
    return found


def _at(tables: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if isinstance(tables, list):
            number = int(part) if part.isdigit() else 0
            tables = tables[number] if number < len(tables) else None
            if part.isdigit() or part == "*":
                continue
        tables = tables.get(part) if isinstance(tables, Mapping) else None
    return tables


def _control(widgets: Any, key: str, text: Any, now: Any) -> Any:
    """A slider for a range, a menu for a list."""
    shared = {"description": _short(key), "tooltip": key, "layout": widgets.Layout(width="460px"),
              "style": {"description_width": "90px"}}  # fmt: skip
    if isinstance(text, tuple) and len(text) in (2, 3) and all(_is_number(v) for v in text):
        low, high = text[:2]
        if low >= high:
            raise InputError(f"{key}: the range {low} to {high} is empty; write (low, high)")
        whole = all(isinstance(v, int) for v in text)
        step = text[2] if len(text) == 3 else (1 if whole else (high - low) / 100)
        start = now if _is_number(now) and low <= now <= high else low
        kind = widgets.IntSlider if whole else widgets.FloatSlider
        return kind(value=start, min=low, max=high, step=step, **shared)
    if isinstance(text, Sequence) and not isinstance(text, str) and text:
        value = now if now in text else text[0]
        return widgets.Dropdown(options=list(text), value=value, **shared)
    raise InputError(
        f"{key}: {text!r} is not a range; write (low, high), (low, high, step) or a list"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
