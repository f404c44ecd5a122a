"""What every search over designs shares: its goal, its names, and the limits it holds to."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, PrivateAttr, ValidationError

from nvmesim.catalog.problems import first_problem
from nvmesim.catalog.toml import outside, read_toml
from nvmesim.errors import InputError
from nvmesim.scenario.fields import Duration, Fraction, PerSecond, Size, Strict
from nvmesim.units import format_iops, format_time

# -- the goal file: what must hold, what to minimise, among what, at which prices ----------------

Amount = Annotated[float, Field(ge=0)]


class Constraints(Strict):
    """Requirements of every candidate, in the order in which they are checked."""

    capacity: Size | None = None
    """Usable, at least."""
    survives: int | None = Field(default=None, ge=0)
    """Failures of any drives that no volume loses data by, at least."""
    drives: int | None = Field(default=None, ge=1)
    """At most."""
    slots: int | None = Field(default=None, ge=1)
    """Drive slots of the chassis: at most so many drives, spares included."""
    lanes: int | None = Field(default=None, ge=1)
    """PCIe lanes that drives and adapters take from the sockets, at most."""
    power: Amount | None = None
    """Watts at most, as the price list counts them."""
    price: Amount | None = None
    """At most, in the price list's currency."""
    iops: PerSecond | None = None
    """At least."""
    bandwidth: Annotated[float, Field(gt=0)] | None = None
    """Bytes per second, at least."""
    cpu: Fraction | None = Field(default=None, gt=0, le=1)
    """As the operating system shows it, at most."""
    mean: Duration | None = Field(default=None, gt=0)
    p50: Duration | None = Field(default=None, gt=0)
    p99: Duration | None = Field(default=None, gt=0)
    """Of all requests, at most."""
    p99_9: Duration | None = Field(default=None, gt=0)


class Objective(Strict):
    """Objective that the chosen one has least of."""

    minimize: Literal["price", "power", "drives"] = "price"


class Goal(Strict):
    """A goal file."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("server", "drives", "volume", "workload", "adapters", "run"),
        "this is a scenario: a goal names its file, scenario = 'server.toml', with [candidates] "
        "and [constraints] (docs/howto/choose.md)",
    )
    name: str = ""
    scenario: str | dict[str, Any]
    """The server and its load that candidates change: a file beside the goal, or a table."""
    candidates: dict[str, Any] = Field(min_length=1)
    """Keys and values as `nvmesim sweep --over` takes them."""
    constraints: Constraints
    objective: Objective = Objective()
    failed: int | None = Field(default=None, ge=0)
    """Drives of each volume that are missing while IOPS, latency and CPU are looked at; None: as
    many as it must survive, so that the goal is met with them missing."""
    prices: dict[str, Amount] = Field(default_factory=dict)
    """By catalog name, and "server" for the rest."""
    watts: dict[str, Amount] = Field(default_factory=dict)
    """By catalog name, and "server" for the rest."""
    currency: str = "EUR"
    runner_ups: int = Field(default=3, ge=0)
    """Further candidates that are simulated until so many hold as well."""
    _base: Path = PrivateAttr(default=Path())

    @property
    def missing(self) -> int:
        """Drives of each volume that are missing in the simulation."""
        return self.constraints.survives or 0 if self.failed is None else self.failed

    @property
    def base(self) -> Path:
        """Folder of the goal file."""
        return self._base


def load_goal(path: str | Path) -> Goal:
    """Return the goal in the TOML file *path*; InputError in one line."""
    file = Path(path)
    tables = read_toml(file, InputError)
    elsewhere = outside(tables, file.parent)
    if elsewhere:
        raise InputError(f"{file}: {elsewhere}")
    try:
        return goal_from_dict(tables, file.parent)
    except InputError as error:
        raise error.at(file) from None


def goal_from_dict(tables: Any, base: Path | str = ".") -> Goal:
    """Return the goal in *tables*, shaped as the file is."""
    try:
        goal = Goal.model_validate(tables)
    except ValidationError as error:
        raise InputError(first_problem(error, Goal)) from None
    if not goal.constraints.model_fields_set:
        raise InputError("constraints: there is none; name one such as iops = '3M/s'")
    goal._base = Path(base)
    return goal


# -- names and limits -----------------------------------------------------------------------------

_BY_VALUE: Final = ("raid", "cpu", "profile", "engine", "stack", "layout")
"""Last words of keys whose values say what they are of."""
_WORDS: Final = {
    "count": "drives", "raid": "RAID level", "cpu": "CPU", "ghz": "GHz", "profile": "drive",
    "links": "links between sockets", "outstanding": "outstanding each", "rate": "offered rate",
    "threads_total": "threads in all", "read": "share of reads", "group_thread_cnt": "md workers",
    "spares": "hot spares",
}  # fmt: skip
"""Last words of keys -> what a table calls them."""


def design_name(values: Mapping[str, Any]) -> str:
    """Return the values of a design in words.

    >>> design_name({"volume.raid": "raid5", "drives.0.count": 8})
    'raid5, 8 drives'
    >>> design_name({"drives.*.count": 6, "server.interconnect.links": 2})
    '6 drives each, links between sockets 2'
    """
    words = []
    for (key, value), short in zip(values.items(), short_keys(values), strict=True):
        words.append(value_words(short, value) + " each" * (short == "count" and "*" in key))
    return ", ".join(words)


def value_words(short: str, value: object) -> str:
    """Return a value of a key, of which `short_keys` made *short*, in words.

    >>> value_words("count", 8), value_words("raid", "raid5"), value_words("outstanding", 16)
    ('8 drives', 'raid5', 'outstanding each 16')
    """
    if short == "count":
        return f"{value} drive" + "s" * (str(value) != "1")
    return str(value) if short in _BY_VALUE else f"{heading(short)} {value}"


def heading(short: str) -> str:
    """Return words for a key, of which `short_keys` made *short*.

    >>> heading("count"), heading("stripe_cache"), heading("drives.1.count")
    ('drives', 'stripe cache', 'drives.1.count')
    """
    return _WORDS.get(short, short if "." in short else short.replace("_", " "))


def short_keys(keys: Iterable[str]) -> list[str]:
    """Return the last word of each key, or the whole where two share it."""
    named = list(keys)
    last = [key.rpartition(".")[2] for key in named]
    return [word if last.count(word) == 1 else key for word, key in zip(last, named, strict=True)]


def short_by(value: float, limit: float) -> str:
    """Return how far *value* is from *limit*, never 0.0 % of it.

    >>> short_by(2.5e6, 3e6), short_by(2.9999e6, 3e6), short_by(700.0, 500.0)
    ('17 %', '0.0033 %', '40 %')
    """
    if not limit:
        return f"{value:g}"
    percent = 100 * abs(value / limit - 1)
    return f"{percent:.0f} %" if percent >= 9.5 else f"{percent:.2g} %"


@dataclass(frozen=True)
class LimitMiss:
    """A limit that a load breaks."""

    what: str
    value: float
    limit: float
    sure: bool = True
    """False: only the end of its interval breaks it."""

    @property
    def excess(self) -> float:
        """How far beyond the limit, as a share of it."""
        return abs(self.value / self.limit - 1)

    def words(self) -> str:
        """A missed limit, and by how much.

        >>> LimitMiss("p99", 0.00135, 0.001).words()
        'p99 is 1.35 ms: 35 % above 1 ms'
        >>> LimitMiss("iops", 2.1e6, 3e6).words()
        '2.1M IOPS at most: 30 % short of 3M IOPS'
        """
        if self.what == "iops":
            most, asked = format_iops(self.value), format_iops(self.limit)
            if not self.sure:
                return f"{asked} are reached but not for sure: their interval begins at {most}"
            return f"{most} at most: {short_by(self.value, self.limit)} short of {asked}"
        if math.isinf(self.value):
            return f"{self.what} grows without end: the load has no steady state"
        if math.isnan(self.value):
            return f"{self.what} is not known: too few requests lie beyond it, or in few episodes"
        name = "CPU" if self.what == "cpu" else self.what
        value, limit = (
            f"{100 * v:.3g} %" if self.what == "cpu" else format_time(v)
            for v in (self.value, self.limit)
        )
        if not self.sure:
            return f"{name} is within {limit} but not for sure: its interval ends at {value}"
        if self.value >= 3 * self.limit:
            return f"{name} is {value}: {self.value / self.limit:.2g} times {limit}"
        return f"{name} is {value}: {short_by(self.value, self.limit)} above {limit}"


@dataclass(frozen=True)
class LoadGoal:
    """Limits of a load: seconds, and the share of logical CPUs; None: no such limit."""

    p99: float | None = None
    p99_9: float | None = None
    mean: float | None = None
    cpu: float | None = None
    iops: float | None = None
    """At least; None: as many as there are."""

    def limits(self) -> dict[str, float]:
        """Name -> limit of those that are set, latencies first."""
        every = {"p99": self.p99, "p99.9": self.p99_9, "mean": self.mean, "cpu": self.cpu}
        return {name: limit for name, limit in every.items() if limit is not None}

    def worst(self, values: Mapping[str, float]) -> tuple[float, LimitMiss | None]:
        """How hard *values* press on the limits (1: just met), and the one that they break most.

        >>> LoadGoal(p99=1e-3).worst({"p99": 0.5e-3})
        (0.5, None)
        """
        pressure, worst = 0.0, None
        for name, limit in self.limits().items():
            share = values[name] / limit
            if math.isnan(share):
                return math.inf, LimitMiss(name, math.nan, limit)
            if share > pressure:
                pressure, worst = share, LimitMiss(name, values[name], limit)
        return pressure, worst if pressure > 1 else None

    def words(self) -> str:
        """The goal in words.

        >>> LoadGoal(p99=1e-3, cpu=0.5, iops=3e6).words()
        'p99 within 1 ms, CPU within 50 %, at least 3M IOPS'
        """
        notes = [
            f"CPU within {100 * v:.3g} %" if k == "cpu" else f"{k} within {format_time(v)}"
            for k, v in self.limits().items()
        ]
        return ", ".join(notes + ([f"at least {format_iops(self.iops)}"] if self.iops else []))
