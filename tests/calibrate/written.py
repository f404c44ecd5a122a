"""Simulations of known drives, written out as the files that users have."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nvmesim.calibrate.bench import free_host
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Quantity
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.model.lower import lower
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Socket, Target, WorkloadGroup


def known_drive(**update: object) -> DriveProfile:
    """A drive of 48 dies with writes and no host, which takes what waits in order, as fits do."""
    profile = DriveProfile.model_validate({
        "name": "known", "link": "pcie4 x4", "capacity": "1 TB", "host_included": True,
        "dies": 48, "channels": 8, "commands": "780k/s", "wait_cv": 0,
        "read_bandwidth": "7 GB/s", "write_bandwidth": "5 GB/s",
        "read": {"base": "11 us", "die": "54 us", "die_cv": 0.1, "channel": "3 us"},
        "write": {"base": "15 us", "base_cv": 0.15, "program": "200 us", "buffer": "4 MiB"},
    })  # fmt: skip
    return profile.model_copy(update=update)


def slow_writer(buffer: int) -> DriveProfile:
    """The known drive with a write buffer of *buffer* bytes that fills: programs of 400 us."""
    write = known_drive().write
    update = {"program": Quantity(value=400e6), "buffer": Quantity(value=buffer)}
    return known_drive(write=write.model_copy(update=update))


def scenario_of(
    profile: DriveProfile, outstanding: int, sizes: Sequence[tuple[int, float]], read: float
) -> ResolvedScenario:
    host = free_host(profile.link)
    cpu = CpuProfile(name="host", cores=1, threads_per_core=1, ghz=Quantity(value=host.ghz))
    group = WorkloadGroup(
        "load", (Target("drive", 0, "drive0"),), block_sizes=tuple(sizes), read=read,
        threads=1, outstanding=outstanding,
    )  # fmt: skip
    drive = Drive(0, "drive0", profile, 0, None, host.link)
    socket = Socket(0, cpu, host.ghz, 1e12)
    return ResolvedScenario("load", host.stack, (socket,), None, (), (drive,), (), (group,))


def requests_of(
    profile: DriveProfile, outstanding: int, n: int, *,
    sizes: Sequence[tuple[int, float]] = ((4096, 1.0),), read: float = 0.7, seed: int = 1,
) -> np.ndarray:  # fmt: skip
    """int64[n, 4]: submit ps, complete ps, write, bytes; in order of completion."""
    lowered = lower(scenario_of(profile, outstanding, sizes, read))
    engine = CompiledEngine(lowered.network, seed=seed, record=True)
    rows = []
    while sum(map(len, rows)) < n:
        engine.advance(min(n, 1 << 16))
        rows.append(engine.records())
    table = np.concatenate(rows)[:n]
    flows = lowered.flows
    write = np.array([f.write for f in flows])[table[:, 3]]
    size = np.array([f.n_bytes for f in flows])[table[:, 3]]
    return np.stack([table[:, 4], table[:, 6], write.astype(np.int64), size], axis=1)


def varying_depth(
    profile: DriveProfile, depths: Sequence[int], each: int, seed: int = 1, **load: object
) -> np.ndarray:
    """Segments of *each* requests at each depth, one after the other; as `requests_of`."""
    parts, begin = [], 0
    for i, depth in enumerate(depths):
        part = requests_of(profile, depth, each, seed=1000 * seed + i, **load)  # type: ignore[arg-type]
        part[:, :2] += begin
        begin = int(part[:, 1].max()) + 20_000_000_000  # idle: the write buffer drains
        parts.append(part)
    return np.concatenate(parts)


def write_blkparse(path: Path, rows: np.ndarray, device: str = "259,0") -> None:
    """Default text of blkparse: queue, issue and completion of every request."""
    rng = np.random.default_rng(1)
    sector = rng.permutation(4 * len(rows))[: len(rows)] * 2048
    events = []
    for i, (submit, complete, write, size) in enumerate(rows.tolist()):
        what = f"{'WS' if write else 'R'} {sector[i]} + {size // 512}"
        events.append((submit, 0, f"Q {what} [fio]"))
        events.append((submit, 1, f"D {what} [fio]"))
        events.append((complete, 2, f"C {what} [0]"))
    events.sort()
    with path.open("w") as file:
        for number, (at, _, text) in enumerate(events, 1):
            code, _, rest = text.partition(" ")
            ns = at // 1000
            clock = f"{ns // 10**9:5d}.{ns % 10**9:09d}"
            file.write(f"{device:>7} {0:4d} {number:8d} {clock} {143:5d}  {code} {rest:>3}\n")


def fio_bin(ns: int) -> int:
    """Middle of fio's bin, 64 an octave: all that its percentiles keep (stat.c, plat_idx_to_val).

    >>> fio_bin(100), fio_bin(70_123)
    (100, 70144)
    """
    shift = max(0, ns.bit_length() - 7)
    return ((ns >> shift) << shift) + (1 << shift >> 1)


def write_fio(path: Path, rows: np.ndarray, iodepth: int) -> None:
    """JSON of fio 3: one job, 4 KiB random reads, after a ramp_time: what completed since it ended.

    From the submission of what was then in flight the runtime would be up to several cycles longer.
    """
    span_s = float(rows[:, 1].max() - rows[:, 1].min()) / 1e12
    ns = (rows[:, 1] - rows[:, 0]) / 1000
    percents = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
    table = {f"{p:.6f}": fio_bin(round(float(np.percentile(ns, p)))) for p in percents}
    latency = {"min": round(ns.min()), "max": round(ns.max()), "mean": float(ns.mean()),
               "stddev": float(ns.std()), "N": len(ns)}  # fmt: skip
    iops, size = len(ns) / span_s, int(rows[0, 3])
    nothing = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}

    def side(on: bool) -> dict[str, object]:
        return {
            "io_bytes": size * len(ns) if on else 0, "bw_bytes": round(size * iops) if on else 0,
            "bw": round(size * iops / 1024) if on else 0, "iops": iops if on else 0.0,
            "runtime": round(1000 * span_s) if on else 0, "total_ios": len(ns) if on else 0,
            "slat_ns": nothing, "clat_ns": {**latency, "percentile": table} if on else nothing,
            "lat_ns": latency if on else nothing,
        }  # fmt: skip

    options = {"rw": "randread", "bs": "4k", "iodepth": str(iodepth), "ioengine": "io_uring",
               "direct": "1", "filename": "/dev/nvme0n1"}  # fmt: skip
    job = {
        "jobname": "job", "groupid": 0, "error": 0, "elapsed": round(span_s) + 1,
        "job options": options, "read": side(True), "write": side(False), "trim": side(False),
        "job_runtime": round(1000 * span_s), "usr_cpu": 0.0, "sys_cpu": 0.0, "ctx": 0,
        "majf": 0, "minf": 0,
    }  # fmt: skip
    whole = {"fio version": "fio-3.36", "timestamp": 0, "time": "", "jobs": [job]}
    path.write_text(json.dumps(whole, indent=2))


__all__ = ["known_drive", "requests_of", "varying_depth", "write_blkparse", "write_fio"]
