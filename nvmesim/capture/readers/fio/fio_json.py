"""fio ``--output-format=json`` and ``json+``, of any version and with whatever stands around it.

A file may hold a banner, error lines and ETA lines before the object, other formats after it, and
several objects: of ``--status-interval`` each is cumulative and the last one counts; of runs
appended to one file each counts. Source: fio stat.c, client.c; fio HOWTO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nvmesim.capture.capture import Capture, Measurement
from nvmesim.capture.fields import Fields
from nvmesim.capture.readers.fio.fio_groups import measure_groups, tell_apart
from nvmesim.capture.readers.fio.fio_jobs import ALL_CLIENTS, FioJob, read_jobs
from nvmesim.capture.readers.fio.normal_lines import INTERRUPTED
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads.fio_options import FioOptions

_MARK: Final = re.compile(r'"fio version"\s*:')
_ETA: Final = re.compile(r"^Jobs: \d+ \(f=\d+\)", re.MULTILINE)
_OPEN: Final = re.compile(r"(?:^|(?<=[\]\[,:]))[ \t]*[\[{](?=\s*[\[{\"}\]])", re.MULTILINE)
_CUT_OPEN: Final = re.compile(r"^[ \t]*\{(?!\s*\})", re.MULTILINE)
_STRAY: Final = re.compile(r"^(?:fio: |fio\[|Jobs: |client <|<\w+> )[^\n]*\n?", re.MULTILINE)
"""Lines that other threads of fio print into its JSON (fio issue 1685)."""
_NOT_A_NUMBER: Final = re.compile(r"(:\s*)(-?)(?:nan|inf)\b")
_STDERR: Final = re.compile(r"^fio: .+$", re.MULTILINE)
RAMP_END_MS: Final = 500
"""fio looks at its clock now and then, so a ramp ends somewhat late."""
_RUNNING: Final = 0.5
"""Share of the time between two reports of a run in which its jobs ran at least."""


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
    jobs_seen = 0
    measured: list[list[Measurement]] = []
    problems: list[CaptureError] = []
    for run in runs:
        root = Fields(source, "", run)
        try:
            entries = _entries(root)
            jobs = read_jobs(entries, _common_options(root))
            some = measure_groups(source, jobs, _disk_util(root), warnings, found.stderr)
        except CaptureError as error:
            problems.append(error)
            continue
        jobs_seen += len(entries)
        measured.append(some)
    if problems and not measured:
        raise problems[0]
    warnings += [f"left out: {str(e).removeprefix(f'{source.path}: ')}" for e in problems]
    return Capture(
        file=source.path,
        format="fio-json",
        version=", ".join(dict.fromkeys(_version(run) for run in runs)),
        measurements=tuple(tell_apart(measured)),
        rows=jobs_seen,
        skipped=found.stray_lines,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def jobs_of_runs(source: Source) -> list[tuple[str, list[FioJob]]]:
    """Return version and jobs of every run in *source*, without judging whether they are good."""
    found = []
    for run in _final_runs(_parse(source).objects):
        root = Fields(source, "", run)
        found.append((_version(run), read_jobs(_entries(root), _common_options(root))))
    return found


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
        mended = _NOT_A_NUMBER.sub(_spell_constant, mended)
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


def _spell_constant(match: re.Match[str]) -> str:
    name = "NaN" if match.group(0).endswith("nan") else f"{match.group(2)}Infinity"
    return match.group(1) + name


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
    _note_rest(found, text, last_end)
    if not found.objects and found.first_error is None:
        what = "JSON, but none" if is_json else "text"
        raise source.error(
            f'holds {what} with the key "fio version" at its top' if is_json else "is not JSON",
            "give the output of fio --output-format=json",
        )
    if INTERRUPTED in text:
        found.warnings.append("the run was interrupted by a signal")
    return found


def _note_rest(found: _Found, text: str, last_end: int) -> None:
    """Say what starts like an object behind the last whole report."""
    if not found.objects or found.cut:
        return
    match = _CUT_OPEN.search(text, last_end)
    if match is not None:
        line = text.count("\n", 0, match.end()) + 1
        found.warnings.append(f"what follows the last whole report is cut or none, at line {line}")


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
    if len(table) < len(pairs):
        names = [str(value) for key, value in pairs if key == "filename"]
        if len(names) > 1:
            table["filename"] = ":".join(names)
    return table


def _last_message(text: str) -> str:
    messages = _STDERR.findall(text)
    return shown(messages[-1].removeprefix("fio: "), 80) if messages else ""


def _broken(source: Source, text: str, error: json.JSONDecodeError) -> Exception:
    line = text.count("\n", 0, error.pos) + 1
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
        found = f"ends inside the JSON, at line {line}"
        return source.error(found, "the run was cut off or the file copied in part: repeat it")
    near = shown(text[error.pos : error.pos + 30].split("\n")[0], 30)
    return source.error(f"line {line} is not JSON near {near!r}", "repeat the capture")


def _final_runs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last object of every run: those of ``--status-interval`` are cumulative."""
    return [
        one
        for one, following in zip(objects, [*objects[1:], None], strict=True)
        if following is None or not _continues(one, following)
    ]


def _continues(one: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
    """True if *following* is a later report of the same run, not of the next run."""
    before, after = _progress(one), _progress(following)
    if before is None or after is None or before.keys() != after.keys():
        return False
    options = [[job.get("job options") for job in _jobs_of(t)] for t in (one, following)]
    fell = any(after[key] < before[key] for key in before)
    # What ran in the ramp time is counted until it is over, and then forgotten.
    if options[0] != options[1] or (fell and not _in_ramp(one)):
        return False
    starts = [_started(table) for table in (one, following)]
    if starts[0] is None or starts[1] is None:
        return not fell
    # elapsed is rounded up to a second, so the start of one run moves by one at most.
    return abs(starts[1] - starts[0]) <= 1 and (fell or _ran_between(one, following))


def _in_ramp(table: Mapping[str, Any]) -> bool:
    """True if the jobs had not run longer than a lead-in that is not measured."""
    common = _common_of(table)
    own = [job.get("job options") for job in _jobs_of(table)]
    given = [FioOptions({**common, **(o if isinstance(o, dict) else {})}) for o in own]
    ramp_s = max((options.ramp_s() or 0.0 for options in given), default=0.0)
    ran_ms = _runtime_ms(table) / max(len(own), 1)
    return ramp_s > 0 and ran_ms <= 1000 * ramp_s + RAMP_END_MS


def _ran_between(one: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
    """True if the jobs ran on from one report to the next, as those of short runs did not."""
    before, after = one.get("timestamp_ms"), following.get("timestamp_ms")
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return True
    ran_ms = _runtime_ms(following) - _runtime_ms(one)
    return ran_ms >= _RUNNING * (after - before)


def _runtime_ms(table: Mapping[str, Any]) -> float:
    """Run times of all jobs so far: one after the other ends, and the next goes on."""
    directions = [job.get(op) for job in _jobs_of(table) for op in ("read", "write", "mixed")]
    times = [d.get("runtime") for d in directions if isinstance(d, dict)]
    return sum(float(t) for t in times if isinstance(t, int | float))


def _jobs_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    jobs = table.get("jobs") or table.get("client_stats")
    return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []


def _progress(table: Mapping[str, Any]) -> dict[tuple[int, str], int] | None:
    """Requests so far, by job."""
    done: dict[tuple[int, str], int] = {}
    for index, job in enumerate(_jobs_of(table)):
        directions = [job.get(op) for op in ("read", "write", "trim", "mixed")]
        counts = [d.get("total_ios") for d in directions if isinstance(d, dict)]
        known = [count for count in counts if isinstance(count, int)]
        if len(known) < len(counts):
            return None
        done[index, str(job.get("jobname"))] = sum(known)
    return done


def _started(table: Mapping[str, Any]) -> float | None:
    stamp = table.get("timestamp")
    elapsed = [job.get("elapsed") for job in _jobs_of(table)]
    known = [e for e in elapsed if isinstance(e, int | float)]
    if not isinstance(stamp, int | float) or not stamp or not known:
        return None
    return float(stamp - max(known))


def _entries(root: Fields) -> list[Fields]:
    """Return the job entries; in client/server mode those of the clients, not fio's sum of them."""
    entries = list(root.rows("jobs"))
    if not entries:
        clients = list(root.rows("client_stats"))
        entries = [e for e in clients if e.text("jobname") != ALL_CLIENTS] or clients
    if not entries:
        raise root.source.error(
            "has no jobs", "fio ran none: look at its messages and repeat the capture"
        )
    return entries


def _common_options(root: Fields) -> Mapping[str, object]:
    """``global options`` of a run."""
    return _common_of(root.table)


def _common_of(table: Mapping[str, Any]) -> dict[str, object]:
    """``global options``: a table, in client/server mode a list of tables."""
    given = table.get("global options")
    tables = given if isinstance(given, list) else [given]
    common: dict[str, object] = {}
    for item in tables:
        if isinstance(item, dict):
            common.update(item)
    return common


def _disk_util(root: Fields) -> dict[str, float]:
    """Drive -> busy %; a RAID device has its own entry and one a member."""
    found = {}
    for entry in root.rows("disk_util"):
        name, util = entry.text("name"), entry.number("util", most=1e6)
        if name and util is not None:
            found[shown(name, 40)] = util
    return found
