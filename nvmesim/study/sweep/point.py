"""One point of a sweep: a scenario as tables in, one flat row of plain values out.

Finished points stay in the user's cache folder, under an address that their content gives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import shutil
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import BaseModel

from nvmesim.code_cache import cache_folder, read_private, write_private
from nvmesim.errors import NvmesimError
from nvmesim.measure.figures import OpStats
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import RunOptions, simulate
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.version import __version__
from nvmesim.warning import has

KINDS: Final = ("cpu", "thread", "raid-engine", "link", "drive")
PERCENTILES: Final = {50.0: "p50", 90.0: "p90", 99.0: "p99", 99.9: "p99_9", 99.99: "p99_99"}
_OF_OPERATION: Final = ("lat_mean_us", "lat_p50_us", "lat_p99_us", "lat_p99_9_us")
RESULT_COLUMNS: Final = (
    "iops", "iops_low", "iops_high", "bytes_per_s",
    "lat_mean_us", *(f"lat_{name}_us" for name in PERCENTILES.values()),
    "lat_p99_low_us", "lat_p99_high_us", "lat_max_us",
    *(f"{op}_{name}" for op in ("read", "write") for name in ("iops", *_OF_OPERATION)),
    "iops_simulation", "lat_p99_simulation", "outside",
    "cpu_logical", "cpu_physical", "cycles_per_io", "ghz_per_miops",
    "verdict", "station", "fullest", "utilization", "bound_iops", "backlog_per_s", "outstanding",
    *(f"busy_{kind.replace('-', '_')}" for kind in KINDS),
    "requests", "converged", "warnings", "assumptions", "error",
)  # fmt: skip
BETWEEN: Final = " | "
"""Between the warnings of a point, which stand in one cell: no warning has it."""
_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(("verdict", "station", "fullest", "outside", "warnings", "error"), pl.String),
    **dict.fromkeys(("outstanding", "requests", "assumptions"), pl.Int64),
    "converged": pl.Boolean,
}
"""Types of columns that are not pl.Float64."""


@dataclass(frozen=True)
class Settings(RunOptions):
    """How each point is simulated; None: as its scenario says."""

    reliefs: bool = False
    over_time: bool = False
    cache: bool = True

    def plain(self) -> dict[str, Any]:
        """Return what a point's numbers depend on."""
        values = asdict(self)
        del values["cache"]
        values["engine"] = self.engine if isinstance(self.engine, str) else str(self.engine)
        return values


@dataclass(frozen=True)
class SweepJob:
    """One point, ready to be sent to a worker as a line of JSON."""

    number: int
    tables: Mapping[str, Any]
    base: str
    settings: Settings

    def to_text(self) -> str:
        """Return one line of JSON."""
        settings = {**self.settings.plain(), "cache": self.settings.cache}
        return json.dumps([self.number, self.tables, self.base, settings])

    @classmethod
    def from_text(cls, text: str) -> SweepJob:
        """Return the job that `to_text` wrote."""
        number, tables, base, settings = json.loads(text)
        return cls(number, tables, base, Settings(**settings))


@dataclass(frozen=True)
class PointAnswer:
    """A point's row, or the reason that there is none in its ``error``."""

    number: int
    row: dict[str, Any]
    cached: bool = False
    died: bool = False
    """The worker died of it: the answer is not kept, a resumed sweep tries again."""

    def to_text(self) -> str:
        """Return one line of JSON."""
        return json.dumps([self.number, self.row, self.cached, self.died])

    @classmethod
    def from_text(cls, text: str) -> PointAnswer:
        """Return the answer that `to_text` wrote; names of columns are held once for all."""
        number, row, *rest = json.loads(text)
        return cls(number, {sys.intern(k): v for k, v in row.items()}, *rest)


def answer(job: SweepJob) -> PointAnswer:
    """Simulate *job*, or find it in the cache; an input that cannot be gives an ``error``."""
    settings, cached = job.settings, False
    cache = PointCache() if settings.cache and isinstance(settings.engine, str) else None
    try:
        scenario = resolve(scenario_from_dict(job.tables, job.base))
        key = content_of([scenario, settings.plain()]) if cache else ""
        row = cache.get(key) if cache else None
        cached = row is not None
        if row is None:
            row = columns(predict(scenario, settings))
            if cache is not None:
                cache.put(key, row)
    except NvmesimError as error:
        row = {"error": " ".join(str(error).split())}
    return PointAnswer(job.number, row, cached)


def predict(scenario: ResolvedScenario, settings: Settings) -> Result:
    """Simulate as `nvmesim run` does, without what-ifs; Ctrl-C is raised."""
    result = simulate(scenario, settings)
    if has(result.warnings, "interrupted"):
        raise KeyboardInterrupt
    return result


def columns(result: Result) -> dict[str, Any]:
    """Return the row of *result*: latencies in us, from submission to completion."""
    total, cpu, stop = result.total, result.cpu, result.bottleneck
    simulated = {  # half-widths by simulation alone, relative, 95 %
        name: math.expm1(max(result.certainty.figures[name].simulation))
        for name in ("iops", "p99") if name in result.certainty.figures
    }  # fmt: skip
    rate: tuple[float | None, ...] = (total.iops.low, total.iops.high)
    low, high = total.latency.intervals.get("p99", (None, None))
    if not result.certainty.model_class:  # chance alone is no interval of the answer
        rate, low, high = (None, None), None, None
    row: dict[str, Any] = {
        "iops": total.iops.value, "iops_low": rate[0], "iops_high": rate[1],
        "bytes_per_s": total.bytes_per_s.value,
        **_latency(total), "lat_p99_low_us": _us(low), "lat_p99_high_us": _us(high),
        "lat_max_us": total.latency.max * 1e6,
        **_operation(result.read, "read_"), **_operation(result.write, "write_"),
        "iops_simulation": simulated.get("iops"), "lat_p99_simulation": simulated.get("p99"),
        "outside": "; ".join(map(str, result.outside)) or None,
        "cpu_logical": cpu.logical_utilization, "cpu_physical": cpu.physical_utilization,
        "cycles_per_io": cpu.cycles_per_io, "ghz_per_miops": cpu.ghz_per_miops,
        **{name: getattr(stop, name) for name in (
            "verdict", "station", "fullest", "utilization", "bound_iops", "backlog_per_s",
        )},
        "outstanding": result.outstanding,
    }  # fmt: skip
    for kind in KINDS:  # the fullest station of each
        full = max((s.utilization for s in result.stations if s.kind == kind), default=None)
        row[f"busy_{kind.replace('-', '_')}"] = full
    # a percentile of too few samples is empty, which says it
    warnings = [w for w in result.warnings if w.code != "few-samples"]
    row |= {
        "requests": result.requests, "converged": result.converged,
        "warnings": BETWEEN.join(warnings) or None, "assumptions": len(result.assumptions),
        "error": None,
    }  # fmt: skip
    plain = {key: v.item() if hasattr(v, "item") else v for key, v in row.items()}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v
            for key, v in plain.items()}  # fmt: skip


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _latency(stats: OpStats) -> dict[str, float | None]:
    found = {f"lat_{n}_us": _us(stats.latency.percentiles.get(p)) for p, n in PERCENTILES.items()}
    return {"lat_mean_us": stats.latency.mean * 1e6, **found}


def _operation(stats: OpStats | None, prefix: str) -> dict[str, float | None]:
    if stats is None:
        return {}
    latency = _latency(stats)
    return {f"{prefix}iops": stats.iops.value, **{prefix + k: latency[k] for k in _OF_OPERATION}}


def to_frame(
    keys: Sequence[str], points: Iterable[Sequence[Any]], rows: Sequence[Mapping[str, Any]]
) -> pl.DataFrame:
    """Return one row a point: the values of *keys*, then its results (null beside an error)."""
    swept = list(zip(*points, strict=True)) or [() for _ in keys]
    parameters = [parameter_column(k, v) for k, v in zip(keys, swept, strict=True)]
    results = [
        pl.Series(name, [row.get(name) for row in rows], dtype=_TYPES.get(name, pl.Float64))
        for name in RESULT_COLUMNS if name not in keys
    ]  # fmt: skip
    return pl.DataFrame([*parameters, *results])


def parameter_column(key: str, values: Sequence[Any]) -> pl.Series:
    """Return whole numbers, numbers, flags or texts; a mixture or a table becomes text."""
    kinds = {type(v) for v in values}
    for python, polars in ((int, pl.Int64), (bool, pl.Boolean)):
        if kinds <= {python}:
            return pl.Series(key, values, dtype=polars)
    if kinds <= {int, float}:
        return pl.Series(key, [float(v) for v in values], dtype=pl.Float64)
    texts = [v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
    return pl.Series(key, texts, dtype=pl.String)


# -- finished points, by their content -------------------------------------------------------------

KEPT_VERSIONS: Final = 4
"""Folders of other versions that are kept, newest first."""
_IGNORED: Final = ("name", "ignored", "table")
"""Parts of a scenario that no number depends on."""
_NOT_PASSED: Final = {"__pycache__", "calibrate", "cli", "describe", "show", "study", "ui"}
"""Packages that a point does not pass, but for this module: how it is asked for, drawn, printed."""
_PASSED: Final = "nvmesim/study/sweep/point.py"


def content_of(value: Any) -> str:
    """Return 32 hexadecimal digits that stand for *value*: models, dataclasses, files, plain parts.

    >>> content_of({"a": 1, "b": 2}) == content_of({"b": 2, "a": 1})
    True
    """
    models: dict[int, Any] = {}  # equal parts are written out once

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, BaseModel):
            if id(value) not in models:
                models[id(value)] = value.model_dump(mode="json")
            return models[id(value)]
        if dataclasses.is_dataclass(value):
            fields = (f.name for f in dataclasses.fields(value) if f.name not in _IGNORED)
            return {name: plain(getattr(value, name)) for name in fields}
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if isinstance(value, Path) and value.is_file():
            found = value.stat()
            return file_digest(value, found.st_mtime_ns, found.st_size)
        return str(value)

    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=64)
def file_digest(path: Path, changed_ns: int, size: int) -> str:
    """Return the digest of a file; it is read again when its time or size has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def about() -> tuple[str, str]:
    """Return the version of the program and the fingerprint of program and catalog."""
    return __version__, fingerprint()


@functools.cache
def fingerprint() -> str:
    """What stands for the text of every module that a point passes, and of the catalog."""
    return digest_of(passed_files())[:16]


def passed_files() -> dict[str, Traversable]:
    """Return the modules and tables that a point depends on, by their path."""
    own = resources.files("nvmesim").joinpath("study/sweep/point.py")
    return {**dict(package_files(_NOT_PASSED)), _PASSED: own}


def package_files(skipped: Container[str]) -> Iterator[tuple[str, Traversable]]:
    """Yield path and file of each module and table of the package but those in *skipped* rooms."""

    def below(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
        for item in folder.iterdir():
            name = f"{path}/{item.name}"
            if item.is_dir() and item.name not in skipped:
                yield from below(item, name)
            elif item.name.endswith((".py", ".toml", ".csv")):
                yield name, item

    yield from below(resources.files("nvmesim"), "nvmesim")


def digest_of(files: Mapping[str, Traversable]) -> str:
    """Return what stands for this version with the content of *files*."""
    digest = hashlib.sha256(__version__.encode())
    for name, file in sorted(files.items()):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


class PointCache:
    """Points of this version of program and catalog; what cannot be read is not there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.all = (folder or cache_folder()) / "points"
        self._is_pruned = False

    def _file(self, key: str) -> Path:
        return self.all / fingerprint() / key[:2] / f"{key[2:]}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the point at *key*, None if there is none or it is damaged."""
        try:
            found = json.loads(read_private(self._file(key)))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and "iops" in found else None

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Keep *row*; a full disk or a folder that cannot be written only costs time later."""
        with contextlib.suppress(OSError):
            write_private(self._file(key), json.dumps(row).encode())
            if self._is_pruned:
                return
            self._is_pruned = True
            others = [f for f in self.all.iterdir() if f.is_dir() and f.name != fingerprint()]
            others.sort(key=lambda f: f.stat().st_mtime, reverse=True)
            for old in others[KEPT_VERSIONS - 1 :]:
                shutil.rmtree(old, ignore_errors=True)
