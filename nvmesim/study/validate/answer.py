"""Calibrate on the inputs, predict what is asked, and say how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scipy.optimize import brentq

from nvmesim.errors import FitError, NvmesimError
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.study.validate.metrics import metric
from nvmesim.study.validate.naive import Naive
from nvmesim.study.validate.predict import Change, Predictor, Value
from nvmesim.study.validate.published import Fit, Row
from nvmesim.study.validate.question import Key, Question

TOLERANCE: Final = 1e-4
CLOSE: Final = 0.02
"""An input row that no number reaches must be missed by less than this share."""
USUAL_NOISE: Final = 0.03
"""Relative 95 % of an input row whose set states none."""
NAIVE_REQUESTS: Final = 40_000

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
    """Answer to a set's question."""

    values: Mapping[Key, Value]
    """Calibrated on the set's inputs."""
    catalog: Mapping[Key, Value] = field(default_factory=dict)
    """From catalog profiles, before anything was calibrated; empty where that cannot be."""
    naive: Mapping[str, float] = field(default_factory=dict)
    """Configuration -> the naive IOPS."""
    in_flight: Mapping[str, float] = field(default_factory=dict)
    """Configuration -> requests that its closed loop keeps."""
    fitted: tuple[Fitted, ...] = ()

    @property
    def verdicts(self) -> Mapping[Key, str]:
        """Bottleneck of each."""
        return {key: value.verdict for key, value in self.values.items()}


def answer(
    question: Question, progress: Progress | None = None, *, catalog: bool = True
) -> Prediction:
    """Return the predictions of everything that *question* asks, intervals included.

    The intervals are those that `nvmesim run` prints, with the model's error learned without the
    question's own source. A number that a fit chose has the interval of its input row's noise. With
    *catalog* the same is asked of the catalog's profiles alone.
    """
    say = progress or (lambda text, share: None)
    say(f"{question.name}: calibrating", 0.0)
    asked = question
    drive: tuple[Fitted, ...] = ()
    if question.drive_fit is not None:
        from nvmesim.study.validate.drive_fit import with_drive

        question, numbers = with_drive(question)
        again = {change.partition("=")[0] for fit in question.fits for change in fit.set}
        drive = tuple(Fitted(n, value, unit) for n, value, unit in numbers if n not in again)
    predictor, fitted = _Calibration(question).run()
    sure = replace(predictor, certainty=True)
    values: dict[Key, Value] = {}
    for i, key in enumerate(question.asked):
        say(f"{question.name}: {key[0]}", (i + 1) / (len(question.asked) + 1))
        values[key] = sure.value(key)
    naive, in_flight = _naive(sure)
    return Prediction(
        values, _from_catalog(asked) if catalog else {}, naive, in_flight, drive + fitted
    )


def _from_catalog(question: Question) -> dict[Key, Value]:
    """Return what the catalog's parts say; what it lacks or cannot be run is left out."""
    changes = tuple(("*", change) for change in question.catalog.set)
    predictor = Predictor(question, changes, certainty=True)
    found: dict[Key, Value] = {}
    for key in (key for key in question.asked if question.catalog.says(key[0])):
        try:
            found[key] = predictor.value(key)
        except NvmesimError:
            continue
    return found


def _naive(predictor: Predictor) -> tuple[dict[str, float], dict[str, float]]:
    """Naive IOPS and requests in flight of each simulated configuration."""
    naive = Naive(lambda s: simulate(s, reliefs=False, requests=NAIVE_REQUESTS, certainty=False,
                                     over_time=False).total.iops.value)  # fmt: skip
    rates: dict[str, float] = {}
    in_flight: dict[str, float] = {}
    for config in dict.fromkeys(key[0] for key in predictor.question.asked):
        if predictor.question.configs[config].kind != "simulate":
            continue
        scenario = predictor.result(config).resolved
        in_flight[config] = sum(g.in_flight for g in scenario.workload if not g.is_open)
        rate = naive.iops(scenario)
        if rate is not None:
            rates[config] = rate
    return rates, in_flight


def filled(item: Fit, x: float, noise: float = 0.0) -> tuple[Change, ...]:
    """Return the changes of *item* with the number in its place, as fitted to within *noise*.

    >>> fit = Fit(name="n", set=("drives.0.profile.commands={x}k/s",), low=1, high=9, config="c",
    ...           metric="iops")
    >>> filled(fit, 500, 0.1)[0][1][:57]
    'drives.0.profile.commands={ value = "500k/s", low = "450k'
    """
    return tuple((item.only, _filled(change, x, noise)) for change in item.set)


def _filled(change: str, x: float, noise: float) -> str:
    key, _, text = change.partition("=")
    values = [text.replace("{x}", f"{v:.9g}") for v in (x, x * (1 - noise), x * (1 + noise))]
    if not noise or not any(part in key for part in (".profile.", ".stack.", ".engine.")):
        return f"{key}={values[0]}"
    shown = [v if _is_number(v) else f'"{v}"' for v in values]
    return f'{key}={{ value = {shown[0]}, low = {shown[1]}, high = {shown[2]}, basis = "fitted" }}'


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass
class _Calibration:
    """Chooses the fits' numbers, one after the other; simulations are shared between calls."""

    question: Question
    seen: dict[tuple[object, ...], Result] = field(default_factory=dict)

    def run(self) -> tuple[Predictor, tuple[Fitted, ...]]:
        """Return a predictor with every number of the fits in its place."""
        at: tuple[Change, ...] = ()
        final: tuple[Change, ...] = ()
        found: list[Fitted] = []
        for fit in self.question.fits:
            key = (fit.config, fit.metric, fit.reference)
            row = self.question.given(key)
            x, residual = self._solve(fit, key, row.number, at)
            at = (*at, *filled(fit, x))
            final = (*final, *filled(fit, x, self._noise(fit, row)))
            found.append(Fitted(fit.name, x, fit.unit, fit.only_here, fit.about, residual))
        return self._predictor(final), tuple(found)

    def _noise(self, fit: Fit, row: Row) -> float:
        """Relative 95 % of an input row: its range, or the noise that the set states."""
        low, high = row.span
        if high > low:
            return min(0.9, (high - low) / 2 / row.number)
        noise = self.question.noise.get(fit.metric, USUAL_NOISE)
        if metric(fit.metric).points:
            noise /= max(row.number, 1e-9)
        return min(0.9, noise)

    def _predictor(self, changes: tuple[Change, ...]) -> Predictor:
        return Predictor(self.question, changes, seen=self.seen)

    def _solve(
        self, fit: Fit, key: Key, wanted: float, changes: tuple[Change, ...]
    ) -> tuple[float, float]:
        """The number between ``low`` and ``high`` for which the input row comes out."""

        def miss(x: float) -> float:
            predictor = self._predictor((*changes, *filled(fit, x)))
            return predictor.value(key).value / wanted - 1

        ends = miss(fit.low), miss(fit.high)
        if ends[0] * ends[1] > 0:
            if min(abs(e) for e in ends) < CLOSE:
                return (fit.low if abs(ends[0]) < abs(ends[1]) else fit.high), min(ends, key=abs)
            raise FitError(
                f"{self.question.name}: fit {fit.name!r}: {fit.config}, {fit.metric} = {wanted:g} "
                f"is not reached between {fit.low:g} and {fit.high:g} {fit.unit}"
            )
        x = float(brentq(miss, fit.low, fit.high, xtol=TOLERANCE * abs(fit.high), maxiter=30))
        return x, miss(x)
