"""Predict held-out rows of every source: fit some of its rows as a user would, ask for the others.

Nothing of the program is entered by a side door: fitted rows are written as a table of points and
read as captures, a scenario is the tables of a scenario file.
"""

from __future__ import annotations

import csv
import functools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from held_cases import (
    POINT_COLUMNS,
    HeldCase,
    HeldRow,
    Plan,
    Split,
    find_cases,
    ruler,
    splits,
)  # fmt: skip
from pydantic import TypeAdapter

from nvmesim.calibrate.asked_host import GHZ, GHZ_ENDS, PATHS
from nvmesim.calibrate.datasheet import Sheet, read_datasheet
from nvmesim.calibrate.drive.fit import fit_datasheet, fit_drive
from nvmesim.capture.registry import read_captures
from nvmesim.catalog import load as catalog
from nvmesim.code_cache import cache_folder, read_private, write_private
from nvmesim.errors import NvmesimError
from nvmesim.predict.result import Result
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.standing import Standing
from nvmesim.scenario.load import apply_sets, scenario_from_dict
from nvmesim.study.sweep.point import content_of, digest_of, package_files
from nvmesim.study.validate.predict import Naive

REQUESTS: Final = 30_000
"""Of one prediction: its part of an interval is then some 1 %, and it takes half a second."""
NAIVE_REQUESTS: Final = 10_000
LARGE: Final = 1 << 17
"""Bytes from which a request is many commands: as many fewer are simulated, `FEWEST` at least."""
FEWEST: Final = 4_000
PROCESSES: Final = 2
CORES: Final = 64


@dataclass(frozen=True)
class Prediction:
    """One held-out number as the program sees it today."""

    source: str
    case: str
    split: str
    row: str
    metric: str
    measured: float
    predicted: float
    """As simulated and moved by what the profile missed nearby: the printed value."""
    low: float
    high: float
    standing: Standing
    limit: str
    """What limits it: the verdict, and of a drive the station."""
    naive: float | None = None
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """simulation, numbers, misfit, room: of the logarithm, below and above."""
    is_restated: bool = False
    """True if an equal load was fitted, or the rate is an input."""


@dataclass(frozen=True)
class Failure:
    """A row or a fit of which nothing can be said today."""

    case: str
    split: str
    what: str
    """"row", "fit" or "refused" (a fit that `calibrate` writes with --force only)."""
    why: str
    rows: int = 1


@dataclass(frozen=True)
class CaseAnswer:
    """Everything about one case."""

    predictions: tuple[Prediction, ...] = ()
    failures: tuple[Failure, ...] = ()


def held_out(
    names: Sequence[str] = (), progress: Callable[[str, float], None] | None = None
) -> list[CaseAnswer]:
    """Return what is predicted of the held-out rows of the sources called *names*, or of all.

    A case that was answered by the same code and the same rows is taken from the user's cache.
    """
    cases = find_cases(names)
    answers: dict[str, CaseAnswer] = {}
    kept = TypeAdapter(CaseAnswer)
    for case in cases:
        with suppress(OSError, ValueError):
            answers[case.name] = kept.validate_python(json.loads(read_private(_file(case))))
    rest = [case for case in cases if case.name not in answers]
    if rest:
        with ProcessPoolExecutor(min(PROCESSES, len(rest)), get_context("spawn")) as pool:
            asked = {pool.submit(answer_case, case): case for case in rest}
            for done in as_completed(asked):
                case = asked[done]
                answers[case.name] = done.result()
                with suppress(OSError):
                    write_private(_file(case), json.dumps(asdict(answers[case.name])).encode())
                if progress is not None:
                    progress(case.name, len(answers) / len(cases))
    return [answers[case.name] for case in cases]


def answer_case(case: HeldCase) -> CaseAnswer:
    """Fit and predict every split of *case*."""
    plan = planned(case)
    failures = [Failure(case.name, "", "row", why) for _, why in plan.unasked]
    predictions: list[Prediction] = []
    for split in plan.splits:
        with tempfile.TemporaryDirectory() as folder:
            try:
                profile, refused = _profile(case, split, Path(folder))
            except NvmesimError as error:
                why = str(error).replace(folder, "")
                failures.append(Failure(case.name, split.name, "fit", why, len(split.asked)))
                continue
        failures += [Failure(case.name, split.name, "refused", why) for why in refused[:1]]
        for row in split.asked:
            try:
                predictions += _predicted(case, split, row, profile)
            except NvmesimError as error:
                failures.append(Failure(case.name, split.name, "row", str(error)))
    return CaseAnswer(tuple(predictions), tuple(failures))


def planned(case: HeldCase) -> Plan:
    """Return the splits of what can be asked of *case*, and what cannot."""
    reasons = [(row, _inexpressible(case, row)) for row in case.rows]
    unasked = [(row, why) for row, why in reasons if why]
    usable = [row for row, why in reasons if not why]
    made = splits(case, usable) if usable else ()
    if not made:
        unasked += [(row, "nothing to fit it from") for row in usable]
    return Plan(made, tuple(unasked))


def _inexpressible(case: HeldCase, row: HeldRow) -> str:
    """Why *row* cannot be asked; empty if it can."""
    cells = row.cells
    if row.in_flight is None:
        return "threads or depth are not stated"
    if cells["raid"] == "unknown":
        return "its RAID level is not stated"
    if any(change.startswith("path:") for change in row.changes):
        return "a path of a guest that the model does not know"
    if cells["beside"] == "bulk":
        return "the load beside it is no row of the table"
    if case.facts.get("guest") and cells["polled"]:
        return "a guest that polls cannot be stated"
    if (engine := case.facts.get("raid_engine")) and _engine(engine) is None:
        return "no RAID controller of its class is known"
    return ""


def _engine(name: str) -> str | None:
    return next((n for n in catalog.names("raid-engine") if name in n), None)


def _profile(case: HeldCase, split: Split, folder: Path) -> tuple[Any, tuple[str, ...]]:
    """The drive's profile as a scenario holds it, and why it would not be written."""
    if split.basis == "catalog":
        return case.facts["catalog"], ()
    sheet = _sheet(case, folder) if "sheet" in split.basis else None
    if split.basis == "sheet" and sheet is not None:
        fit = fit_datasheet(sheet, name="held-out")
    else:
        path = folder / "points.csv"
        write_points(path, split.fitted, case.facts.get("guest", ""), case.facts.get("network", ""))
        captures = read_captures([str(path)])
        fit = fit_drive(captures, name="held-out", captured_on=_host(case), datasheet=sheet)
    return fit.profile.model_dump(mode="json"), tuple(fit.misses)


def _sheet(case: HeldCase, folder: Path) -> Sheet:
    """The data sheet of the drive of *case*, as a user types it or names it."""
    if "sheet" not in case.facts:
        return read_datasheet(Path(case.facts["catalog"]))
    text = "".join(f"{k} = {json.dumps(v)}\n" for k, v in case.facts["sheet"].items())
    (folder / "sheet.toml").write_text(text)
    return read_datasheet(folder / "sheet.toml")


def write_points(path: Path, rows: Sequence[HeldRow], guest: str = "", network: str = "") -> None:
    """Write *rows*, all of a *guest* or over a *network* if named, as a table of points."""
    columns = [*(c for c in POINT_COLUMNS if any(r.cells[c] for r in rows)), *PATHS, "source"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {**row.cells, "rate": _rate(row), "beside": _beside(row, rows), "guest": guest,
             "source": network, **_path(row)}
            for row in rows
        )  # fmt: skip


def _path(row: HeldRow) -> dict[str, str]:
    """File system and guest of *row*, where they are stated for it."""
    changed = dict(c.removeprefix("workload.0.").split("=", 1) for c in row.changes if "=" in c)
    return {key: changed[key] for key in PATHS if key in changed}


def _rate(row: HeldRow) -> str:
    """What is offered of the row's own operation; source A states the writes beside it."""
    cells = row.cells
    is_open = bool(cells["rate"] or cells["beside"])
    return cells["iops"] if is_open and "latency-thread" in row.changes else cells["rate"]


def _beside(row: HeldRow, rows: Sequence[HeldRow]) -> str:
    """The line of the load that runs beside *row* in a table of *rows*: it has the same rate."""
    cells = row.cells
    if not cells["beside"]:
        return ""
    for line, other in enumerate(rows, start=2):
        if other.op == cells["beside"] and other.cells["rate"] == cells["rate"]:
            return f"line {line}"
    return cells["beside"]


def _host(case: HeldCase) -> str:
    """What a user names as --captured-on."""
    facts = case.facts
    clock = f",{facts['ghz']} GHz" if "ghz" in facts else ""
    return f"{facts['stack']},{facts['link']}{clock}"


def tables_of(case: HeldCase, row: HeldRow, profile: Any) -> dict[str, Any]:
    """Return the scenario of *row*, as the tables of a file."""
    facts, raid = case.facts, row.cells["raid"]
    unknown = {"value": GHZ, "low": GHZ_ENDS[0], "high": GHZ_ENDS[1], "basis": "assumed"}
    cpu = {"cores": facts.get("cores", CORES), "lanes": 256, "pcie_generation": 5,
           "threads_per_core": facts.get("threads_per_core", 2),
           "ghz": facts.get("ghz", unknown)}  # fmt: skip
    tables: dict[str, Any] = {
        "server": {"stack": facts["stack"], "sockets": [{"cpu": cpu}]},
        "drives": [{"profile": profile, "count": row.drives}],
        "workload": [{**g, "guest": facts.get("guest", "none")} for g in _workload(row)],
    }
    if facts.get("fresh"):  # as its source says; of fitted drives the rows say it
        tables["drives"][0]["state"] = "fresh"
    if facts["link"].startswith("pcie"):  # else it is that of its profile in any case
        tables["drives"][0]["link"] = facts["link"]
    if raid:
        engine = _engine(str(facts.get("raid_engine", "linux-md"))) or "linux-md"
        _add_volumes(tables, row, engine, int(facts.get("controllers", 1)))
        for volume in tables["volume"] if "kernel" in facts else ():
            volume["kernel"] = facts["kernel"]
    sets = []
    for change in row.changes:
        if change.startswith("roots:"):
            _add_roots(tables, [int(n) for n in change[6:].split("+")])
        elif "=" in change:
            sets.append(change)
    return apply_sets(tables, tuple(sets))


def _workload(row: HeldRow) -> list[dict[str, Any]]:
    cells = row.cells
    group: dict[str, Any] = {
        "block_size": f"{row.size} B", "read": row.read,
        "access": "random" if row.op.startswith("rand") else "sequential",
    }  # fmt: skip
    if row.number("rate"):
        group |= {"read": 0.01 if row.changes else row.read, "rate": f"{cells['rate']}/s",
                  "arrivals": "poisson", "threads_total": int(cells["jobs"] or 1)}  # fmt: skip
    else:
        jobs, depth = int(cells["jobs"]), int(cells["iodepth"])
        group |= {"threads_total": jobs, "outstanding": depth}
    if cells["sync"]:
        group |= {"sync": "sync"} if cells["sync"] == "sync" else {cells["sync"]: 1}
    groups = [group]
    if "latency-thread" in row.changes:
        group["read"] = 0.01
        groups.append({"block_size": "4 KiB", "access": "random", "read": 0.5, "rate": "10k/s",
                       "arrivals": "paced"})  # fmt: skip
    return groups


def _add_volumes(tables: dict[str, Any], row: HeldRow, engine: str, volumes: int) -> None:
    level, _, chunk = row.cells["raid"].partition(":")
    each = row.drives // volumes
    tables["volume"] = [
        {"name": f"v{i}", "raid": level, "engine": engine, **({"chunk": chunk} if chunk else {}),
         "members": list(range(i * each, (i + 1) * each)), "rebuild": "rebuild" in row.changes,
         **({"degraded": [0]} if "rebuild" in row.changes else {})}
        for i in range(volumes)
    ]  # fmt: skip


def _add_roots(tables: dict[str, Any], counts: Sequence[int]) -> None:
    """Drives by fours behind adapters, and those behind root complexes.

    Their bandwidth is that of the fitted row with eight drives on one: 39.7 GiB/s.
    """
    first = tables["drives"][0]
    drives, adapters = [], []
    for i, count in enumerate(counts):
        for j in range(0, count, 4):
            name = f"adapter{i}-{j}"
            adapters.append(
                {"name": name, "kind": "adapter", "link": "pcie4 x16", "root": f"root{i}"}
            )
            drives.append({**first, "count": min(4, count - j), "behind": name})
    tables["drives"], tables["adapters"] = drives, adapters
    tables["server"]["roots"] = [
        {"name": f"root{i}", "socket": 0, "bandwidth": "42.6 GB/s"} for i in range(len(counts))
    ]


def _predicted(case: HeldCase, split: Split, row: HeldRow, profile: Any) -> Iterator[Prediction]:
    scenario = scenario_from_dict(tables_of(case, row, profile))
    requests = max(FEWEST, round(REQUESTS * min(1.0, LARGE / row.size)))
    result = simulate(scenario, reliefs=False, requests=requests, over_time=False,
                      without_source=case.source)  # fmt: skip
    known = [r for r in case.rows if r.key() in {f.key() for f in split.fitted}]
    naive = (
        ruler(row, split.fitted) if split.fitted else Naive(NAIVE_REQUESTS).iops(result.resolved)
    )
    shared: dict[str, Any] = {
        "source": case.source, "case": case.name, "split": split.name, "row": row.label,
        "standing": result.certainty.standing, "limit": limit_of(result),
        "is_restated": row in known or bool(row.cells["rate"]),
    }  # fmt: skip
    for metric, measured, value, interval in _figures(row, result):
        parts = result.certainty.figures.get(metric)
        spans = {} if parts is None else {
            "simulation": parts.simulation, "numbers": parts.numbers, "misfit": parts.misfit,
            "room": parts.room,
        }  # fmt: skip
        yield Prediction(
            metric=metric, measured=measured, predicted=value, low=interval[0], high=interval[1],
            naive=naive if metric == "iops" else None, parts=spans, **shared,
        )  # fmt: skip


def _figures(
    row: HeldRow, result: Result
) -> Iterator[tuple[str, float, float, tuple[float, float]]]:
    """Metric, what was measured, what is predicted, and its interval."""
    is_beside = "latency-thread" in row.changes
    op = result.total
    if is_beside:
        op = (result.read if row.read == 1 else result.write) or result.total
    if row.number("rate") is None and not row.cells["beside"]:
        found = result.total.iops
        yield "iops", row.iops, found.value, (found.low, found.high)
    if is_beside and (mean := row.number("lat_mean_us")):
        value = op.latency.mean
        yield "mean", mean / 1e6, value, op.latency.intervals.get("mean", (value, value))
    for metric, column, percent in (("p99", "p99_us", 99.0), ("p99.9", "p99_9_us", 99.9)):
        latency = op.latency if is_beside else op.clat
        seen, found_p = row.number(column), latency.percentiles.get(percent)
        if seen and found_p:
            ends = latency.intervals.get(metric, (found_p, found_p))
            yield metric, seen / 1e6, found_p, ends


def limit_of(result: Result) -> str:
    """Return what limits *result*: the verdict, and the kind of its station."""
    found = result.bottleneck
    return found.verdict if found.kind is None else f"{found.verdict} {found.kind}"


# Answers that are kept ----------------------------------------------------------------------------


IGNORED: Final = ("__pycache__", "cli", "show", "ui", "describe", "study", "requests", "reports",
                  "block", "fio_logs", "diskspd", "over_time", "trace")  # fmt: skip
"""Packages that no number here passes."""
LEFT_OUT: Final = (".csv", "model_error.py")
"""Endings of what is applied to predictions afterwards (`learn`)."""


def _file(case: HeldCase) -> Path:
    """Where the answer of this program to *case* is kept."""
    digest = content_of([_program(), case.facts, [row.cells for row in case.rows]])
    return cache_folder() / "held-out" / f"{case.name}-{digest[:24]}.json"


@functools.cache
def _program() -> str:
    """Digest of the modules and the catalog that a prediction passes."""
    files = {n: file for n, file in package_files(IGNORED) if not n.endswith(LEFT_OUT)}
    here = Path(__file__).parent
    own = {name: here / name for name in ("held_out.py", "held_cases.py")}
    naive = {"predict.py": resources.files("nvmesim.study.validate") / "predict.py"}
    return digest_of(files | own | naive)
