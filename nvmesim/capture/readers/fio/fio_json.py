"""fio ``--output-format=json`` and ``json+``, of any version and with whatever stands around it.

A file may hold a banner, error lines and ETA lines before the object, other formats after it, and
several objects: of ``--status-interval`` each is cumulative and the last one counts; of runs
appended to one file each counts. Source: fio stat.c, client.c; fio HOWTO.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nvmesim.capture.capture import OPS, Capture, Latency, Measurement, OpResult, fio_bin_value
from nvmesim.capture.checked_numbers import MAX_COUNT, MAX_LATENCY_S, MAX_RATE, Fields, tell_apart
from nvmesim.capture.readers.fio import fio_jobs
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads.fio_options import FioOptions
from nvmesim.warning import OTHER, Warning

_MARK: Final = re.compile(r'"fio version"\s*:')
_ETA: Final = re.compile(r"^Jobs: \d+ \(f=\d+\)", re.MULTILINE)
_OPEN: Final = re.compile(r"(?:^|(?<=[\]\[,:]))[ \t]*[\[{](?=\s*[\[{\"}\]])", re.MULTILINE)
_CUT_OPEN: Final = re.compile(r"^[ \t]*\{(?!\s*\})", re.MULTILINE)
_STRAY: Final = re.compile(r"^(?:fio: |fio\[|Jobs: |client <|<\w+> )[^\n]*\n?", re.MULTILINE)
"""Lines that other threads of fio print into its JSON (fio issue 1685)."""
_NOT_A_NUMBER: Final = re.compile(r"(:\s*)(-?)(?:(nan)|inf)\b")
RAMP_END_MS: Final = 500
"""fio looks at its clock now and then, so a ramp ends somewhat late."""
_RUNNING: Final = 0.5
"""Share of the time between two reports of a run in which its jobs ran at least."""
_RAW_INDEX_MARK: Final = "FIO_IO_U_PLAT_"
"""fio 2.2.12 to 2.19 print the bin's index beside keys of this name, later ones its midpoint."""
_RAW_INDEX_END: Final = 64 * 40
_GROUPED_RATIO: Final = 0.75
"""Thread time over wall time that must exceed numjobs before more threads are believed."""
_GROUPED_MIN_S: Final = 0.5


def sniff(head: Head) -> bool:
    """True if *head* has fio's JSON, or only the ETA lines that may stand before it."""
    if _MARK.search(head.text):
        return True
    return not head.whole and bool(_ETA.search(head.text)) and "(groupid=" not in head.text


def read(source: Source) -> Capture:
    """Read every run in *source*; CaptureError if one is cut off, failed or has no latencies."""
    found = _parse(source)
    runs = _final_runs(found.objects)
    warnings = list(found.warnings)
    rows = 0
    measured: list[list[Measurement]] = []
    problems: list[CaptureError] = []
    for run in runs:
        try:
            jobs = _read_jobs(source, run)
            # A RAID device has its own entry and one a member.
            util = {
                shown(name, 40): used
                for entry in Fields(source, "", run).rows("disk_util")
                if (name := entry.text("name"))
                and (used := entry.number("util", most=1e6)) is not None
            }
            measured.append(fio_jobs.measure_groups(source, jobs, util, warnings, found.stderr))
            rows += len(jobs)
        except CaptureError as error:
            problems.append(error)
    if problems and not measured:
        raise problems[0]
    warnings += [f"left out: {fio_jobs.reason(source, problem)}" for problem in problems]
    return Capture(
        file=source.path,
        format="fio-json",
        version=", ".join(dict.fromkeys(_version(run) for run in runs)),
        measurements=tuple(tell_apart(measured)),
        rows=rows,
        skipped=found.stray_lines,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def jobs_of_runs(source: Source) -> list[tuple[str, list[fio_jobs.FioJob]]]:
    """Return version and jobs of every run in *source*, without judging whether they are good."""
    return [(_version(run), _read_jobs(source, run)) for run in _final_runs(_parse(source).objects)]


def _version(run: Mapping[str, Any]) -> str:
    return shown(str(run["fio version"]).removeprefix("fio-"), 30)


@dataclass
class _Found:
    """Content of a text: fio's objects, and what stood around them."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    stderr: str = ""
    stray_lines: int = 0
    cut: int = 0
    """Reports that start and do not parse."""
    first_error: json.JSONDecodeError | None = None
    warnings: list[str] = field(default_factory=list)


def _parse(source: Source) -> _Found:
    text = source.text()
    try:
        found = _objects(source, text)
        if found.first_error is None:
            return found
        # Only now: both repairs touch the whole text, and a good file needs neither.
        mended, strays = _STRAY.subn("", text)
        mended = _NOT_A_NUMBER.sub(lambda m: m[1] + ("NaN" if m[3] else f"{m[2]}Infinity"), mended)
        repaired = _objects(source, mended)
    except ValueError as error:  # an integer of more digits than Python converts
        raise source.error(
            f"holds a number that cannot be read ({shown(error, 50)})", "repeat the capture"
        ) from None
    best = repaired if repaired.cut < found.cut else found
    if not best.objects:
        raise _broken(source, text, found.first_error)
    if best is repaired:
        best.stray_lines = strays
        if strays:
            best.warnings.append(f"{strays} lines of fio's messages stood inside the JSON")
    if best.cut:
        best.warnings.append(f"left out: {best.cut} reports that are cut or no JSON")
    best.stderr = best.stderr or _last_message(text)
    return best


def _objects(source: Source, text: str) -> _Found:
    """Find fio's objects in *text*, alone or inside other JSON, and count those that are cut."""
    decoder = json.JSONDecoder(object_pairs_hook=_keep_duplicates)
    found = _Found()
    at = last_end = 0
    is_json = False
    while match := _OPEN.search(text, at):
        start = match.end() - 1
        try:
            value, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            mark = _MARK.search(text, start)
            if mark is None:
                found.first_error = found.first_error or (error if not found.objects else None)
                break
            # What is broken here may hold whole reports further in, or before its own end.
            try:
                value, at = decoder.raw_decode(text, text.rfind("{", start, mark.start()))
            except json.JSONDecodeError as own_error:
                found.first_error = found.first_error or own_error
                found.cut += 1
                at = mark.end()
                continue
        is_json = True
        some = list(_of_fio(value))
        if some and not found.objects:
            found.stderr = _last_message(text[:start])
        found.objects += some
        last_end = at if some else last_end
    if not found.objects and found.first_error is None:
        other = 'holds JSON, but none with the key "fio version" at its top'
        do = "give the output of fio --output-format=json"
        raise source.error(other if is_json else "is not JSON", do)
    rest = _CUT_OPEN.search(text, last_end) if found.objects and not found.cut else None
    if rest is not None:
        line = text.count("\n", 0, rest.end()) + 1
        found.warnings.append(f"what follows the last whole report is cut or none, at line {line}")
    if fio_jobs.INTERRUPTED in text:
        found.warnings.append("the run was interrupted by a signal")
    return found


def _of_fio(value: object) -> Iterator[dict[str, Any]]:
    """Yield fio's objects in a JSON *value*, however deep other programs put them."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "fio version" in item:
                yield item
            else:
                waiting += reversed(list(item.values()))
        elif isinstance(item, list):
            waiting += reversed(item)


def _keep_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict; fio repeats the key ``filename`` for several files, which ':' joins too."""
    table = dict(pairs)
    if len(table) < len(pairs) and "filename" in table:
        table["filename"] = ":".join(str(value) for key, value in pairs if key == "filename")
    return table


def _last_message(text: str) -> str:
    messages = re.findall(r"^fio: (.+)$", text, re.MULTILINE)
    return shown(messages[-1], 80) if messages else ""


def _broken(source: Source, text: str, error: json.JSONDecodeError) -> Exception:
    line = text.count("\n", 0, error.pos) + 1
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
        found = f"ends inside the JSON, at line {line}"
        return source.error(found, "the run was cut off or the file copied in part: repeat it")
    near = shown(text[error.pos : error.pos + 30].split("\n")[0], 30)
    return source.error(f"line {line} is not JSON near {near!r}", "repeat the capture")


def _final_runs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last object of every run: those of ``--status-interval`` are cumulative."""
    earlier = [one for one, following in pairwise(objects) if not _continues(one, following)]
    return [*earlier, *objects[-1:]]


def _continues(one: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
    """True if *following* is a later report of the same run, not of the next run."""
    before, after = _progress(one), _progress(following)
    if before is None or after is None or before.keys() != after.keys():
        return False
    own, later = ([job.get("job options") for job in _jobs_of(t)] for t in (one, following))
    fell = any(after[key] < before[key] for key in before)
    # What ran in the ramp time is counted until it is over, and then forgotten.
    if own != later or (fell and not _in_ramp(one)):
        return False
    start, later_start = _started(one), _started(following)
    if start is None or later_start is None:
        return not fell
    # elapsed is rounded up to a second, so the start of one run moves by one at most.
    return abs(later_start - start) <= 1 and (fell or _ran_between(one, following))


def _in_ramp(table: Mapping[str, Any]) -> bool:
    """True if the jobs had not run longer than a lead-in that is not measured."""
    common = _common_options(table)
    own = [job.get("job options") for job in _jobs_of(table)]
    given = [FioOptions({**common, **(o if isinstance(o, dict) else {})}) for o in own]
    ramp_s = max((options.ramp_s() or 0.0 for options in given), default=0.0)
    ran_ms = _runtime_ms(table) / max(len(own), 1)
    return ramp_s > 0 and ran_ms <= 1000 * ramp_s + RAMP_END_MS


def _ran_between(one: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
    """True if the jobs ran on from one report to the next, as those of short runs did not."""
    before, after = one.get("timestamp_ms"), following.get("timestamp_ms")
    if isinstance(before, int | float) and isinstance(after, int | float):
        return _runtime_ms(following) - _runtime_ms(one) >= _RUNNING * (after - before)
    return True


def _runtime_ms(table: Mapping[str, Any]) -> float:
    """Run times of all jobs so far: one after the other ends, and the next goes on."""
    ops = ("read", "write", "mixed")
    times = [time for job in _jobs_of(table) for time in _of_directions(job, "runtime", ops)]
    return sum(float(time) for time in times if isinstance(time, int | float))


def _of_directions(job: Mapping[str, Any], key: str, ops: tuple[str, ...]) -> list[Any]:
    return [table.get(key) for op in ops if isinstance(table := job.get(op), dict)]


def _jobs_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    jobs = table.get("jobs") or table.get("client_stats")
    return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []


def _progress(table: Mapping[str, Any]) -> dict[tuple[int, str], int] | None:
    done: dict[tuple[int, str], int] = {}
    for index, job in enumerate(_jobs_of(table)):
        counts = _of_directions(job, "total_ios", ("read", "write", "trim", "mixed"))
        if not all(isinstance(count, int) for count in counts):
            return None
        done[index, str(job.get("jobname"))] = sum(counts)
    return done


def _started(table: Mapping[str, Any]) -> float | None:
    stamp = table.get("timestamp")
    elapsed = [job.get("elapsed") for job in _jobs_of(table)]
    known = [e for e in elapsed if isinstance(e, int | float)]
    if isinstance(stamp, int | float) and stamp and known:
        return float(stamp - max(known))
    return None


def _common_options(table: Mapping[str, Any]) -> dict[str, object]:
    """``global options``: a table, in client/server mode a list of tables."""
    given = table.get("global options")
    tables = given if isinstance(given, list) else [given]
    return {key: item[key] for item in tables if isinstance(item, dict) for key in item}


def _read_jobs(source: Source, run: Mapping[str, Any]) -> list[fio_jobs.FioJob]:
    """Return the jobs of a *run*; of clients and servers the clients', not fio's sum of them."""
    root = Fields(source, "", run)
    entries = list(root.rows("jobs"))
    if not entries:
        clients = list(root.rows("client_stats"))
        entries = [e for e in clients if e.text("jobname") != fio_jobs.ALL_CLIENTS] or clients
    if not entries:
        do = "fio ran none: look at its messages and repeat the capture"
        raise source.error("has no jobs", do)
    common = _common_options(run)
    names = Counter(_identity(entry) for entry in entries)
    return [_job(entry, common, names[_identity(entry)]) for entry in entries]


def _identity(entry: Fields) -> tuple[str, int, str]:
    name = entry.text("jobname") or "job"
    return entry.text("hostname") or "", entry.count("groupid") or 0, name


def _job(entry: Fields, common: Mapping[str, object], same_name: int) -> fio_jobs.FioJob:
    own = entry.fields("job options")
    options = FioOptions({**common, **(own.table if own else {})})
    host, group, name = _identity(entry)
    runtimes = {op: _runtime_s(entry.fields(op)) for op in (*OPS, "mixed")}
    results: dict[str, OpResult | None] = {op: _result(entry, op) for op in OPS}
    if not any(results.values()):
        results["mixed"] = _result(entry, "mixed")
    runtime = max(runtimes.values())
    threads, notes = _threads(entry, options, same_name, runtime)
    error, levels = entry.table.get("error"), entry.fields("iodepth_level")
    return fio_jobs.FioJob(
        name=name,
        group=group,
        options=options,
        reported=results,
        runtime_s=runtime,
        host=host,
        # Some versions print the errno with its sign.
        error=abs(error) if type(error) is int else entry.count("error") or 0,
        threads=threads,
        depth=entry.count("latency_depth"),
        user_pct=entry.number("usr_cpu", most=1e6),
        system_pct=entry.number("sys_cpu", most=1e6),
        notes=(*notes, *_other_work(entry)),
        switches=entry.count("ctx"),
        levels={k: levels.number(k, most=1e6) or 0.0 for k in levels.table} if levels else {},
        runtimes_s={op: runtimes[op] for op in OPS},
    )


def _runtime_s(table: Fields | None) -> float:
    runtime = table.number("runtime", most=MAX_LATENCY_S * 1e6) if table else None
    return (runtime or 0.0) / 1000


def _threads(
    entry: Fields, options: FioOptions, same_name: int, runtime_s: float
) -> tuple[int, list[str]]:
    """Return how many threads this entry stands for, and a note if the options say otherwise.

    `job_runtime` sums over grouped threads (fio 3.8 on); before, an entry is one thread if there
    are as many entries of its name as numjobs asks for.
    """
    asked = max(1, options.whole("numjobs", 1) or 1)
    if asked > 1 and same_name % asked == 0:
        return 1, []
    thread_ms = entry.number("job_runtime", most=1e15)
    if thread_ms is None or runtime_s < _GROUPED_MIN_S:
        return asked, []
    ran = thread_ms / 1000 / runtime_s
    if ran < asked + _GROUPED_RATIO:
        return asked, []
    note = f"{round(ran)} threads ran where numjobs says {asked}: jobs of several sections merged"
    return round(ran), [note]


def _other_work(entry: Fields) -> list[str]:
    trim, sync = entry.fields("trim"), entry.fields("sync")
    counts = {
        (fio_jobs.TRIMS, "trims are left out"): trim and trim.count("total_ios"),
        (OTHER, "flushes (fsync) ran between the requests"): sync and sync.count("total_ios"),
        (OTHER, "requests failed and were continued over"): entry.count("total_err"),
    }
    return [Warning(code, f"{count} {what}") for (code, what), count in counts.items() if count]


def _result(entry: Fields, op: str) -> OpResult | None:
    table = entry.fields(op)
    if table is None:
        return None
    runtime_s = _runtime_s(table)
    iops = table.number("iops", most=MAX_RATE)
    count = table.count("total_ios")
    if count is None:  # before fio 2.1.5 or so there is only the rate
        count = round((iops or 0.0) * runtime_s)
    if count == 0:
        return None
    n_bytes = table.number("io_bytes", most=MAX_COUNT) or 0
    if "io_kbytes" not in table.table:  # before fio 2.21 the key io_bytes held KiB
        n_bytes *= 1024
    rate = table.number("bw_bytes", most=MAX_RATE)
    if rate is None:
        rate = 1024 * (table.number("bw", most=MAX_RATE / 1024) or 0.0)
    if iops is None:
        iops = count / runtime_s if runtime_s else 0.0
    clat, lat, slat = (_latency(table, kind, count) for kind in ("clat", "lat", "slat"))
    return OpResult(count, int(n_bytes), iops, rate, clat, lat, slat)


def _latency(op: Fields, kind: str, op_count: int) -> Latency | None:
    """Return the distribution at ``<kind>_ns`` (fio 3) or *kind* in us (fio 2), if it has samples.

    A synchronous engine has no slat, ``gtod_reduce`` nothing at all: N is 0 or all numbers are.
    """
    table, per_s = op.fields(f"{kind}_ns"), 1e9
    if table is None:
        table, per_s = op.fields(kind), 1e6
    if table is None:
        return None
    count = table.count("N")
    mean, high = _seconds(table, "mean", per_s), _seconds(table, "max", per_s)
    if count == 0 or not mean or not high:  # without a sample min is 2**64
        return None
    return Latency(
        count=op_count if count is None else count,
        mean_s=mean,
        min_s=_seconds(table, "min", per_s),
        max_s=high,
        stddev_s=_seconds(table, "stddev", per_s),
        percentiles_s=_percentiles(table, per_s),
        **_bins(table, per_s),
    )


def _seconds(table: Fields, key: str, per_s: float) -> float | None:
    value = table.number(key, most=MAX_LATENCY_S * per_s)
    return None if value is None else value / per_s


def _percentiles(table: Fields, per_s: float) -> dict[float, float]:
    """Percent -> s; the unused slots of fio up to 3.3 (``"0.00" : 0``) are left out."""
    given = table.fields("percentile")
    if given is None:
        return {}
    found: dict[float, float] = {}
    for key in given.table:
        try:
            percent = float(key)
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            what = f"{given.where} has the key {shown(key, 20)!r}, not a percentage"
            raise table.source.error(what, "repeat the capture")
        value = _seconds(given, key, per_s)
        if value is not None and (percent > 0 or value > 0):
            found[percent] = value
    return found if any(found.values()) else {}


def _bins(table: Fields, per_s: float) -> dict[str, np.ndarray]:
    """Return the bins of json+ as the arrays of `Latency`, nothing if there are none."""
    given = table.fields("bins")
    if given is None:
        return {}
    pairs = {k: n for k, n in given.table.items() if not k.startswith(_RAW_INDEX_MARK)}
    is_index = len(pairs) < len(given.table)
    if not pairs:
        return {}
    try:
        keys = np.array([int(key) for key in pairs], dtype=np.int64)
        counts = np.array(list(pairs.values()))
        top = keys.max()
        if counts.dtype.kind != "i" or (counts < 0).any() or (keys < 0).any():
            raise ValueError
        if top / per_s > MAX_LATENCY_S or (is_index and top >= _RAW_INDEX_END):
            raise ValueError
    except (ValueError, OverflowError):
        raise table.source.error(
            f"{given.where} holds something that is not the count of a bin", "repeat the capture"
        ) from None
    values = (fio_bin_value(keys) if is_index else keys.astype(np.float64)) / per_s
    order = np.argsort(values)
    return {"bin_s": values[order], "bin_count": counts[order].astype(np.int64)}
