"""Calibrate on the inputs alone, predict what is asked, and say how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scipy.optimize import brentq

from nvmesim.calibrate.points import Point
from nvmesim.calibrate.stack.fit import fit_stack
from nvmesim.catalog.load import quantities
from nvmesim.errors import FitError, InputError, NvmesimError
from nvmesim.measure.control import Progress
from nvmesim.predict.result import Result
from nvmesim.study.validate.predict import PERCENTILES, Change, Naive, Predictor, Value
from nvmesim.study.validate.published import Fit, InputFit, Key, Question, Row, metric, read_set

TOLERANCE: Final = 1e-4
CLOSE: Final = 0.02
"""An input row that no number reaches must be missed by less than this share."""
USUAL_NOISE: Final = 0.03
"""Relative 95 % of an input row whose set states none."""
UNITS: Final = {
    **dict.fromkeys(("base", "die", "channel", "split", "wakeup_half"), (1e6, "us")),
    "commands": (1e3, "k/s"),
}
"""Last word of a number's key -> how it is shown."""


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


def answer(question: Question, progress: Progress | None = None) -> Prediction:
    """Return the predictions of everything that *question* asks, intervals included.

    The intervals are those that `nvmesim run` prints, with the model's error learned without the
    question's own source. A number that a fit chose has the interval of its input row's noise. The
    same is asked of the catalog's profiles alone.
    """
    say = progress or (lambda text, share: None)
    say(f"{question.name}: calibrating", 0.0)
    asked = question
    drive: tuple[Fitted, ...] = ()
    if question.file.drive_fit is not None:
        question, numbers = with_drive(question, question.file.drive_fit)
        again = {change.partition("=")[0] for fit in question.file.fit for change in fit.set}
        drive = tuple(Fitted(n, value, unit) for n, value, unit in numbers if n not in again)
    predictor, fitted = _Calibration(question).run()
    sure = replace(predictor, certainty=True)
    values: dict[Key, Value] = {}
    for i, key in enumerate(question.asked):
        say(f"{question.name}: {key[0]}", (i + 1) / (len(question.asked) + 1))
        values[key] = sure.value(key)
    rates, in_flight, naive = {}, {}, Naive()
    for config in dict.fromkeys(key[0] for key in sure.question.asked):
        if sure.question.file.configs[config].kind != "simulate":
            continue
        scenario = sure.result(config).resolved
        in_flight[config] = sum(g.in_flight for g in scenario.workload if not g.is_open)
        rate = naive.iops(scenario)
        if rate is not None:
            rates[config] = rate
    return Prediction(values, _from_catalog(asked), rates, in_flight, drive + fitted)


def _from_catalog(question: Question) -> dict[Key, Value]:
    """Return what the catalog's parts say; what it lacks or cannot be run is left out."""
    changes = tuple(("*", change) for change in question.from_catalog.set)
    predictor = Predictor(question, changes, certainty=True)
    found: dict[Key, Value] = {}
    for key in (key for key in question.asked if question.from_catalog.says(key[0])):
        try:
            found[key] = predictor.value(key)
        except NvmesimError:
            continue
    return found


def filled(item: Fit, x: float, noise: float = 0.0) -> tuple[Change, ...]:
    """Return the changes of *item* with the number in its place, as fitted to within *noise*.

    >>> fit = Fit(name="n", set=("drives.0.profile.commands={x}k/s",), low=1, high=9, config="c",
    ...           metric="iops")
    >>> filled(fit, 500, 0.1)[0][1][:57]
    'drives.0.profile.commands={ value = "500k/s", low = "450k'
    """
    changes = []
    for change in item.set:
        key, _, text = change.partition("=")
        values = [text.replace("{x}", f"{v:.9g}") for v in (x, x * (1 - noise), x * (1 + noise))]
        shown = values[0]
        if noise and any(part in key for part in (".profile.", ".stack.", ".engine.")):
            try:
                float(shown)
            except ValueError:  # with a unit
                values = [f'"{v}"' for v in values]
            ends = f"low = {values[1]}, high = {values[2]}"
            shown = f'{{ value = {values[0]}, {ends}, basis = "fitted" }}'
        changes.append((item.only, f"{key}={shown}"))
    return tuple(changes)


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
        for fit in self.question.file.fit:
            row = next(row for row in self.question.inputs if row.key == fit.key)
            x, residual = self._solve(fit, row.number, at)
            at = (*at, *filled(fit, x))
            final = (*final, *filled(fit, x, self._noise(fit, row)))
            found.append(Fitted(fit.name, x, fit.unit, fit.only_here, fit.about, residual))
        return Predictor(self.question, final, seen=self.seen), tuple(found)

    def _noise(self, fit: Fit, row: Row) -> float:
        """Relative 95 % of an input row: its range, or the noise that the set states."""
        low, high = row.span
        if high > low:
            return min(0.9, (high - low) / 2 / row.number)
        noise = self.question.file.noise.get(fit.metric, USUAL_NOISE)
        if metric(fit.metric).points:
            noise /= max(row.number, 1e-9)
        return min(0.9, noise)

    def _solve(
        self, fit: Fit, wanted: float, changes: tuple[Change, ...]
    ) -> tuple[float, float]:  # fmt: skip
        """The number between ``low`` and ``high`` for which the input row comes out."""

        def miss(x: float) -> float:
            predictor = Predictor(self.question, (*changes, *filled(fit, x)), seen=self.seen)
            return predictor.value(fit.key).value / wanted - 1

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


# Sets whose drive and stack are fitted as `nvmesim calibrate` does --------------------------------


def with_drive(
    question: Question, asked: InputFit
) -> tuple[Question, tuple[tuple[str, float, str], ...]]:
    """Return *question* with the fitted stack and drive in its scenario, and the numbers found.

    The fit is handed points that are made of input rows and of nothing else; its numbers keep the
    intervals and the joint draws that it found.
    """
    source = question
    if asked.set:
        source = Question.of(read_set((question.folder / asked.set).resolve()))
    rows: dict[str, dict[str, Row]] = {}
    for row in source.inputs:
        rows.setdefault(row.config, {})[row.metric] = row
    points = [_point(name, rows[name], source) for name in rows if "iops" in rows[name]]
    if not points:
        raise InputError(f"{question.name}: drive_fit has no input row of IOPS")
    found = fit_stack(points, ghz=asked.ghz, name="fitted", link=asked.link)
    assert found.drive is not None
    stack, drive = found.profile.model_dump(mode="json"), found.drive.model_dump(mode="json")
    first, *others = question.scenario["drives"]
    scenario = {
        **question.scenario, "server": {**question.scenario["server"], "stack": stack},
        "drives": [{**first, "profile": drive}, *others],
    }  # fmt: skip
    numbers = []
    for where, profile in (("server.stack", found.profile), ("drives.0.profile", found.drive)):
        for key, quantity in quantities(profile):
            if quantity.basis == "fitted":
                scale, unit = UNITS.get(key.rpartition(".")[2], (1.0, ""))
                numbers.append((f"{where}.{key}", quantity.value / scale, unit))
    return replace(question, scenario=scenario), tuple(numbers)


def _point(name: str, rows: Mapping[str, Row], question: Question) -> Point:
    """The point that the input rows of a configuration make."""
    shape = question.file.configs[name].point
    if shape is None:
        raise InputError(f"{question.name}: config {name!r} needs point = [jobs, iodepth]")
    jobs, depth = shape
    iops = rows["iops"].number
    mean, cpu = rows.get("lat_mean_us"), rows.get("thread_cpu_pct")
    return Point(
        label=name,
        read_fraction=1.0,
        random=True,
        block_size=4096,
        jobs=jobs,
        iodepth=depth,
        iops=iops,
        mean_s=mean.number / 1e6 if mean else None,
        percentiles_s={p: rows[m].number / 1e6 for m, p in PERCENTILES.items() if m in rows},
        cpu_s=cpu.number / 100 * jobs / iops if cpu else None,
        per_job_pct=cpu.number if cpu else None,
        source=f"{question.name}, {name}",
    )
