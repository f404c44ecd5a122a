"""Meaning of fio's options for a load: honoured, ignored as they do not shape it, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from nvmesim import units
from nvmesim.errors import ScenarioError
from nvmesim.scenario.loads import fio_words as words
from nvmesim.scenario.loads.load import ParsedLoad, Section, whole

HONOURED: Final = (
    *("rw", "bs", "bssplit", "bsrange", "ba", "iodepth", "numjobs", "rwmixread", "rwmixwrite"),
    *("rate_iops", "rate", "filename", "size", "filesize", "offset", "offset_increment"),
    *("percentage_random", "thinktime", "thinktime_blocks", "ioengine", "numa_cpu_nodes", "direct"),
    *("nrfiles", "fsync", "fdatasync", "sync", "kb_base"),
    *("iodepth_batch", "iodepth_batch_submit", "sqthread_poll"),
)
IGNORED: Final = (
    *("runtime", "time_based", "ramp_time", "group_reporting", "new_group", "name", "thread"),
    *("description", "norandommap", "softrandommap", "randrepeat", "allrandrepeat", "randseed"),
    *("random_generator", "buffered", "invalidate", "stonewall", "wait_for_previous", "directory"),
    *("startdelay", "io_size", "loops", "number_ios", "fallocate", "create_on_open", "unlink"),
    *("create_serialize", "create_fsync", "create_only", "overwrite", "file_append", "openfiles"),
    *("filename_format", "file_service_type", "cpus_allowed", "cpus_allowed_policy", "cpumask"),
    *("numa_mem_policy", "nice", "prio", "prioclass"),
    *("iodepth_batch_complete", "iodepth_batch_complete_min", "iodepth_batch_complete_max"),
    *("iodepth_low", "hipri", "fixedbufs", "registerfiles", "nonvectored"),
    *("sqthread_poll_cpu", "uncached", "nowait", "force_async", "userspace_reap", "mem", "iomem"),
    *(
        "iomem_align",
        "mem_align",
        "hugepage-size",
        "zero_buffers",
        "refill_buffers",
        "scramble_buffers",
    ),
    *("buffer_compress_percentage", "buffer_compress_chunk", "buffer_pattern", "dedupe_percentage"),
    *(
        "verify_state_save",
        "disk_util",
        "disable_lat",
        "disable_clat",
        "disable_slat",
        "disable_bw",
    ),
    *("disable_bw_measurement", "clat_percentiles", "lat_percentiles", "slat_percentiles"),
    *("percentile_list", "significant_figures", "gtod_reduce", "gtod_cpu", "clocksource"),
    *("write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log", "log_avg_msec"),
    *("log_hist_msec", "log_hist_coarseness", "log_max_value", "log_offset", "log_compression"),
    *("log_store_compressed", "log_unix_epoch", "log_prio", "bwavgtime", "iopsavgtime"),
    *("unified_rw_reporting", "per_job_logs", "output", "output-format", "eta", "minimal"),
    *("status-interval", "exitall", "exitall_on_error", "continue_on_error", "ignore_error"),
    *("error_dump", "allow_mounted_write", "allow_file_create", "pre_read", "uid", "gid"),
    *("exec_prerun", "exec_postrun", "ioscheduler", "io_submit_mode", "unit_base"),
    *("steadystate", "ss", "ss_dur", "ss_ramp", "ss_interval", "cmdprio_percentage", "rate_cycle"),
    *("end_fsync", "fsync_on_close", "write_barrier"),
    *("rate_ignore_thinktime", "thinktime_blocks_type", "serialize_overlap", "stats", "group_id"),
)


def _off(value: str) -> bool:
    return value in ("0", "none", "")


_NOT_MODELLED: Final = "shapes the load in a way that is not modelled"
REFUSED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "random_distribution": (lambda value: value in ("", "random"), _NOT_MODELLED),
    "sync_file_range": (_off, _NOT_MODELLED),
    "verify": (_off, "reads back what it wrote, which is not modelled"),
    "do_verify": (_off, "reads back what it wrote, which is not modelled"),
    "latency_target": (_off, "searches a depth; state iodepth instead"),
    "rate_process": (lambda value: value in ("", "linear"), "is open loop; use rate and arrivals"),
    "thinktime_iotime": (_off, _NOT_MODELLED),
    "thinktime_spin": (_off, "burns CPU time, which is not modelled"),
    "zonemode": (_off, _NOT_MODELLED),
    "zonesize": (_off, _NOT_MODELLED),
    "read_iolog": (_off, "is a trace; give it as trace"),
    "bs_is_seq_rand": (_off, _NOT_MODELLED),
    "bs_unaligned": (_off, _NOT_MODELLED),
    "rate_min": (_off, "ends the job early, which is not modelled"),
    "rate_iops_min": (_off, "ends the job early, which is not modelled"),
    "include": (_off, "is not followed; put the lines in this file"),
}
MAX_RANGE_SIZES: Final = 256


class _Job:
    """One section's options, with the readers of their values."""

    def __init__(self, section: Section, where: str) -> None:
        self.options, self.name, self.where = section.options, section.name, where

    def fail(self, option: str, why: str) -> ScenarioError:
        value = self.options[option]
        return ScenarioError(f"{self.where} [{self.name}]: {option}={value} {why}")

    def whole(self, option: str, default: int, low: int, high: int) -> int:
        text = self.options.get(option)
        if text is None:
            return default
        number = whole(text)
        if number is None or not low <= number <= high:
            raise self.fail(option, f"needs a whole number from {low} to {high}")
        return number

    def bytes_of(self, option: str, text: str) -> int:
        """Bytes of *text*, fio's way, with the job's kb_base."""
        found = words.parse_bytes(text, self.kb_base)
        if found is None:
            raise self.fail(option, "needs a size; write for example 4k")
        return found

    @property
    def kb_base(self) -> int:
        """1024 unless the job says 1000."""
        if self.options.get("kb_base", "1024") not in ("1024", "1000"):
            raise self.fail("kb_base", "is 1024 or 1000")
        return int(self.options.get("kb_base", "1024"))

    def size(self, option: str) -> int | None:
        text = self.options.get(option)
        return None if text is None else self.bytes_of(option, text)

    def both(self, option: str) -> tuple[str, str] | None:
        """Return (read, write) of "a,b,c"; a value that is missing inherits the one before."""
        return words.per_op(self.options[option]) if option in self.options else None

    def percent(self, option: str) -> float | None:
        """Return a size given as a share of the target, else None."""
        text = self.options.get(option, "")
        if not text.endswith("%"):
            return None
        number = text[:-1]
        if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]*)?", number) or not 0 <= float(number) <= 100:
            raise self.fail(option, "needs a share from 0% to 100%")
        return float(number)


def fields_of(section: Section, where: str) -> ParsedLoad:
    """Return the load of *section*; ScenarioError names the option that is wrong."""
    job = _Job(section, where)
    access, direction, run = _mode(job)
    sizes, write_sizes = _block_sizes(job)
    depth, notes = _depth(job)
    files = _files(job)
    align = job.size("ba") if "," not in job.options.get("ba", "") else None
    fields: dict[str, Any] = {
        "block_sizes": write_sizes if direction == "write" else sizes,
        "write_block_sizes": write_sizes if direction == "mixed" and write_sizes != sizes else None,
        "access": access,
        "align": align or min(size for size, _ in sizes + write_sizes),
        "read": {"read": 1.0, "write": 0.0}.get(direction, _read_share(job)),
        "threads": job.whole("numjobs", 1, 1, 65536),
        "threads_are_per_target": False,
        "outstanding": depth,
        "outstanding_per": "thread",
        "rate_limit": _rate_limit(job, direction, sizes, write_sizes),
        "thread_stride": job.size("offset_increment") or 0,
        "think_ps": _think(job),
        "think_every": job.whole("thinktime_blocks", 1, 1, 10**9),
        "socket": _socket(job),
        **_syncs(job, direction),
        **_rings(job, depth),
        **_jumps(job, access, run, sizes),
    }
    span, span_percent = _span(job, len(files))
    offset_percent = job.percent("offset")
    fields["span"] = span
    fields["offset"] = (job.size("offset") or 0) if offset_percent is None else 0
    return ParsedLoad(
        section.name, fields, files, span_percent, offset_percent, tuple(_ignored(job) + notes)
    )


def _mode(job: _Job) -> tuple[str, str, int | None]:
    """Return (access, direction, the number behind a colon)."""
    mode, colon, number = job.options.get("rw", "read").lower().partition(":")
    if mode not in words.MODES:
        hint = "trims are not modelled" if "trim" in mode else f"one of {', '.join(words.MODES)}"
        raise job.fail("rw", f"is not a load; {hint}")
    if not colon:
        return (*words.MODES[mode], None)
    access, direction = words.MODES[mode]
    return access, direction, job.bytes_of("rw", number)


def _jumps(
    job: _Job, access: str, run: int | None, sizes: tuple[tuple[int, float], ...]
) -> dict[str, Any]:
    """Random: a jump after every ``run`` requests; sequential: a hole of ``run`` bytes."""
    if access == "sequential":
        stride = None if run is None else sizes[0][0] + run
        return {"random_fraction": 0.0, "stride": stride}
    share = job.whole("percentage_random", 100, 0, 100) / 100
    return {"random_fraction": share / run if run else share}


def _read_share(job: _Job) -> float:
    """The later of rwmixread and rwmixwrite wins; an option's place is where it was first set."""
    option = words.mix_option(job.options)
    share = job.whole(option or "rwmixread", words.DEFAULT_READ_PERCENT, 0, 100)
    return (100 - share if option == "rwmixwrite" else share) / 100


Sizes = tuple[tuple[int, float], ...]


def _block_sizes(job: _Job) -> tuple[Sizes, Sizes]:
    """Return the mixes of reads and writes: bssplit over bsrange over bs."""
    for option, read in (("bssplit", _split), ("bsrange", _range), ("bs", _single)):
        texts = job.both(option)
        if texts is not None:
            mixes = read(job, texts[0]), read(job, texts[1])
            for size, _ in mixes[0] + mixes[1]:
                if size < 512 or size % 512:
                    raise job.fail(option, "is not a multiple of 512 bytes")
            return mixes
    default = ((words.DEFAULT_BLOCK_BYTES, 1.0),)
    return default, default


def _single(job: _Job, text: str) -> Sizes:
    return ((job.bytes_of("bs", text), 1.0),)


def _range(job: _Job, text: str) -> Sizes:
    """Every multiple of the smaller size is as likely as another."""
    low_text, _, high_text = text.partition("-")
    low, high = job.bytes_of("bsrange", low_text), job.bytes_of("bsrange", high_text or low_text)
    if not 0 < low <= high:
        raise job.fail("bsrange", "needs a smaller and a larger size, as 4k-16k")
    sizes = range(low, high + 1, low)
    if len(sizes) > MAX_RANGE_SIZES:
        raise job.fail("bsrange", f"has {len(sizes)} sizes; at most {MAX_RANGE_SIZES}")
    return tuple((size, 1 / len(sizes)) for size in sizes)


def _split(job: _Job, text: str) -> Sizes:
    """Read "4k/60:64k/40"; a blank share takes an even part of what is left."""
    mix = words.split_sizes(text, job.kb_base)
    if mix is None:
        raise job.fail("bssplit", "needs sizes with shares that sum to 100, as 4k/60:64k/40")
    return tuple(sorted(mix.items()))


def _depth(job: _Job) -> tuple[int, list[str]]:
    """Synchronous engines have one request in flight whatever iodepth says."""
    depth = job.whole("iodepth", 1, 1, 65536)
    engine = job.options.get("ioengine", words.DEFAULT_ENGINE).partition(":")[0]
    if engine in words.SYNC_ENGINES and depth > 1:
        return 1, [f"iodepth={depth}: engine {engine} is synchronous, 1 taken"]
    return depth, []


def _files(job: _Job) -> tuple[str, ...]:
    """Return the targets: filename split at colons, or nrfiles of each job's own."""
    return words.filenames(job.options.get("filename", ""))


def _span(job: _Job, n_files: int) -> tuple[int | None, float | None]:
    """Return (bytes, percent) of each file: filesize, or size divided by the number of files."""
    if "filesize" in job.options:
        percent = job.percent("filesize")
        return (None, percent) if percent is not None else (job.size("filesize"), None)
    percent = job.percent("size")
    if percent is not None:
        return None, percent
    size = job.size("size")
    return (size if size is None else size // max(n_files, 1)), None


def _syncs(job: _Job, direction: str) -> dict[str, Any]:
    """Options fsync and fdatasync count writes; a sync mode makes each reach the media (FUA)."""
    fsync = job.whole("fsync", 0, 0, 10**9)
    every = fsync or job.whole("fdatasync", 0, 0, 10**9)
    mode = job.options.get("sync", "none").lower()
    if mode not in ("0", "none", "", "1", "sync", "dsync"):
        raise job.fail("sync", "needs none, sync or dsync")
    if direction == "read":
        return {}
    through = mode in ("1", "sync", "dsync")
    return {"sync_every": every, "write_through": through, "commits": bool(fsync)}


def _rings(job: _Job, depth: int) -> dict[str, Any]:
    """Options of batches, where 0 is the whole depth, and of the kernel's thread that submits."""
    found: dict[str, Any] = {}
    for name in ("iodepth_batch", "iodepth_batch_submit"):
        if name in job.options:
            found["batch"] = min(depth, job.whole(name, 1, 0, 65536) or depth)
    if job.whole("sqthread_poll", 0, 0, 1):
        found["sqpoll"] = True
    return found


def _rate_limit(job: _Job, direction: str, sizes: Sizes, write_sizes: Sizes) -> float | None:
    """Return requests per second of one job; caps are per direction, a mix has their sum."""
    if "rate_iops" in job.options:
        option, units_each = "rate_iops", [1.0, 1.0]
    else:
        option = "rate"
        units_each = [sum(size * share for size, share in mix) for mix in (sizes, write_sizes)]
    texts = job.both(option)
    if texts is None:
        return None
    caps = [job.bytes_of(option, t) / each for t, each in zip(texts, units_each, strict=True)]
    return {"read": caps[0], "write": caps[1]}.get(direction, sum(caps)) or None


def _think(job: _Job) -> int:
    """Picoseconds of thinktime; microseconds unless it says otherwise."""
    ps = words.parse_time_ps(job.options.get("thinktime", "0"), units.PS_PER_US)
    if ps is None:
        raise job.fail("thinktime", "needs a time; write for example 100us")
    return ps


def _socket(job: _Job) -> int | None:
    """One NUMA node is a socket; several mean everywhere."""
    nodes = job.options.get("numa_cpu_nodes", "")
    return whole(nodes)


def _ignored(job: _Job) -> list[str]:
    """Options that do not shape the load, as they were written."""
    shown = [f"{name}={job.options[name]}" for name in job.options if name in IGNORED]
    if "ioengine" in job.options:
        shown.append(f"ioengine={job.options['ioengine']}")
    if job.options.get("direct", "0") == "0" and "direct" in job.options:
        shown.append("direct=0: the page cache that fio would use is not modelled")
    if "write_barrier" in job.options:
        shown[shown.index(f"write_barrier={job.options['write_barrier']}")] += (
            ": no engine acts on it"
        )
    if "nrfiles" in job.options:
        shown.append(f"nrfiles={job.options['nrfiles']}")
    return shown
