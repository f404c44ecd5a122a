"""Every number that is shown of fio's samples, worked out by other means.

The files are read here with `json`, `re` and plain Python; nothing of the readers is used.
"""

import gzip
import json
import math
import re
import statistics
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from nvmesim.capture.as_json import describe_capture
from nvmesim.capture.registry import read_capture

DATA = Path(__file__).parent / "data"
OPS = ("read", "write")
Table = dict[str, Any]
close = pytest.approx


def text_of(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def shown_of(path: Path) -> list[Table]:
    """The measurements as ``nvmesim trace --json`` prints them."""
    measured: list[Table] = describe_capture(read_capture(path))["measurements"]
    return measured


def fio_objects(text: str) -> list[Table]:
    """The objects of a text whose lines end with what opens one, perhaps behind progress."""
    decoder = json.JSONDecoder()
    starts = re.finditer(r"(?:^|(?<=\r))\{$", text, re.M)
    return [decoder.raw_decode(text, start.start())[0] for start in starts]


def rank(samples: dict[int, int], percent: float) -> int:
    """The value of the nearest rank in value -> count."""
    wanted = math.ceil(percent / 100 * sum(samples.values()))
    seen = 0
    for value in sorted(samples):
        seen += samples[value]
        if seen >= wanted:
            return value
    raise AssertionError


def check_json_latency(shown: Table | None, parts: list[Table]) -> None:
    parts = [part for part in parts if part.get("N") and part["mean"]]
    if not parts:
        assert shown is None
        return
    total = sum(part["N"] for part in parts)
    assert shown["count"] == total
    assert shown["mean"] == close(sum(p["N"] * p["mean"] for p in parts) / total * 1e-9)
    assert shown["min"] == close(min(part["min"] for part in parts) * 1e-9)
    assert shown["max"] == close(max(part["max"] for part in parts) * 1e-9)
    bins: dict[int, int] = defaultdict(int)
    for part in parts:
        for value, count in part.get("bins", {}).items():
            bins[int(value)] += count
    whole = all(part.get("bins") for part in parts)
    assert shown["bins"] == (len(bins) if whole else 0)
    for name, value in shown.items():
        if not re.fullmatch(r"p[0-9.]+", name) or value is None:
            continue
        key = f"{float(name[1:]):.6f}"
        if len(parts) == 1:
            assert value == close(parts[0]["percentile"][key] * 1e-9), name
        else:
            assert whole
            assert value == close(rank(bins, float(name[1:])) * 1e-9), name
    if len(parts) == 1:
        assert shown["stddev"] == close(parts[0]["stddev"] * 1e-9)
        given = {float(p) for p, value in parts[0].get("percentile", {}).items() if value}
        assert {float(n[1:]) for n, v in shown.items() if n[0] == "p" and v is not None} == given


JSONS = sorted([*(DATA / "fio-json").glob("*"), *(DATA / "runs").glob("*.json*")])


@pytest.mark.parametrize("path", JSONS, ids=lambda path: path.name)
def test_fio_json(path: Path) -> None:
    run = fio_objects(text_of(path))[-1]  # with --status-interval the last counts
    together = [list(jobs) for _, jobs in groupby(run["jobs"], key=lambda job: job["groupid"])]
    shown = shown_of(path)
    assert len(shown) == len(together)
    for measurement, jobs in zip(shown, together, strict=True):
        active = [job for job in jobs if any(job.get(op, {}).get("total_ios") for op in OPS)]
        assert set(measurement["ops"]) == {
            op for op in OPS if any(job[op]["total_ios"] for job in active)
        }
        for op, result in measurement["ops"].items():
            entries = [job[op] for job in active if job[op]["total_ios"]]
            assert result["count"] == sum(entry["total_ios"] for entry in entries)
            assert result["bytes"] == sum(entry["io_bytes"] for entry in entries)
            assert result["iops"] == close(sum(entry["iops"] for entry in entries))
            assert result["bytes_per_s"] == close(sum(entry["bw_bytes"] for entry in entries))
            for kind in ("clat", "lat", "slat"):
                check_json_latency(result[f"{kind}_s"], [entry[f"{kind}_ns"] for entry in entries])
        longest = max(job[op]["runtime"] for job in active for op in OPS)
        assert measurement["conditions"]["duration_s"] == longest / 1000
        threads = [
            round(job["job_runtime"] / max(job[op]["runtime"] for op in OPS)) for job in active
        ]
        assert measurement["conditions"]["jobs"] == sum(threads)
        cpu = measurement["cpu"]
        pairs = list(zip(active, threads, strict=True))
        assert cpu["user_pct"] == close(sum(job["usr_cpu"] * n for job, n in pairs))
        assert cpu["system_pct"] == close(sum(job["sys_cpu"] * n for job, n in pairs))
        assert cpu["total_pct"] == close(cpu["user_pct"] + cpu["system_pct"])
        assert cpu["per_job_pct"] == close(max(job["usr_cpu"] + job["sys_cpu"] for job in active))
        drives = {drive["name"]: drive["util"] for drive in run.get("disk_util", [])}
        assert measurement["disk_util_pct"] == close(drives if len(together) == 1 else {})


WIDTH = {"2": 41, "3": 41, "5": 47}


@pytest.mark.parametrize("path", sorted((DATA / "fio-terse").glob("*")), ids=lambda p: p.name)
def test_fio_terse(path: Path) -> None:
    lines = [line for line in text_of(path).split("\n") if re.match(r"[2-5];", line)]
    fields = lines[-1].split(";")
    first, width = (4 if fields[0] == "2" else 5), WIDTH[fields[0]]
    (measurement,) = shown_of(path)
    for op, result in measurement["ops"].items():
        block = fields[first + width * OPS.index(op) :][:width]
        kib, kib_per_s, iops, ms = map(int, block[:4])
        assert result["bytes"] == kib * 1024
        assert result["bytes_per_s"] == kib_per_s * 1024
        # IOPS are printed as whole numbers, and without a banner the size is not known.
        assert result["iops"] == iops
        assert result["count"] == round(iops * ms / 1000) == close(kib / 4, rel=1 / iops)
        for kind, at in (("slat", 4), ("clat", 8), ("lat", 32)):
            low, high, mean, deviation = (float(text) * 1e-6 for text in block[at : at + 4])
            latency = result[f"{kind}_s"]
            if not mean:
                assert latency is None
                continue
            assert [latency[key] for key in ("min", "max", "mean", "stddev")] == close(
                [low, high, mean, deviation]
            )
        given = dict(cell.split("%=") for cell in block[12:32])
        expected = {float(p): float(us) * 1e-6 for p, us in given.items() if float(p)}
        shown = {float(k[1:]): v for k, v in result["clat_s"].items() if k[0] == "p"}
        assert {k: v for k, v in shown.items() if v is not None} == close(expected)
    longest = max(int(fields[first + width * k + 3]) for k in range(2))
    assert measurement["conditions"]["duration_s"] == longest / 1000
    drives = {fields[-9]: float(fields[-1][:-1])} if fields[-1].endswith("%") else {}
    assert measurement["disk_util_pct"] == (drives if fields[0] != "2" else {})


@pytest.mark.parametrize("path", sorted((DATA / "fio-text").glob("*")), ids=lambda p: p.name)
def test_fio_text(path: Path) -> None:
    text = text_of(path)
    (measurement,) = shown_of(path)
    (reads,) = measurement["ops"].values()
    count = int(re.search(r"issued rwts: total=(\d+),0", text)[1])
    ms = int(re.search(r"/(\d+)msec\)", text)[1])
    assert (reads["count"], reads["bytes"]) == (count, count * 4096)
    assert reads["iops"] == close(count * 1000 / ms)
    assert reads["bytes_per_s"] == close(count * 4096 * 1000 / ms)
    scale = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3}
    for kind in ("slat", "clat", "lat"):
        line = re.search(
            rf"^ +{kind} \((\wsec)\): min=\s*([\d.]+)(k?), max=\s*([\d.]+)(k?), avg=\s*([\d.]+), "
            r"stdev=\s*([\d.]+)", text, re.M
        )  # fmt: skip
        unit = scale[line[1]]
        thousand = {"": 1, "k": 1000}
        latency = reads[f"{kind}_s"]
        assert latency["min"] == close(float(line[2]) * thousand[line[3]] * unit)
        assert latency["max"] == close(float(line[4]) * thousand[line[5]] * unit)
        assert (latency["mean"], latency["stddev"]) == close((float(line[6]) * unit,
                                                              float(line[7]) * unit))  # fmt: skip
    unit = scale[re.search(r"clat percentiles \((\wsec)\)", text)[1]]
    table = {float(p): float(v) * unit for p, v in re.findall(r"([\d.]+)th=\[\s*(\d+)\]", text)}
    shown = {float(k[1:]): v for k, v in reads["clat_s"].items() if k[0] == "p" and v}
    assert shown == close(table)
    user, system = map(float, re.search(r"usr=([\d.]+)%, sys=([\d.]+)%", text).groups())
    assert measurement["cpu"]["total_pct"] == close(user + system)
    drives = {n: float(u) for n, u in re.findall(r"^ +(\w+): ios=.*util=([\d.]+)%", text, re.M)}
    assert measurement["disk_util_pct"] == drives
    assert measurement["conditions"]["duration_s"] == ms / 1000


def log_rows(path: Path) -> list[list[int]]:
    return [[int(c, 0) for c in line.split(", ")] for line in text_of(path).strip().split("\n")]


@pytest.mark.parametrize("name", ["rr_qd4_clat.1.log.gz", "rr_qd1_clat.1.log.gz"])
def test_fio_logs_of_requests(name: str) -> None:
    rows = log_rows(DATA / "fio-log" / name)
    (measurement,) = shown_of(DATA / "fio-log" / name)
    reads = measurement["ops"]["read"]
    values = [row[1] for row in rows]
    span_s = max(row[0] for row in rows) / 1000
    assert {row[2] for row in rows} == {0}
    assert (reads["count"], reads["bytes"]) == (len(rows), sum(row[3] for row in rows))
    assert reads["iops"] == close(len(rows) / span_s)
    latency = reads["clat_s"]
    assert latency["mean"] == close(statistics.fmean(values) * 1e-9)
    assert (latency["min"], latency["max"]) == close((min(values) * 1e-9, max(values) * 1e-9))
    assert latency["stddev"] == close(statistics.pstdev(values) * 1e-9, rel=1e-6)
    ordered = sorted(values)
    for percent in (50, 90, 99, 99.9):
        exact = ordered[math.ceil(percent / 100 * len(ordered)) - 1]
        # Histogram bins are a 64th wide, their middle is shown.
        assert latency[f"p{percent:g}"] == close(exact * 1e-9, rel=1 / 64)


@pytest.mark.parametrize("name", ["mix_avg100_clat.1.log", "mix_avg100_off_lat.1.log"])
def test_fio_logs_of_means(name: str) -> None:
    rows = log_rows(DATA / "fio-log" / name)
    series = describe_capture(read_capture(DATA / "fio-log" / name))["series"]
    for part in series:
        values = [row[1] * 1e-9 for row in rows if row[2] == OPS.index(part["op"])]
        assert part["windows"] == len(values)
        assert part["mean"] == close(statistics.fmean(values))
        assert (part["min"], part["max"]) == close((min(values), max(values)))
    assert sum(part["windows"] for part in series) == len(rows)
