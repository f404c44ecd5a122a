"""A set as it lies in its folder: what was measured, which rows may be looked at; a new one.

The files of a new set are filled from those in `new_set`.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError

from nvmesim.capture.capture import Captures
from nvmesim.catalog.problems import first_problem
from nvmesim.catalog.quantity import Frozen
from nvmesim.catalog.toml import read_toml, toml_text, toml_value
from nvmesim.errors import InputError, nearest
from nvmesim.files import write_text
from nvmesim.scenario.load import to_text
from nvmesim.scenario.schema import Scenario

Role = Literal["input", "target", "shown"]
Key: TypeAlias = tuple[str, str, str]
"""A question: configuration, metric, and the configuration it is compared with."""
ROLES: Final = get_args(Role)
COLUMNS: Final = (
    "config", "metric", "measured", "low", "high", "role", "reference", "note",
)  # fmt: skip
FOLDER: Final = Path("calibration") / "published"


@dataclass(frozen=True)
class Metric:
    """One kind of number of a row."""

    name: str
    unit: str
    points: bool = False
    """Errors are differences in the metric's own unit instead of shares of the measured value."""
    most: float = float("inf")


METRICS: Final = {
    "iops": Metric("IOPS", "/s"),
    "mib_per_s": Metric("MiB/s", "MiB/s"),
    "lat_mean_us": Metric("mean latency", "us"),
    "clat_p50_us": Metric("p50", "us"),
    "clat_p99_us": Metric("p99", "us"),
    "clat_p99_9_us": Metric("p99.9", "us"),
    "latency_ms": Metric("mean latency", "ms"),
    "cpu_pct": Metric("CPU", "%", points=True, most=100),
    "thread_cpu_pct": Metric("CPU of a thread", "%", points=True, most=101),
    "loss_pct": Metric("loss", "%", points=True, most=100),
    "busy_pct": Metric("drive busy", "%", points=True, most=100),
    "ratio": Metric("ratio of IOPS", ""),
    "ghz_per_miops": Metric("GHz for 1M IOPS", "GHz"),
    "ghz": Metric("GHz", "GHz"),
    "carries": Metric("is enough", "", points=True, most=1),
}
"""By name. ``loss_pct`` and ``ratio`` compare IOPS with those of the row's reference;
``busy_pct:3`` is of drive 3; ``thread_cpu_pct`` is per submitting thread, % of a logical CPU."""


def metric(name: str) -> Metric:
    """Return the metric called *name* ("busy_pct:3" is "busy_pct"); InputError if there is none.

    >>> metric("iops").unit, metric("cpu_pct").points
    ('/s', True)
    """
    base = name.partition(":")[0]
    if base not in METRICS:
        raise InputError(f"metric {name!r} is unknown; {nearest(base, METRICS)}")
    return METRICS[base]


class Config(Frozen):
    """One configuration of the set: what differs from its scenario file."""

    kind: Literal["simulate", "ceiling", "sizing"] = "simulate"
    set: tuple[str, ...] = ()
    """Changes of the scenario, as `nvmesim run --set`."""
    point: tuple[int, int] | None = None
    """(jobs, iodepth) of a point that a drive fit may use."""
    link: str = ""
    """Of a ceiling: the link whose command rate is asked for."""
    iops: float = 0
    """Of a sizing: what is asked for."""
    cpu: str = ""
    sockets: int = 2


class Fit(Frozen):
    """One number that is chosen so that one input row comes out."""

    name: str
    unit: str = ""
    set: tuple[str, ...] = Field(min_length=1)
    """Changes with ``{x}`` in the place of the number."""
    only: str = "*"
    """Configurations that it concerns, as a glob of their names."""
    low: float
    high: float
    config: str
    metric: str
    reference: str = ""
    only_here: bool = False
    """True if the parameter exists for this set alone."""
    about: str = ""

    @property
    def key(self) -> Key:
        """The input row that it makes come out."""
        return self.config, self.metric, self.reference


class InputFit(Frozen):
    """The drive and its stack are fitted as `nvmesim calibrate --stack` does, on input rows."""

    set: str = ""
    """Folder of the set whose inputs are used, relative to this one; empty: this one."""
    ghz: float = Field(gt=0)
    link: str = "pcie4 x4"


class FromCatalog(Frozen):
    """What one would say of the set's server without its inputs, from the catalog."""

    set: tuple[str, ...] = ()
    """Changes of every configuration: the catalog's parts in place of what the set describes."""
    lacks: str = ""
    """What neither the catalog nor the source says; nothing is predicted without it."""
    only: str = "*"
    """Configurations that need what is lacking, as a glob of their names."""
    why: str = ""

    def says(self, config: str) -> bool:
        """Return whether there is a prediction of *config* without the set's inputs."""
        return not self.lacks or not fnmatchcase(config, self.only)


class SetFile(Frozen):
    """``set.toml``."""

    name: str
    title: str
    text: str = ""
    source: str
    hardware: str
    method: str
    grade: Literal["files", "table", "rounded", "words"]
    story: str = ""
    open: tuple[str, ...] = ()
    """Unexplained differences, with the best hypothesis."""
    scored: bool = False
    budget: dict[str, Annotated[float, Field(gt=0)]]
    noise: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    noise_why: str = ""
    fit: tuple[Fit, ...] = ()
    uncertain: tuple[dict[str, Any], ...] = ()
    """Numbers that the set does not determine, with the range that each may have: for readers."""
    drive_fit: InputFit | None = None
    catalog: FromCatalog | None = None
    configs: dict[str, Config]


@dataclass(frozen=True)
class Row:
    """One measured number; a statement without a number is a range."""

    config: str
    metric: str
    measured: float | None
    low: float | None
    high: float | None
    role: Role
    reference: str = ""
    note: str = ""

    @property
    def key(self) -> Key:
        """The question that it answers."""
        return self.config, self.metric, self.reference

    @property
    def number(self) -> float:
        """The measured value, or the middle of the range."""
        low, high = self.span
        return (low + high) / 2

    @property
    def span(self) -> tuple[float, float]:
        """The range, or twice the measured value."""
        low, high = (self.low, self.high) if self.measured is None else (self.measured,) * 2
        assert low is not None
        assert high is not None
        return low, high


@dataclass(frozen=True)
class Published:
    """A set: its file, its rows, its scenario."""

    folder: Path
    file: SetFile
    rows: tuple[Row, ...]
    scenario: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the set."""
        return self.file.name

    @property
    def from_catalog(self) -> FromCatalog:
        """What the catalog says of the set; of a drive that the set describes itself, nothing.

        Such numbers stand where a fit's will be: what they miss is not an error of the catalog.
        """
        if self.file.catalog is not None:
            return self.file.catalog
        drives = [drive.get("profile") for drive in self.scenario.get("drives", ())]
        if any(isinstance(drive, dict) and "extends" not in drive for drive in drives):
            return FromCatalog(lacks="the drive, which the set describes itself")
        return FromCatalog()

    @property
    def inputs(self) -> tuple[Row, ...]:
        """Rows that a fit may see."""
        return tuple(row for row in self.rows if row.role == "input")


@dataclass(frozen=True)
class Question(Published):
    """All of a set that calibration and prediction see: its rows are the inputs alone."""

    asked: tuple[Key, ...] = ()
    """Of every row, inputs included."""

    @classmethod
    def of(cls, published: Published) -> Question:
        """Return the question that *published* poses."""
        asked = tuple(row.key for row in published.rows)
        return cls(published.folder, published.file, published.inputs, published.scenario, asked)


def find_sets(names: tuple[str, ...] = ()) -> list[Path]:
    """Return the folders of the sets called *names* (or that are folders), or of all known sets.

    They are looked for in ``calibration/published`` here, beside the package (a source tree), and
    in the package (an installed one).
    """
    package = Path(__file__).resolve().parent
    roots = [FOLDER, package.parents[2] / FOLDER, package / "sets"]
    known: dict[str, Path] = {}
    for root in roots:
        if root.is_dir():
            for file in sorted(root.glob("*/set.toml")):
                known.setdefault(file.parent.name, file.parent)
    if not names and not known:
        raise InputError(f"no sets in {FOLDER}; name the folder of a set")
    found = []
    for name in names or sorted(known):
        folder = known.get(name, Path(name))
        if name not in known and not (folder / "set.toml").is_file():
            if folder.is_dir():
                hint = f"`nvmesim validate new {name}` makes one"
                raise InputError(f"{name}: no set.toml in it; {hint}")
            raise InputError(f"no set {name!r}; {nearest(name, known)}")
        found.append(folder)
    return found


def read_set(folder: Path) -> Published:
    """Return the set in *folder*; InputError in one line for whatever is wrong with it."""
    path = folder / "set.toml"
    tables = read_toml(path, InputError)
    try:
        file = SetFile.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error, SetFile)}") from None
    rows = _read_rows(folder / "rows.csv")
    for problem in _problems(file, rows):
        name, _, text = problem.partition(": ")
        raise InputError(f"{folder / name}: {text}")
    scenario: dict[str, Any] = {}
    if any(config.kind != "ceiling" for config in file.configs.values()):
        scenario = read_toml(folder / "scenario.toml", InputError)
    return Published(folder, file, rows, scenario)


def _read_rows(path: Path) -> tuple[Row, ...]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(lines)
    found = tuple(reader.fieldnames or ())
    if "role" not in found:
        raise InputError(f"{path}: no column role; each row is one of {', '.join(ROLES)}")
    for name in found:
        if name not in COLUMNS:
            raise InputError(f"{path}: column {name!r} is unknown; {nearest(name, COLUMNS)}")
    return tuple(_row(path, number, cells) for number, cells in enumerate(reader, start=1))


def _row(path: Path, number: int, cells: dict[str, str]) -> Row:
    where = f"{path}: row {number}"
    text = {key: (cells.get(key) or "").strip() for key in COLUMNS}
    if text["role"] not in ROLES:
        message = f"role is {text['role']!r}" if text["role"] else "role is missing"
        raise InputError(f"{where}: {message}; one of {', '.join(ROLES)}")
    what = metric(text["metric"])
    measured, low, high = (
        _number(f"{where}: {key} is {text[key]!r}", text[key], f"{text['metric']} is a plain "
                f"number in {what.unit or 'no unit'}") for key in ("measured", "low", "high")
    )  # fmt: skip
    if measured is None and (low is None or high is None):
        raise InputError(f"{where}: neither measured nor low and high")
    if low is not None and high is not None and low > high:
        raise InputError(f"{where}: low is {low:g}, above high, {high:g}")
    if max(n for n in (measured, low, high) if n is not None) > what.most:
        raise InputError(f"{where}: {text['metric']} is in {what.unit}, {what.most:g} at most")
    needs = text["metric"] in ("loss_pct", "ratio")
    if needs != bool(text["reference"]):
        need = "needs a reference" if needs else "has a reference and compares nothing"
        raise InputError(f"{where}: {text['metric']} {need}")
    role: Any = text["role"]
    return Row(text["config"], text["metric"], measured, low, high, role, text["reference"],
               text["note"])  # fmt: skip


def _number(what: str, text: str, meant: str) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        raise InputError(f"{what}; units are not mixed: {meant}") from None
    if value is not None and not math.isfinite(value):
        raise InputError(f"{what}; a finite number")
    return value


def _problems(file: SetFile, rows: tuple[Row, ...]) -> Iterator[str]:
    """Yield where roles, budgets and names do not fit together."""
    if not file.budget:
        yield "set.toml: budget is empty; an error that is allowed, per metric"
    if not any(row.role != "input" for row in rows):
        yield "rows.csv: no row is a target or shown"
    targets = [row for row in rows if row.role == "target"]
    if targets and all(restates(row, rows) for row in targets):
        yield ("rows.csv: every target restates an input or is arithmetic on one; a set needs a "
               "target that a prediction can miss")  # fmt: skip
    for name in (name for row in rows for name in (row.config, row.reference) if name):
        if name not in file.configs:
            yield f"rows.csv: no config {name!r}; {nearest(name, file.configs)}"
    for name in (*file.budget, *file.noise):
        metric(name)
    seen: dict[Key, Role] = {}
    for row in rows:
        what, base = f"{row.config}, {row.metric}", row.metric.partition(":")[0]
        if row.key in seen:
            is_both = {seen[row.key], row.role} == {"input", "target"}
            yield f"rows.csv: {what} is {'an input and a target' if is_both else 'there twice'}"
        seen[row.key] = row.role
        if row.role == "target" and row.measured is not None and base not in file.budget:
            yield f"set.toml: budget has nothing for {base}, which is a target"
    for fit in file.fit:
        named = f"set.toml: fit {fit.name!r}:"
        found = seen.get(fit.key)
        if found != "input":
            text = f"is a {found}" if found else "is not a row"
            yield f"{named} {fit.config}, {fit.metric} {text}; only an input"
        if not any("{x}" in change for change in fit.set):
            yield f"{named} no {{x}} in set, nothing would change"


def restates(row: Row, rows: Sequence[Row]) -> bool:
    """Return whether *row* is an input said again, or arithmetic on one: N over its IOPS."""
    for given in (r for r in rows if r.role == "input" and r.config == row.config):
        both = {given.metric, row.metric}
        if given.metric == row.metric or both == {"iops", "lat_mean_us"}:
            return given.reference == row.reference
    return False


def stack_of(config: Config) -> frozenset[str]:
    """Return how the stack of *config* differs from the set's own.

    >>> sorted(stack_of(Config(set=("drives.0.count=2", "server.stack.polled=false"))))
    ['server.stack.polled=false']
    """
    return frozenset(change for change in config.set if change.startswith("server.stack"))


def new_set(folder: Path) -> list[Path]:
    """Write a set to start from into *folder*, which must be new or empty; return its files."""
    name = toml_text(_made(folder))
    files = ("set.toml", "rows.csv", "scenario.toml")
    return [_written(folder / file, _filled(file, name=name)) for file in files]


def set_of_rows(folder: Path, scenario: Scenario, captures: Captures) -> list[Path]:
    """Write a set whose targets are the rows of *captures*, measured on the server of *scenario*.

    InputError if no row states its load; rows that do not are left out, and counted in set.toml.
    """
    from nvmesim.scenario.resolve import resolve
    from nvmesim.study.diagnosis.evidence import on_drives, rows_of

    found, left_out = rows_of(captures)
    server = resolve(scenario)
    rows = {f"{n}: {row.label}": on_drives(row, server) for n, row in enumerate(found, 1)}
    name = _made(folder)
    loads = {label: f"workload=[{toml_value(dict(row.workload))}]" for label, row in rows.items()}
    configs = "\n".join(
        f"{toml_text(label)} = {{ set = [{toml_text(load)}] }}" for label, load in loads.items()
    )
    method = f"{len(rows)} rows of captures" + (f", {len(left_out)} left out" if left_out else "")
    head = "config,metric,measured,low,high,role,reference,note"
    targets = [f"{json.dumps(label)},iops,{row.iops:.6g},,,target,," for label, row in rows.items()]
    tables = scenario.to_dict()
    for drive in tables["drives"]:
        file = scenario.base / str(drive["profile"])
        if isinstance(drive["profile"], str) and file.suffix == ".toml":
            drive["profile"] = os.path.relpath(file, folder)
    texts = {
        "set.toml": _filled(
            "measured.toml", name=toml_text(name), folder=str(folder), configs=configs,
            title=toml_text(scenario.name or name), method=toml_text(method),
        ),
        "rows.csv": "\n".join([head, *targets, ""]),
        "scenario.toml": to_text(tables),
    }  # fmt: skip
    return [_written(folder / file, text) for file, text in texts.items()]


def _made(folder: Path) -> str:
    """Make *folder*, which must be new or empty; return its name."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there already; name a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve().name


def _filled(file: str, **values: str) -> str:
    text = (resources.files(__package__) / "new_set" / file).read_text("utf-8")
    return Template(text).safe_substitute(values)


def _written(path: Path, text: str) -> Path:
    write_text(path, text)
    return path
