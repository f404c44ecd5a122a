"""The goal file: what must hold, what to minimise, among which candidates, at which prices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from nvmesim.catalog.problems import first_problem
from nvmesim.catalog.toml import outside, read_toml
from nvmesim.errors import InputError
from nvmesim.scenario.fields import Duration, Fraction, PerSecond, Size, Strict

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
