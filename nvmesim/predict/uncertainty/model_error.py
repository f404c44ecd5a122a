"""How far the model is off on servers that others measured, learned from the published sets.

The committed table has a row a measured number: who measured it, its class, whether the drive was
calibrated or taken from the catalog, and the logarithm of measured over predicted. A source is one
vote however many rows it has; classes with few sources borrow from all (`discrepancy`).
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal

from nvmesim.array_types import Floats
from nvmesim.measure.steady import two_sided
from nvmesim.predict.uncertainty.discrepancy import Observed, half_width, population

Kind = Literal["catalog", "calibrated"]
Group = Literal["rate", "middle", "tail"]

COLUMNS: Final = ("source", "set", "config", "metric", "class", "kind", "log_error", "known")
LEAST: Final = 0.02
"""Least standard deviation of the model's error: no server is known to better than its repeats."""
UNKNOWN: Final = math.log(2.0)
"""95 % where the table has no source at all: a factor of two."""
GROUPS: Final[dict[str, Group]] = {
    "iops": "rate", "mib_per_s": "rate", "mean": "rate", "lat_mean_us": "rate",
    "p50": "middle", "clat_p50_us": "middle",
    "p90": "tail", "p95": "tail", "p99": "tail", "p99.9": "tail",
    "clat_p99_us": "tail", "clat_p99_9_us": "tail",
}  # fmt: skip
"""Figure of a prediction, or metric of a set -> errors that are learned together."""


@dataclass(frozen=True)
class Miss:
    """One measured number, and how far the model was off."""

    source: str
    set: str
    config: str
    metric: str
    model_class: str
    kind: Kind
    log_error: float
    """ln (measured / predicted)"""
    known: float
    """Standard deviation that the other parts and the measurement itself explain."""


@dataclass(frozen=True)
class ModelError:
    """The model's part of an interval."""

    half: float
    """95 % half-width, of the logarithm."""
    sources: tuple[str, ...] = ()
    """Of the class itself."""
    off: tuple[float, float] = (0.0, 0.0)
    """Least and largest root mean square error of these sources, relative."""


def model_error(
    model_class: str,
    kind: Kind,
    figure: str = "iops",
    *,
    without: str = "",
    table: Sequence[Miss] | None = None,
) -> ModelError:
    """Return how far the model may be off in *model_class*, *without* one source.

    A class that nobody measured takes the error of a new class: what all sources say of how much
    classes differ. Latencies of which too little is known take at least the error of IOPS.
    """
    rows = shipped() if table is None else tuple(table)
    found = _learned(model_class, kind, GROUPS.get(figure, "rate"), without, rows)
    if GROUPS.get(figure, "rate") != "rate":
        rate = _learned(model_class, kind, "rate", without, rows)
        return ModelError(max(found.half, rate.half), found.sources, found.off)
    return found


@functools.lru_cache(maxsize=512)
def _learned(
    model_class: str, kind: Kind, group: Group, without: str, rows: tuple[Miss, ...]
) -> ModelError:
    mine = _rows(kind, group, without, rows)
    if not mine:
        return ModelError(UNKNOWN)
    own = by_source(r for r in mine if r.model_class == model_class)
    least = two_sided(max(2, len(own))) * LEAST
    half = max(least, half_width(_population(kind, group, without, rows), list(own.values())))
    sizes = [_size(source) for source in own.values()] or [0.0]
    return ModelError(half, tuple(own), (math.expm1(min(sizes)), math.expm1(max(sizes))))


def _rows(kind: Kind, group: Group, without: str, rows: Iterable[Miss]) -> list[Miss]:
    return [r for r in rows if r.kind == kind and GROUPS.get(r.metric) == group
            and r.source != without]  # fmt: skip


@functools.lru_cache(maxsize=64)
def _population(kind: Kind, group: Group, without: str, rows: tuple[Miss, ...]) -> Floats:
    return population(list(by_source(_rows(kind, group, without, rows)).values()))


def by_source(rows: Iterable[Miss]) -> dict[str, Observed]:
    """Source -> its errors and what else is known of each.

    >>> row = Miss("a", "s", "c", "iops", "mixes", "catalog", 0.5, 0.3)
    >>> by_source([row, row])
    {'a': Observed(errors=(0.5, 0.5), known=(0.3, 0.3))}
    """
    grouped: dict[str, list[Miss]] = {}
    for row in rows:
        grouped.setdefault(row.source, []).append(row)
    return {
        name: Observed(tuple(r.log_error for r in each), tuple(r.known for r in each))
        for name, each in sorted(grouped.items())
    }


def _size(source: Observed) -> float:
    return math.sqrt(sum(e**2 for e in source.errors) / len(source.errors))


@functools.cache
def shipped() -> tuple[Miss, ...]:
    """Return the table that comes with the program; empty if there is none.

    Made from calibration/published by ``nvmesim validate --write``.
    """
    file = resources.files("nvmesim.predict.uncertainty") / "model_error.csv"
    if not file.is_file():
        return ()
    return read_table(file.read_text("utf-8"))


def read_table(text: str) -> tuple[Miss, ...]:
    """Return the rows of a table of `write_table`.

    >>> row = Miss("a", "s", "c", "iops", "mixes", "catalog", 0.5, 0.3)
    >>> read_table(write_table([row])) == (row,)
    True
    """
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        Miss(
            row["source"], row["set"], row["config"], row["metric"], row["class"],
            "calibrated" if row["kind"] == "calibrated" else "catalog",
            float(row["log_error"]), float(row["known"]),
        )
        for row in csv.DictReader(lines)
    )  # fmt: skip


def write_table(rows: Iterable[Miss]) -> str:
    """Return *rows* as a comma table, in a fixed order."""
    from io import StringIO

    out = StringIO()
    out.write("# Made by `nvmesim validate --write` from calibration/published; do not edit.\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for r in sorted(rows, key=lambda r: (r.source, r.set, r.config, r.metric, r.kind)):
        writer.writerow([r.source, r.set, r.config, r.metric, r.model_class, r.kind,
                         f"{r.log_error:.4f}", f"{r.known:.4f}"])  # fmt: skip
    return out.getvalue()
