"""The fio run that wrote a log: its JSON beside the log says version, load and drive.

A log has no header: whether a column is an offset or a priority, and whether a value is in us or
ns, is decided by the version; what the load was stands in the JSON alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from nvmesim.capture.capture import Conditions
from nvmesim.capture.readers.fio.fio_groups import conditions_of, groups
from nvmesim.capture.readers.fio.fio_jobs import FioJob
from nvmesim.capture.text import Source
from nvmesim.errors import CaptureError

_NAME: Final = re.compile(
    r"(?P<prefix>.+)_(?P<kind>clat|slat|lat|bw|iops)(?:\.(?P<job>\d{1,6}))?\.log\b.*"
)
_KIND: Final = re.compile(r"(?:^|[_.-])(clat|slat|lat|bw|iops)(?=[_.-])")
_OPTION: Final = {"bw": "write_bw_log", "iops": "write_iops_log"}
_STATED: Final = re.compile(
    r"(?:\"fio version\"\s*:\s*\"fio-|^[2-5];fio-|^fio-)(\d[\w.-]*)", re.MULTILINE
)
"""A version as JSON, terse lines and normal output state it."""
FOLDERS_ABOVE: Final = 3
MAX_JSON_BYTES: Final = 1 << 24
MAX_CANDIDATES: Final = 64
"""JSON files of a folder that are looked into for the one of a log."""


@dataclass(frozen=True)
class LogName:
    """Parts of a log's name, as fio puts them together."""

    prefix: str
    kind: str
    """clat, lat, slat, bw or iops; empty if the name does not say."""
    job: int | None
    """Number of the job, from 1 on; None if all jobs wrote one file."""


@dataclass(frozen=True)
class FioRun:
    """The run that wrote a log: fio's version, and the jobs that ran together with this one."""

    version: str
    jobs: list[FioJob]
    numbers: range
    """The log numbers of these jobs."""

    def conditions(self, logs: Collection[int | None]) -> Conditions:
        """Return the load of the jobs that wrote the *logs* of these numbers; None: of all."""
        if None in logs:
            return conditions_of(self.jobs)
        chosen = []
        first = self.numbers.start
        for job in self.jobs:
            last = first + (job.threads or 1)
            if job.results and any(first <= number < last for number in logs if number):
                chosen.append(job)
            first = last
        found = conditions_of(chosen or self.jobs)
        return replace(found, jobs=len(set(logs)))


def parse_name(path: Path) -> LogName:
    """Return prefix, kind and job of a log's name.

    >>> parse_name(Path("rr_qd4_clat.1.log.gz"))
    LogName(prefix='rr_qd4', kind='clat', job=1)
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        token = _KIND.search(path.name)
        return LogName(path.name.split(".")[0], token.group(1) if token else "", None)
    job = match["job"]
    return LogName(match["prefix"], match["kind"], int(job) if job else None)


def find_run(path: Path) -> FioRun | None:
    """Return the run whose JSON lies beside the log *path* and names it, or None."""
    name = parse_name(path)
    for candidate in _candidates(path.parent, name.prefix):
        run = _run_of(candidate, name)
        if run is not None:
            return run
    return None


def find_version(path: Path) -> str | None:
    """Return the fio version that results near the log *path* agree on, or None.

    Results are looked for in its folder and up to three above it, as harnesses (pbench) lay them
    out; the nearest folder that has any decides.
    """
    folder = path.resolve().parent
    for above in (folder, *list(folder.parents)[:FOLDERS_ABOVE]):
        try:
            files = sorted(
                p for p in above.iterdir() if p.is_file() and not _NAME.fullmatch(p.name)
            )
        except OSError:
            return None
        found = {version for p in files[:MAX_CANDIDATES] if (version := _version_in(p))}
        if found:
            # Several versions are no answer.
            return found.pop() if len(found) == 1 else None
    return None


def _version_in(path: Path) -> str | None:
    """The fio version that the start of a file states."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            return None
        match = _STATED.search(Source(path).head.text)
    except (CaptureError, OSError):
        return None
    return match[1] if match else None


def run_parts(path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
    """Return the logs among *asked* of one kind that the jobs running with *path*'s wrote."""
    own = parse_name(path)
    if own.job is None:
        return (path,)
    run = find_run(path)
    found: dict[int, Path] = {}
    for other in asked:
        name = parse_name(other)
        same = other.parent == path.parent and (name.prefix, name.kind) == (own.prefix, own.kind)
        if same and name.job is not None and (run is None or name.job in run.numbers):
            found.setdefault(name.job, other)
    found[own.job] = path
    return tuple(found[job] for job in sorted(found))


def _candidates(folder: Path, prefix: str) -> list[Path]:
    try:
        files = [p for p in folder.iterdir() if ".json" in p.name or p.name.startswith(prefix)]
        small = [p for p in files if p.is_file() and p.stat().st_size <= MAX_JSON_BYTES]
    except OSError:
        return []
    logs = [p for p in small if _NAME.fullmatch(p.name)]
    results = sorted(set(small) - set(logs), key=lambda p: (not p.name.startswith(prefix), p.name))
    return results[:MAX_CANDIDATES]


def _run_of(candidate: Path, log: LogName) -> FioRun | None:
    try:
        state = candidate.stat()
        for version, jobs in _runs_in(candidate, log.prefix, state.st_mtime_ns, state.st_size):
            run = _match(version, jobs, log)
            if run is not None:
                return run
    except (CaptureError, RecursionError, MemoryError, OverflowError, OSError):
        pass  # a broken neighbour is none of the log's business
    return None


@lru_cache(maxsize=32)
def _runs_in(
    path: Path, prefix: str, changed: int, size: int
) -> tuple[tuple[str, list[FioJob]], ...]:
    """Runs of the JSON *path* if it names *prefix*; kept, for each log of a folder asks again."""
    from nvmesim.capture.readers.fio.fio_json import jobs_of_runs, sniff

    source = Source(path)
    if not sniff(source.head) or prefix not in source.text(MAX_JSON_BYTES * 20):
        return ()
    return tuple(jobs_of_runs(source))


def _match(version: str, jobs: list[FioJob], log: LogName) -> FioRun | None:
    first = 1
    for together in groups(jobs):
        threads = sum(job.threads or 1 for job in together)
        numbers = range(first, first + threads)
        first += threads
        wrote = any(_wrote(job, log) for job in together)
        if wrote and (log.job is None or log.job in numbers):
            return FioRun(version, together, numbers)
    return None


def _wrote(job: FioJob, log: LogName) -> bool:
    option = job.options.given.get(_OPTION.get(log.kind, "write_lat_log"))
    if option is None:
        return False
    name = re.split(r"[/\\]", option.strip())[-1]
    # Without a value fio takes the job's name.
    return (name if name not in ("", "1") else job.name) == log.prefix
