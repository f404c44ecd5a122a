"""Results made by hand, so that what shows them is tested without a simulation."""

import math

import numpy as np

from nvmesim.measure.figures import (
    Cpu,
    Distribution,
    Interval,
    MemberStats,
    OpStats,
    Relief,
    SocketCpu,
    StationStats,
)
from nvmesim.predict.result import Bottleneck, CurvePoint, Result
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def interval(value, width=0.006):
    return Interval(value, value * (1 - width), value * (1 + width))


def distribution(mean_s, count=400_000, seed=1):
    rng = np.random.default_rng(seed)
    body = rng.gamma(6.0, mean_s / 6.6, int(count * 0.97))
    samples = np.concatenate([body, rng.gamma(4.0, mean_s, count - len(body))])
    edges = np.geomspace(samples.min() * 0.99, samples.max() * 1.01, 600)
    counts, _ = np.histogram(samples, edges)
    middle, seen = (edges[1:] + edges[:-1]) / 2, counts > 0
    known = {p: float(np.percentile(samples, p)) for p in PERCENTILES}
    known[99.99] = None
    around = {"mean": (samples.mean() * 0.99, samples.mean() * 1.01)} | {
        f"p{p:g}": (v * 0.98, v * 1.02) for p, v in known.items() if v
    }
    return Distribution(
        float(samples.mean()),
        float(samples.max()),
        known,
        around,
        middle[seen],
        counts[seen].astype(np.int64),
    )


def op_stats(iops, mean_s, seed, block=4096):
    latency = distribution(mean_s, seed=seed)
    return OpStats(interval(iops), interval(iops * block), 400_000, latency, latency)


def scenario(n_drives, n_sockets=2, *, name="example", adapters=False):
    """Drives in turn on the sockets, or four behind each adapter; as many lanes as they need."""
    cpu = {"extends": "xeon-gold-6130", "lanes": 512, "interconnect_links": 2}
    cards = [
        {"name": f"quad{i}", "kind": "switch" if i % 2 else "adapter", "link": "pcie3 x16",
         "socket": i % n_sockets}
        for i in range(-(-n_drives // 4) if adapters else 0)
    ]  # fmt: skip
    places = [
        {"behind": f"quad{i // 4}"} if adapters else {"socket": i * n_sockets // n_drives}
        for i in range(n_drives)
    ]
    return resolve(scenario_from_dict({
        "name": name,
        "server": {"stack": "linux-io_uring", "sockets": [
            {"cpu": cpu, "memory": i == 0} for i in range(n_sockets)
        ]},
        "adapters": cards,
        "drives": [{"profile": "intel-p4610-1.6tb", **place} for place in places],
        "volume": {"name": "data", "raid": "raid5" if n_drives > 2 else "raid0"},
        "workload": {"name": "w0", "read": 0.7, "threads": 32, "outstanding": 8},
    }))  # fmt: skip


def stations(resolved, load):
    out = [StationStats("submitting threads", "thread", 32, 0.41, 1e-6, 2e-6, 1.0)]
    out += [
        StationStats(f"socket{s.index} cpu", "cpu", 32, 0.35 + 0.2 * s.index, 0.0, 5.1e-6, 1.2,
                     "cores", socket=s.index)
        for s in resolved.sockets
    ]  # fmt: skip
    out.append(StationStats("data engine", "raid-engine", 1, 0.63, 2e-6, 1.9e-6, 0.3, "engine"))
    if resolved.interconnect:
        out += [
            StationStats(
                "upi 0>1", "link", 1, 0.18, 1e-7, 1.2e-7, 0.5, "interconnect", ends=(0, 1)
            ),
            StationStats(
                "upi 1>0", "link", 1, 0.57, 4e-7, 1.2e-7, 0.9, "interconnect", ends=(1, 0)
            ),
        ]
    for a in resolved.adapters:
        out += [
            StationStats(f"{a.name} uplink up", "link", 1, min(0.99, load * 1.05), 1e-6, 3e-7, 0.3,
                         "uplink", adapter=a.index, direction="up"),
            StationStats(f"{a.name} uplink down", "link", 1, load * 0.4, 1e-7, 3e-7, 0.3,
                         "uplink", adapter=a.index, direction="down"),
        ]  # fmt: skip
    for d in resolved.drives:
        busy = load * (0.9 + 0.1 * math.sin(d.index))
        for role, resource, share in (
            ("commands", "commands", 0.8), ("dies", "dies", 1.0), ("data", "read_bandwidth", 0.5),
            ("port up", "port", 0.75), ("port down", "port", 0.3),
        ):  # fmt: skip
            kind = "link" if resource == "port" else "drive"
            out.append(
                StationStats(f"{d.name} {role}", kind, 64 if role == "dies" else 1, busy * share,
                             9e-6, 6e-5, 1 / len(resolved.drives), resource, drive=d.index,
                             direction=role.split()[1] if kind == "link" else None)
            )  # fmt: skip
    return tuple(out)


def result(n_drives=8, n_sockets=2, *, name="8 x P4610, RAID5, two sockets", adapters=False,
           load=0.94, text="", warnings=()):  # fmt: skip
    resolved = scenario(n_drives, n_sockets, name=name, adapters=adapters)
    iops = 78_000.0 * n_drives
    read, write = op_stats(iops * 0.7, 210e-6, 1), op_stats(iops * 0.3, 420e-6, 2)
    total = op_stats(iops, 273e-6, 3)
    members = tuple(
        MemberStats(d.name, 1.3 / n_drives, 0.6 / n_drives, 1.4 / n_drives, 0.6 / n_drives,
                    5300.0 / n_drives, 2450.0 / n_drives, load * (0.9 + 0.1 * math.sin(d.index)))
        for d in resolved.drives
    )  # fmt: skip
    reliefs = (
        Relief("dies of every drive x2", interval(iops * 1.31), 0.31, 0.298, 0.322),
        Relief("one more member in the volume", interval(iops * 1.09), 0.09, 0.084, 0.096),
        Relief(
            "RAID engine with 4 workers instead of 1", interval(iops * 1.012), 0.012, 0.008, 0.016
        ),
        Relief(
            "interconnect with 3 links instead of 2", interval(iops * 1.001), 0.001, -0.001, 0.003
        ),
    )
    curve = tuple(
        CurvePoint(n, iops * 1.02 * n / (n + 60), 80e-6 + n * 0.9e-6, 150e-6 + n * 2.3e-6)
        for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    )
    bottleneck = Bottleneck(
        "drive",
        f"The dies are 94 % busy: they allow at most {iops * 1.05 / 1e3:.0f} kIOPS." + text,
        "drive0 dies", "drive", load, iops * 1.05,
        {"drive0 dies": iops * 1.05, "data engine": iops * 1.6, "upi 1>0": iops * 1.9,
         "socket0 cpu": iops * 2.8},
        reliefs,
    )  # fmt: skip
    sockets = tuple(
        SocketCpu(f"socket{i} cpu", 0.35 + 0.2 * i, 0.49 + 0.24 * i, 2.1, 16, 2)
        for i in range(n_sockets)
    )
    cpu = Cpu(0.45, 0.61, 24_900.0, 24.9, sockets)
    return Result(
        name, "compiled", 1, 412_000, 0.66, 1.8, 0.021, True, total, read, write, members,
        stations(resolved, load), cpu, bottleneck, 256, curve,
        warnings=("p99.99 has fewer than 100 samples beyond it: not reported" + text, *warnings),
        assumptions=(
            "p4610: dies = 64 (assumed)", "xeon-gold-6130: smt_yield = 1.25 (assumed)" + text,
        ),
        version="0.1.0", resolved=resolved,
    )  # fmt: skip
