"""fio job files and command lines as workloads. Source: fio HOWTO, job file format."""

import shlex
from pathlib import Path
from typing import Any, Final

from nvmesim import units
from nvmesim.errors import ScenarioError, nearest
from nvmesim.scenario.loads import fio_options as fio
from nvmesim.scenario.loads.fio_options import ParsedLoad, whole

Sections = list[tuple[str, dict[str, str]]]
"""Name and options of each job, with what it inherits from [global]."""
_SERIAL: Final = ("stonewall", "wait_for_previous")


def load(reference: str, base: Path, *, key: str = "fio") -> list[ParsedLoad]:
    """Return the loads of the fio job file *reference*, one for each section that runs.

    "job.fio#name" takes one section; a text that begins with "--" is read as fio's command line.
    ScenarioError names file, line and option.
    """
    if reference.startswith(("--", "fio ")):
        return [_load(name, given, key) for name, given in _command(reference, key)]
    text, _, chosen = reference.partition("#")
    path = base / text
    try:
        content = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ScenarioError(f"{key} is {text!r}; there is no such file") from None
    except (OSError, UnicodeDecodeError):
        raise ScenarioError(f"{key} is {text!r}; it cannot be read as text") from None
    return parse(content, chosen=chosen, where=f"{key}: {text}")


def parse(content: str, *, chosen: str = "", where: str = "fio") -> list[ParsedLoad]:
    r"""Return the loads of a job file's *content*.

    >>> loads = parse("[global]\niodepth=32\nioengine=libaio\n[a]\nrw=randread\nnumjobs=4")
    >>> loads[0].fields["threads"], loads[0].fields["outstanding"], loads[0].fields["read"]
    (4, 32, 1.0)
    >>> loads[0].ignored
    ('ioengine=libaio',)
    """
    sections = _sections(content, where)
    names = [name for name, _ in sections]
    if not sections:
        raise ScenarioError(f"{where}: has no job section, such as [job]")
    if chosen and chosen not in names:
        raise ScenarioError(f"{where}: has no section {chosen!r}; {nearest(chosen, names)}")
    if chosen:
        sections = [sections[names.index(chosen)]]
    elif any(given.get(key, "0") != "0" for _, given in sections[1:] for key in _SERIAL):
        raise ScenarioError(
            f"{where}: its sections run one after another (stonewall); name one of "
            f"{', '.join(names)}, as 'FILE#{names[0]}'"
        )
    return [_load(name, given, where) for name, given in sections]


def _sections(content: str, where: str) -> Sections:
    """Return the job sections; a [global] holds for the sections behind it."""
    common: dict[str, str] = {}
    sections: Sections = []
    current: dict[str, str] | None = None
    for number, line in enumerate(content.splitlines(), start=1):
        text, place = line.strip(), f"{where}:{number}"
        if not text or text[0] in "#;":
            continue
        if text.startswith("["):
            if not text.endswith("]") or len(text) < 3:
                raise ScenarioError(f"{place}: {text!r} is not a section; write for example [job]")
            name = text[1:-1].strip()
            current = common if name == "global" else dict(common)
            if name != "global":
                sections.append((name, current))
        elif current is None:
            raise ScenarioError(f"{place}: {text!r} stands before the first section")
        else:
            option, value = _option(text, place)
            current[option] = value
    return sections


def _option(text: str, where: str) -> tuple[str, str]:
    """Return (name, value) of one line; a name alone means 1."""
    name, equals, value = text.partition("=")
    name = name.strip().lower()
    name = fio.full_name(name)
    why = fio.why_refused(name, value.strip())
    if why:
        raise ScenarioError(f"{where}: {text!r} {why}")
    known = fio.known_options()
    if name not in known:
        raise ScenarioError(f"{where}: {name!r} is not a known fio option; {nearest(name, known)}")
    return name, value.strip() if equals else "1"


def _command(line: str, key: str) -> Sections:
    """Return the jobs of a fio command line; ``--name`` begins each but the first."""
    try:
        parts = shlex.split(line)
    except ValueError:
        raise ScenarioError(f"{key}: {line!r} has an unclosed quote") from None
    common: dict[str, str] = {}
    sections: Sections = []
    for part in parts[1:] if parts[:1] == ["fio"] else parts:
        if not part.startswith("--"):
            raise ScenarioError(f"{key}: {part!r} is not an option; write --option=value")
        if part.startswith("--name="):
            sections.append((part[len("--name=") :], dict(common)))
            continue
        name, value = _option(part[2:], key)
        (sections[-1][1] if sections else common)[name] = value
    return sections or [("fio", common)]


def _load(name: str, given: dict[str, str], where: str) -> ParsedLoad:
    job = fio.FioOptions(given, where=f"{where} [{name}]")
    mode, read = job.mode(), job.read_fraction()
    assert mode is not None
    ops: list[fio.Op] = [op for op in fio.OPS if mode.direction in (op, "mixed")]
    mixes = {op: tuple((job.block_sizes(op) or {}).items()) for op in fio.OPS}
    sizes = mixes[ops[0]]
    depth, files = job.iodepth() or 1, job.filenames()
    align = job.size("ba") if "," not in given.get("ba", "") else None
    means = {op: sum(size * share for size, share in mixes[op]) for op in ops}
    span = span_percent = None
    for option, parts in (("size", max(len(files), 1)), ("filesize", 1)):  # the latter goes first
        if option in given:
            span_percent = job.percent(option)
            size = None if span_percent is not None else job.size(option)
            span = None if size is None else size // parts
    offset_percent = job.percent("offset")
    differs = mode.direction == "mixed" and mixes["write"] != sizes
    fields: dict[str, Any] = {
        "block_sizes": sizes,
        "write_block_sizes": mixes["write"] if differs else None,
        "access": mode.access,
        "align": align or min(size for mix in mixes.values() for size, _ in mix),
        "read": read,
        "threads": job.whole("numjobs", 1, 1, 65536),
        "threads_are_per_target": False,
        "outstanding": depth,
        "outstanding_per": "thread",
        "rate_limit": job.rate_iops(means),
        "think_ps": job.time_ps("thinktime", units.PS_PER_US) or 0,
        "think_every": job.whole("thinktime_blocks", 1, 1, 10**9),
        # One NUMA node is a socket; several mean everywhere.
        "socket": whole(given.get("numa_cpu_nodes", "")),
        "span": span,
        "offset": (job.size("offset") or 0) if offset_percent is None else 0,
        **_syncs(job, mode.direction),
    }
    for option in ("iodepth_batch", "iodepth_batch_submit"):  # 0 is the whole depth
        if option in given:
            fields["batch"] = min(depth, job.whole(option, 1, 0, 65536) or depth)
    if job.whole("sqthread_poll", 0, 0, 1):
        fields["sqpoll"] = True
    return ParsedLoad(name, fields, files, span_percent, offset_percent, tuple(_ignored(job)))


def _syncs(job: fio.FioOptions, direction: str) -> dict[str, Any]:
    """Options fsync and fdatasync count writes; a sync mode makes each reach the media (FUA)."""
    fsync = job.whole("fsync", 0, 0, 10**9)
    every = fsync or job.whole("fdatasync", 0, 0, 10**9)
    mode = job.given.get("sync", "none").lower()
    through = mode in ("1", "sync", "dsync")
    if not through and mode not in ("0", "none", ""):
        job.unreadable("sync", "needs none, sync or dsync")
    if direction == "read":
        return {}
    return {"sync_every": every, "write_through": through, "commits": bool(fsync)}


def _ignored(job: fio.FioOptions) -> list[str]:
    """Options that do not shape the load, as they were written."""
    why = {"write_barrier": ": no engine acts on it"}
    given = job.given
    ignored = fio.listed("fio", "ignored")
    shown = [f"{name}={given[name]}{why.get(name, '')}" for name in given if name in ignored]
    shown += [f"ioengine={given['ioengine']}"] if "ioengine" in given else []
    if given.get("direct") == "0":
        shown.append("direct=0: the page cache that fio would use is not modelled")
    share = job.random_fraction()
    if share is not None and 0 < share < 1:
        shown.append(f"{share:.3g} of the requests are random: all are taken so")
    if ":" in given.get("rw", "") and share == 0:
        shown.append(f"rw={given['rw']}: holes between requests are not modelled")
    shown += [f"nrfiles={given['nrfiles']}"] if "nrfiles" in given else []
    if job.synchronous and (job.whole("iodepth", 1) or 1) > 1:
        engine = (job.engine() or "").partition(":")[0]
        shown.append(f"iodepth={given['iodepth']}: engine {engine} is synchronous, 1 taken")
    return shown
