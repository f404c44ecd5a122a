"""A stand-in for fio: answers with the JSON of a simulated drive, or fails as fio does.

As a program (`python -P simulated_fio.py ARGUMENTS`) it reads how to behave from the JSON file that
FIO_STANDS_IN names; tests put a script on the path that starts it.
"""

import json
import math
import os
import sys
from pathlib import Path

import numpy as np

from nvmesim.catalog import load as catalog
from nvmesim.study.measuring.measure import scenario_of_row
from nvmesim.study.measuring.rows import PLAN, RAMP, SETTLE, Row
from tests.servers import bare

NOISE_OF_A_SECOND = 0.025
"""Standard deviation of the logarithm of the rate of one second: of all of them, it is less."""
PERCENTILES = ("50.000000", "90.000000", "99.000000", "99.900000")


def report(row: Row, profile, *, rng: np.random.Generator, noise=0.01, share=1.0, seconds=10.0):
    """fio's report of *row* on the drive *profile*; *share* of its rate, as a throttling drive."""
    scenario = scenario_of_row(row, profile, "linux-io_uring", "pcie4 x4")
    requests = max(20_000, 40 * row.jobs * row.depth)
    result = bare(scenario, seed=int(rng.integers(1 << 30)), requests=requests, over_time=False)
    factor = share * math.exp(noise * rng.standard_normal())
    job = {
        "jobname": row.name, "error": 0, "job_runtime": round(1000 * seconds * row.jobs),
        "job options": {"rw": row.op, "bs": f"{row.kib}k", "numjobs": str(row.jobs),
                        "iodepth": str(row.depth), "ioengine": "io_uring", "direct": "1"},
        "usr_cpu": 10.0, "sys_cpu": 20.0,
        "steadystate": {"attained": int(share == 1.0)},
    }  # fmt: skip
    for name, stats in (("read", result.read), ("write", result.write)):
        job[name] = _direction(stats, factor, seconds, row.kib * 1024)
    options = {"ioengine": "io_uring", "direct": "1"}
    return {"fio version": "fio-3.33", "timestamp": 1, "global options": options, "jobs": [job]}


def _direction(stats, factor, seconds, size):
    if stats is None:
        return {"io_bytes": 0, "iops": 0.0, "runtime": 0, "total_ios": 0}
    rate = stats.iops.value * factor
    count = round(rate * seconds)
    clat = {"N": count, "mean": stats.clat.mean / factor * 1e9, "min": 1,
            "max": round(stats.clat.max / factor * 2e9), "stddev": 0.0,
            "percentile": {p: round((stats.clat.percentiles[float(p)] or stats.clat.max) * 1e9)
                           for p in PERCENTILES}}  # fmt: skip
    mean = stats.latency.mean / factor * 1e9
    return {
        "io_bytes": count * size, "bw_bytes": round(rate * size), "iops": rate,
        "runtime": round(1000 * seconds), "total_ios": count, "clat_ns": clat,
        "slat_ns": {"N": count, "mean": max(0.0, mean - clat["mean"]), "min": 0, "max": 10**9},
        "lat_ns": {"N": count, "mean": mean, "min": 1, "max": 2 * clat["max"], "stddev": 0.0},
    }  # fmt: skip


class SimulatedRunner:
    """Runs rows: one of reads ends when it is steady, as simulated time tells, unless *whole*.

    A row's noise is its own, whatever the order, and the less the longer it lasts.
    """

    def __init__(self, name, *, seed=1, whole=False, share=1.0, fails_at=None, error=None):
        self.profile = catalog.get("drive", name)
        self.seed, self.whole, self.share = seed, whole, share
        self.fails_at, self.error = fails_at, error
        self.rows = []

    def __call__(self, row):
        if self.fails_at is not None and len(self.rows) == self.fails_at:
            raise self.error
        self.rows.append(row)
        seconds = float(row.seconds if row.writes or self.whole else RAMP + SETTLE + 2)
        rng = np.random.default_rng([self.seed, [r.name for r in PLAN].index(row.name)])
        noise = NOISE_OF_A_SECOND / math.sqrt(seconds - RAMP)
        text = report(row, self.profile, rng=rng, noise=noise, share=self.share, seconds=seconds)
        return json.dumps(text), seconds


def main(arguments):
    """Answer like fio on the command line."""
    behaviour = json.loads(Path(os.environ["FIO_STANDS_IN"]).read_text())
    options = dict(a.lstrip("-").partition("=")[::2] for a in arguments)
    if options["name"] == "lay-out":
        Path(options["filename"]).write_bytes(b"laid out")
        return 0
    with Path(behaviour["log"]).open("a") as log:
        log.write(json.dumps(options) + "\n")
    if options["name"] == behaviour.get("fails"):
        print(behaviour["says"], file=sys.stderr)
        return behaviour.get("code", 1)
    row = Row(options["name"], options["rw"], int(options["bs"].removesuffix("k")),
              int(options["numjobs"]), int(options["iodepth"]), "")  # fmt: skip
    found = report(row, catalog.get("drive", behaviour["drive"]), rng=np.random.default_rng(1))
    print(json.dumps(found)[: behaviour.get("cut")])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
