"""Calibrate on the inputs, predict what is asked, and say how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from scipy.optimize import brentq

from nvmesim.errors import FitError
from nvmesim.result.result import Interval, Result
from nvmesim.validate.metrics import metric
from nvmesim.validate.predict import REQUESTS, Change, Predictor, Value
from nvmesim.validate.published import Fit, Uncertain
from nvmesim.validate.question import Key, Question

DRAW_REQUESTS: Final = 40_000
"""Requests of a simulation that only shows how an uncertain number moves the answer."""
TOLERANCE: Final = 1e-4
CLOSE: Final = 0.02
"""An input row that no number reaches must be missed by less than this share."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Fitted:
    """A number that the inputs determined."""

    name: str
    value: float
    unit: str
    only_here: bool = False
    about: str = ""
    residual: float | None = None
    """Of its input row, relative; None if it was fitted together with others."""


@dataclass(frozen=True)
class Prediction:
    """What a set's question is answered with."""

    values: Mapping[Key, Interval]
    verdicts: Mapping[Key, str]
    fitted: tuple[Fitted, ...] = ()
    moved: Mapping[str, float] = field(default_factory=dict)
    """Uncertain number -> largest relative move of an answer."""


def answer(question: Question, progress: Progress | None = None) -> Prediction:
    """Return the predictions of everything that *question* asks, intervals included.

    The interval holds what simulation leaves, what each uncertain number moves (everything is
    calibrated again with it), what the noise of the input rows moves, and the noise of the
    measurement that is predicted; deviations are added in quadrature, up and down apart.
    """
    say = progress or (lambda text, share: None)
    say(f"{question.name}: calibrating", 0.0)
    drive: tuple[Fitted, ...] = ()
    if question.drive_fit is not None:
        from nvmesim.validate.drive_fit import with_drive

        question, numbers = with_drive(question)
        again = {change.partition("=")[0] for fit in question.fits for change in fit.set}
        drive = tuple(Fitted(n, value, unit) for n, value, unit in numbers if n not in again)
    calibration = _Calibration(question)
    predictor, fitted = calibration.run()
    central = {key: predictor.value(key) for key in question.asked}
    others = list(_variations(question))
    up: dict[Key, float] = dict.fromkeys(central, 0.0)
    down: dict[Key, float] = dict.fromkeys(central, 0.0)
    moved: dict[str, float] = {}
    for i, (name, changes, inputs) in enumerate(others):
        say(f"{question.name}: {name}", (i + 1) / (len(others) + 1))
        varied, _ = calibration.run(changes, inputs, DRAW_REQUESTS)
        for key, value in central.items():
            step = varied.value(key).value - value.value
            up[key] += max(0.0, step) ** 2
            down[key] += min(0.0, step) ** 2
            if value.value:
                moved[name] = max(moved.get(name, 0.0), abs(step / value.value))
    return Prediction(
        values={key: _interval(question, key, v, up[key], down[key]) for key, v in central.items()},
        verdicts={key: value.verdict for key, value in central.items()},
        fitted=drive + fitted,
        moved=moved,
    )


def _interval(question: Question, key: Key, value: Value, up: float, down: float) -> Interval:
    name = key[1].partition(":")[0]
    noise = question.noise.get(name, 0.0)
    if not metric(name).points:
        noise *= value.value
    own = value.half**2 + noise**2
    low = value.value - math.sqrt(down + own)
    return Interval(value.value, max(0.0, low), value.value + math.sqrt(up + own))


def _variations(question: Question) -> Iterator[tuple[str, tuple[Change, ...], dict[Key, float]]]:
    """(name, changes, factors of input rows): each uncertain number at its low and high end."""
    for item in question.uncertain:
        for x in (item.low, item.high):
            yield item.name, filled(item, x), {}
    for fit in question.fits:
        key = (fit.config, fit.metric, fit.reference)
        row = question.given(key)
        noise = question.noise.get(fit.metric, 0.0)
        low, high = row.span
        step = (high - low) / 2 or (noise if metric(fit.metric).points else noise * low)
        if step:
            for sign in (-1, 1):
                yield f"input {fit.config}, {fit.metric}", (), {key: row.number + sign * step}


def filled(item: Fit | Uncertain, x: float) -> tuple[Change, ...]:
    """Return the changes of *item* with the number in its place."""
    return tuple((item.only, change.replace("{x}", f"{x:.9g}")) for change in item.set)


@dataclass
class _Calibration:
    """Chooses the fits' numbers, one after the other; simulations are shared between calls."""

    question: Question
    seen: dict[tuple[object, ...], Result] = field(default_factory=dict)

    def run(
        self,
        changes: tuple[Change, ...] = (),
        inputs: Mapping[Key, float] | None = None,
        requests: int = REQUESTS,
    ) -> tuple[Predictor, tuple[Fitted, ...]]:
        """Return a predictor under *changes*, with *inputs* in the place of their rows."""
        at = changes
        found: list[Fitted] = []
        for fit in self.question.fits:
            key = (fit.config, fit.metric, fit.reference)
            wanted = self.question.given(key).number
            if inputs:
                wanted = inputs.get(key, wanted)
            x, residual = self._solve(fit, key, wanted, at, requests)
            at = (*at, *filled(fit, x))
            found.append(Fitted(fit.name, x, fit.unit, fit.only_here, fit.about, residual))
        # An uncertain number wins over a fit of the same one elsewhere.
        return self._predictor((*at, *changes), requests), tuple(found)

    def _predictor(self, changes: tuple[Change, ...], requests: int) -> Predictor:
        return Predictor(self.question, changes, requests, self.seen)

    def _solve(
        self, fit: Fit, key: Key, wanted: float, changes: tuple[Change, ...], requests: int
    ) -> tuple[float, float]:
        """The number between ``low`` and ``high`` for which the input row comes out."""

        def miss(x: float) -> float:
            predictor = self._predictor((*changes, *filled(fit, x)), requests)
            return predictor.value(key).value / wanted - 1

        ends = miss(fit.low), miss(fit.high)
        if ends[0] * ends[1] > 0:
            if min(abs(e) for e in ends) < CLOSE or requests == DRAW_REQUESTS:
                return (fit.low if abs(ends[0]) < abs(ends[1]) else fit.high), min(ends, key=abs)
            raise FitError(
                f"{self.question.name}: fit {fit.name!r}: {fit.config}, {fit.metric} = {wanted:g} "
                f"is not reached between {fit.low:g} and {fit.high:g} {fit.unit}"
            )
        fine = TOLERANCE if requests == REQUESTS else 10 * TOLERANCE
        x = float(brentq(miss, fit.low, fit.high, xtol=fine * abs(fit.high), maxiter=30))
        return x, miss(x)
