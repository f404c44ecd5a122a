"""How far the model is off, learned from what others measured, as a function of what is known.

The logarithm of measured over predicted is a t-distribution about 0. The logarithm of its scale is
linear in the covariates of where a prediction stands (`standing`); what numbers, misfit and repeats
explain of a row adds to its variance. How many scales an interval reaches is learned for each side:
what a model leaves out mostly slows a server. Coefficients are those of greatest posterior density:
normal priors shrink all but the first to 0, and a source has a vote that hardly grows with its rows
(design effect of alike rows). The committed table has a row a measured number; `without` leaves one
source out. Sources: Gelman et al., "Bayesian Data Analysis", 3rd ed., chapter 17 (robust
regression); Kish, "Survey Sampling", 1965 (design effect); Kennedy and O'Hagan 2001 (discrepancy).
"""

import csv
import functools
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import TypeAdapter

from nvmesim.array_types import Floats
from nvmesim.files import write_text
from nvmesim.measure.steady import two_sided
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.predict.uncertainty.standing import AWAY, NAMES, Evidence, Standing

Group = Literal["rate", "middle", "tail"]
EVIDENCE: Final[tuple[Evidence, ...]] = ("catalog", "client", "near", "far")

FREEDOM: Final = 4.0
"""Degrees of freedom: heavy tails, so that one wild source does not widen all. Source: Gelman et
al., chapter 17, as the usual choice."""
LEVEL: Final = 0.95
"""Share of measured numbers that an interval is to hold."""
COVERED: Final = 0.93
"""Share that it must hold of sources that were left out, one vote a source."""
MANY: Final = 20
"""Sources from which on a kind of evidence alone tells how far its intervals reach, and `COVERED`
is asked for: of fewer, one source's wild row would set it."""
TIE: Final = 1.05
"""Scores that are so near the best are as good: the narrowest width is taken. Over which sources
there happen to be they scatter by a third (bootstrap)."""
STEPS: Final = 20
"""Multiples tried for each doubling of the scale of latencies."""
REACHES: Final = np.arange(0.0, 10.0, 0.125)
"""Scales that an interval is tried to reach to a side beyond the least."""
ALIKE: Final = 0.5
"""Correlation of the errors of one source's rows. Assumed; by the first 22 sources 0.3 to 0.7."""
FIRST: Final = (-2.0, 1.0)
"""Prior of the logarithm of the scale itself: mean and standard deviation."""
OTHERS: Final = 0.5
"""Prior standard deviation of every other coefficient."""
LEAST: Final = 0.02
"""Least scale: no server is known to better than its repeats."""
UNKNOWN: Final = math.log(2.0)
"""95 % where there is no table: a factor of two."""
GROUPS: Final[dict[str, Group]] = {
    "iops": "rate", "mib_per_s": "rate", "mean": "rate", "lat_mean_us": "rate",
    "p50": "middle", "clat_p50_us": "middle",
    "p90": "tail", "p95": "tail", "p99": "tail", "p99.9": "tail",
    "clat_p99_us": "tail", "clat_p99_9_us": "tail",
}  # fmt: skip
"""Figure of a prediction, or metric of a set -> errors that are learned together."""
RATES: Final = ("iops", "mib_per_s")
"""Those that are larger on a faster server; the others are latencies."""


@dataclass(frozen=True)
class Miss:
    """One measured number, and how far the model was off."""

    source: str
    set: str
    config: str
    metric: str
    log_error: float
    """ln (measured / predicted)"""
    known: float
    """Standard deviation that the other parts and the measurement itself explain."""
    standing: Standing
    room: tuple[float, float] = (math.inf, math.inf)
    """How far the logarithm may lie below and above the prediction, by the drives' rows"""


@dataclass(frozen=True)
class ModelError:
    """The model's part of an interval."""

    span: tuple[float, float]
    """95 %: how far the logarithm of the figure may lie below and above"""
    sources: tuple[str, ...] = ()
    """Of its class, and of its kind: calibrated or from the catalog."""
    off: tuple[float, float] = (0.0, 0.0)
    """Least and largest root mean square error of these sources, relative."""

    @property
    def half(self) -> float:
        """Half the width, of the logarithm."""
        return sum(self.span) / 2


def model_error(
    standing: Standing, figure: str = "iops", *, without: str = "",
    table: Sequence[Miss] | None = None,
) -> ModelError:  # fmt: skip
    """Return how far the model may be off where a prediction stands, *without* one source.

    Latencies are off as rates are, or a multiple of that (`beyond_rates`).
    """
    rows = shipped() if table is None else tuple(table)
    group = GROUPS.get(figure, "rate")
    if not rows:
        return ModelError((UNKNOWN, UNKNOWN))
    z = np.array([standing.covariates()])
    kind = standing.evidence
    slower, faster = _shipped()["reach"][group][kind] if table is None else reach(group, kind, rows)
    is_shipped = table is None and not without
    h = (
        np.array(list(_shipped()["scale"]["rate"].values()))
        if is_shipped
        else learned(without, rows)
    )
    more = _shipped()["more"][group]["times"] if is_shipped else beyond_rates(group, without, rows)
    own = LEAST if standing.fitted else float(scales(z, h)[0])
    scale = max(LEAST, more * own)
    like = (standing.model_class, standing.kind, group)
    sizes = _shipped_sizes(like, without) if table is None else _sizes(rows, like, without)
    least, most = min(sizes.values(), default=0.0), max(sizes.values(), default=0.0)
    span = (slower * scale, faster * scale) if figure in RATES else (faster * scale, slower * scale)
    return ModelError(span, tuple(sorted(sizes)), (math.expm1(least), math.expm1(most)))


Alike = tuple[str, str, Group]
"""Class, kind and group of figures of a row."""


def _sizes(rows: Sequence[Miss], like: Alike, without: str) -> dict[str, float]:
    """Source -> root mean square of its errors in *rows* of this sort."""
    mine: dict[str, list[float]] = {}
    for row in rows:
        found = (row.standing.model_class, row.standing.kind, GROUPS[row.metric])
        if row.source != without and found == like:
            mine.setdefault(row.source, []).append(row.log_error)
    return {
        source: math.sqrt(sum(e * e for e in each) / len(each)) for source, each in mine.items()
    }


@functools.lru_cache(maxsize=128)
def _shipped_sizes(like: Alike, without: str) -> dict[str, float]:
    return _sizes(shipped(), like, without)


def scales(covariates: Floats, coefficients: Floats) -> Floats:
    """Return float64[n]: the scales of float64[n, covariates]."""
    return np.asarray(np.exp(covariates @ coefficients))


@functools.lru_cache(maxsize=128)
def learned(without: str, rows: tuple[Miss, ...]) -> Floats:
    """Return float64[covariates]: coefficients of the logarithm of the scale of rates."""
    from scipy.optimize import minimize

    mine = _of("rate", without, rows)
    start = np.array([FIRST[0], *[0.0] * (len(NAMES) - 1)])
    if mine is None:
        return start
    z, error, known, votes = mine

    def cost(h: Floats) -> tuple[float, Floats]:
        own = scales(z, h) ** 2
        variance = own + known**2
        ratio = error**2 / variance
        per_row = (FREEDOM + 1) / 2 * np.log1p(ratio / FREEDOM) + np.log(variance) / 2
        slope = (1 - (FREEDOM + 1) * ratio / (FREEDOM + ratio)) * own / variance
        prior = np.concatenate([[(h[0] - FIRST[0]) / FIRST[1]], h[1:] / OTHERS])
        sds = np.array([FIRST[1], *[OTHERS] * (len(h) - 1)])
        return float(votes @ per_row + prior @ prior / 2), z.T @ (votes * slope) + prior / sds

    ends = [(0.0 if name in AWAY else None, None) for name in NAMES]
    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", bounds=ends).x)


@functools.lru_cache(maxsize=256)
def beyond_rates(group: Group, without: str, rows: tuple[Miss, ...]) -> float:
    """Return how many times the scale of rates that of *group* is: the likeliest, 1 at least."""
    mine = _of(group, without, rows)
    if group == "rate" or mine is None:
        return 1.0
    z, error, known, votes = mine
    own = scales(z, learned(without, rows))

    def cost(times: float) -> float:
        variance = (times * own) ** 2 + known**2
        tail = (FREEDOM + 1) / 2 * np.log1p(error**2 / variance / FREEDOM)
        return float(votes @ (tail + np.log(variance) / 2))

    return min((1 + i / STEPS for i in range(4 * STEPS)), key=cost)


def _of(
    group: Group, without: str, rows: tuple[Miss, ...]
) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Covariates, errors, what is known of them, and votes of *group*'s rows; None without any."""
    mine = [r for r in rows if GROUPS[r.metric] == group and r.source != without]
    if not mine:
        return None
    names = [r.source for r in mine]
    votes = [1 / (1 + (names.count(name) - 1) * ALIKE) for name in names]
    error, known = np.array([(r.log_error, r.known) for r in mine]).T
    return np.array([r.standing.covariates() for r in mine]), error, known, np.array(votes)


@functools.cache
def shipped() -> tuple[Miss, ...]:
    """Return the table that comes with the program; empty if there is none.

    Made by ``nvmesim validate --write`` and ``nvmesim validate --held-out --write``.
    """
    return tuple(row for name in TABLES for row in table_of(name))


def table_of(name: str) -> tuple[Miss, ...]:
    """Return the rows of one of `TABLES`."""
    file = _folder() / name
    return read_table(file.read_text("utf-8")) if file.is_file() else ()


TABLES: Final = ("model_error.csv", "held_out_error.csv")
"""Errors on the published sets, and on held-out rows of further sources."""


def _folder() -> Path:
    return Path(str(resources.files("nvmesim.predict.uncertainty")))


@functools.cache
def _shipped() -> dict[str, dict[str, dict[str, Any]]]:
    file = _folder() / "model_error.json"
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(file.read_text("utf-8"))
    return found


def read_table(text: str) -> tuple[Miss, ...]:
    """Return the rows of a table of `write_table`.

    >>> row = Miss("a", "s", "c", "iops", 0.5, 0.3, Standing("mixes", rows=3, moved=1.0))
    >>> read_table(write_table([row])) == (row,)
    True
    """
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return TypeAdapter(tuple[Miss, ...]).validate_python([
        {**row, "standing": row | {"moved": row["moved"] or None}, "room": (row["down"], row["up"])}
        for row in csv.DictReader(lines)
    ])  # fmt: skip


def write_table(rows: Iterable[Miss]) -> str:
    """Return *rows* as a comma table, in a fixed order."""
    out = io.StringIO()
    out.write("# Made by `nvmesim validate --write` (--held-out); do not edit.\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["source", "set", "config", "metric", "log_error", "known",
                     *(f.name for f in fields(Standing)), "down", "up"])  # fmt: skip
    for r in sorted(rows, key=lambda r: (r.source, r.set, r.config, r.metric, r.standing.rows)):
        numbers = [f"{x:.3f}" if isinstance(x, float) else x for x in astuple(r.standing)]
        off = f"{r.log_error:.4f}", f"{r.known:.4f}"
        ends = (f"{x:.3f}" for x in r.room)
        writer.writerow([r.source, r.set, r.config, r.metric, *off, *numbers, *ends])
    return out.getvalue()


def write_learned(name: str, rows: Iterable[Miss]) -> Path:
    """Write one of `TABLES`, and the coefficients that both tell; return where."""
    path = _folder() / name
    write_text(path, write_table(rows))
    shipped.cache_clear()
    _shipped.cache_clear()
    groups: tuple[Group, ...] = ("rate", "middle", "tail")
    rows = shipped()
    found = {
        "scale": {
            "rate": {n: round(float(h), 4) for n, h in zip(NAMES, learned("", rows), strict=True)}
        },
        "more": {g: {"times": round(beyond_rates(g, "", rows), 3)} for g in groups},
        "reach": {g: {e: reach(g, e, rows) for e in EVIDENCE} for g in groups},
    }
    write_text(path.with_name("model_error.json"), json.dumps(found, indent=1) + "\n")
    return path


@functools.lru_cache(maxsize=32)
def reach(group: Group, evidence: Evidence, table: tuple[Miss, ...]) -> tuple[float, float]:
    """Return how many scales an interval reaches to the slower and to the faster side.

    The best on left-out sources: rates of the same *evidence* tell, all where these are of few
    sources; of latencies all, or far rows would be surer than near ones. The least mean interval
    score of those that cover `COVERED`, one vote a source; at least what Student's t tells of as
    many. Sources: Gneiting and Raftery 2007 (interval score); Dunn, Wasserman and Ramdas 2022
    (conformal prediction, one vote a group).
    """
    every = [r for r in table if GROUPS[r.metric] == group]
    rows = [r for r in every if r.standing.evidence == evidence]
    if group != "rate" or len({r.source for r in rows}) < MANY:
        rows = every
    names = [r.source for r in rows]
    count = len(set(names))
    least = two_sided(max(2, count))
    if count < 2:
        return least, least
    scale = np.maximum(LEAST, [
        beyond_rates(group, r.source, table)
        * math.exp(float(np.array(r.standing.covariates()) @ learned(r.source, table)))
        for r in rows
    ])  # fmt: skip
    votes = np.array([1 / names.count(name) for name in names])
    votes /= votes.sum()
    known = Z95 * np.array([r.known for r in rows])
    tried = least + REACHES
    scores, missed = zip(
        *(_scored(rows, votes, known, tried[:, None] * scale, faster) for faster in (False, True)),
        strict=True,
    )
    score = np.add.outer(*scores)
    if count >= MANY:
        score[1 - np.add.outer(*missed) < COVERED] = math.inf
    width = np.where(score <= TIE * score.min(), np.add.outer(tried, tried), math.inf)
    slower, faster = np.unravel_index(int(np.argmin(width)), width.shape)
    return float(tried[slower]), float(tried[faster])


def _scored(
    rows: Sequence[Miss], votes: Floats, known: Floats, own: Floats, faster: bool
) -> tuple[Floats, Floats]:
    """Interval score and share missed on one side, float64[n_tried] each.

    *known*, float64[n_rows], and *own*, float64[n_tried, n_rows]: half-widths that are explained,
    and the model's.
    """
    above = np.array([(r.metric in RATES) == faster for r in rows])
    off = np.where(above, 1.0, -1.0) * np.array([r.log_error for r in rows])
    room = np.where(above, [r.room[1] for r in rows], [r.room[0] for r in rows])
    half = np.minimum(np.hypot(known, own), room)
    beyond = np.maximum(0.0, off - half)
    return (half + 2 / (1 - LEVEL) * beyond) @ votes, (beyond > 0) @ votes
