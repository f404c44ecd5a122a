"""Known drives and hosts, and what fio would have measured on them."""

import json

from nvmesim.calibrate.bench import BenchHost, free_host, measure
from nvmesim.calibrate.points import Point
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.profile import DriveProfile, Quantity, ReadSide, StackProfile, WriteSide

OTHER_SEED = 4711
"""Not the seed that a fit simulates with."""


def drive(
    *, dies=32, die=70.0, cv=0.15, base=8.0, commands=400e3, ack=12.0, writes=120e3, host=False
) -> DriveProfile:
    """A drive that takes what waits in order, as fits do; times in us, rates per second."""
    q = Quantity
    return DriveProfile(
        name="truth", link="pcie4 x4", capacity=q(value=1e12), host_included=host,
        dies=q(value=dies), channels=q(value=8), commands=q(value=commands),
        read_bandwidth=q(value=7e9), write_bandwidth=q(value=5e9), wait_cv=q(value=0.0),
        read=ReadSide(
            base=q(value=base * 1e6), die=q(value=die * 1e6), die_cv=q(value=cv),
            channel=q(value=3e6),
        ),
        write=WriteSide(
            base=q(value=ack * 1e6), base_cv=q(value=cv), program=q(value=dies / writes * 1e12),
            buffer=q(value=4 << 20),
        ),
    )  # fmt: skip


def stack(*, work=2.2, interrupt=0.8, wakeup=4.0, half=12.0, ghz=2.5) -> StackProfile:
    """A stack; all in us at *ghz*."""
    cycles = ghz * 1e3
    return StackProfile(
        name="truth",
        submit=Quantity(value=work / 2 * cycles),
        complete=Quantity(value=work / 2 * cycles),
        interrupt=Quantity(value=interrupt * cycles),
        wakeup=Quantity(value=wakeup * cycles),
        wakeup_half=Quantity(value=half * 1e6),
    )


def host(made: StackProfile | None = None, ghz: float = 2.5) -> BenchHost:
    """A host with *made*, or one that costs nothing."""
    return BenchHost(made, ghz, parse_link("pcie4 x4")) if made else free_host()


def simulated(
    profile,
    jobs,
    depth,
    *,
    read=1.0,
    on=None,
    requests=150_000,
    size=4096,
    name="",
    seed=OTHER_SEED,
) -> Point:
    """The point that fio would have measured on *profile*."""
    asked = Point(f"{jobs}x{depth}", read, True, size, jobs, depth, 1.0, None)
    a = measure(profile, on or host(), asked, requests=requests, seed=seed)
    busy = a.cpu_s * a.iops / jobs * 100 if on else None
    return Point(
        asked.label, read, True, size, jobs, depth, a.iops, a.mean_s,
        {} if 0 < read < 1 else dict(a.percentiles_s), cpu_s=a.cpu_s if on else None,
        per_job_pct=busy, count=requests, body_s={} if 0 < read < 1 else dict(a.body_s),
    )  # fmt: skip


def fio_json(point: Point) -> str:
    """*point* as fio's JSON report of one job group."""
    count = max(point.count or 100_000, round(6 * point.iops) if point.count > 20_000 else 0)
    op = "read" if point.read_fraction else "write"
    seconds = count / point.iops
    mean = (point.mean_s or 0.0) * 1e9
    table = sorted({**point.percentiles_s, **point.body_s}.items())
    percentiles = {f"{p:.6f}": round(v * 1e9) for p, v in table}
    return json.dumps(
        {
            "fio version": "fio-3.35",
            "jobs": [
                {
                    "jobname": point.label,
                    "error": 0,
                    "job options": {
                        "rw": f"rand{op}", "bs": str(point.block_size), "ioengine": "libaio",
                        "iodepth": str(point.iodepth), "numjobs": str(point.jobs),
                        "direct": "1", "group_reporting": "1",
                    },
                    op: {
                        "total_ios": count, "io_bytes": count * point.block_size,
                        "bw_bytes": round(point.iops * point.block_size), "iops": point.iops,
                        "runtime": round(seconds * 1e3),
                        "lat_ns": {"min": 1000, "max": 10**8, "mean": mean, "stddev": 1.0},
                        "clat_ns": {
                            "min": 1000, "max": 10**8, "mean": mean, "stddev": 1.0, "N": count,
                            "percentile": percentiles,
                        },
                    },
                    "usr_cpu": (point.per_job_pct or 0) / 4,
                    "sys_cpu": (point.per_job_pct or 0) * 3 / 4,
                }
            ],
        }
    )  # fmt: skip
