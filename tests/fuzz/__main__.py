"""Fuzz the readers: ``python -m tests.fuzz [TARGET ...] --cases N`` or ``--seconds S``.

Counts add up over runs in ``build/fuzz/counts.json``; an input that falls is kept, shortened, in
``build/fuzz/found``.
"""

import argparse
import fcntl
import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.mutate import mutated

# A case is too small to share out; the pools would only wait for each other.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
from tests.fuzz.targets import ROOT, TARGETS, Target

OUT = ROOT / "build" / "fuzz"
LONGEST_S = 10
"""A case that takes more CPU time counts as fallen; the wall is the scheduler's affair."""
ROUND = 2000
COUNTS = OUT / "counts.json"


class TooSlowError(Exception):
    """A case took more CPU time than `LONGEST_S`."""


def _late(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {LONGEST_S} s of CPU")


def _place(error: BaseException) -> str:
    """What fell and where: the same place is kept once."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "nvmesim" in f.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {Path(last.filename).name}:{last.lineno}"


def tried(target: Target, data: bytes) -> bool | BaseException:
    """Whether *data* was read, or what it raises that is no refusal."""
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        return target.run(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def shortened(target: Target, data: bytes, place: str) -> bytes:
    """*data* with pieces left out while it still falls at *place*."""
    size = len(data) // 2
    deadline = time.monotonic() + 20
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            error = tried(target, shorter)
            if isinstance(error, BaseException) and _place(error) == place:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def saved() -> dict[str, dict[str, Any]]:
    """What was counted so far, by target."""
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


class Campaign:
    """A run over some targets, its counts and what fell."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cases: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.found: dict[str, str] = {}

    def round(self, target: Target, seeds: Sequence[bytes], cases: int) -> None:
        """Run *cases* cases of *target*."""
        start = time.process_time()
        for _ in range(cases):
            data = mutated(self.rng, seeds)
            found = tried(target, data)
            if isinstance(found, BaseException):
                self.keep(target, data, found)
            else:
                self.read[target.name] += found
            self.cases[target.name] += 1
        self.seconds[target.name] += time.process_time() - start

    def keep(self, target: Target, data: bytes, error: BaseException) -> None:
        """Write what fell, once a place."""
        place = _place(error)
        key = f"{target.name}: {place}"
        if key in self.found:
            return
        small = shortened(target, data, place)
        name = f"{target.name}-{hashlib.sha256(small).hexdigest()[:10]}"
        self.found[key] = name
        folder = OUT / "found" / target.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(small)
        text = "".join(traceback.format_exception(error))
        (folder / f"{name}.txt").write_text(f"{key}\n\n{text}")
        print(f"FELL {key}: {error!s:.120} -> {name}", flush=True)

    def save(self) -> None:
        """Add the counts to those of earlier runs, and of runs beside this one."""
        OUT.mkdir(parents=True, exist_ok=True)
        with (OUT / "counts.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            counts = saved()
            for name, count in self.cases.items():
                row = counts.setdefault(name, {"cases": 0, "read": 0, "cpu_s": 0.0})
                row["cases"] += count
                row["read"] += self.read[name]
                row["cpu_s"] = round(row["cpu_s"] + self.seconds[name], 1)
            part = COUNTS.with_suffix(".part")
            part.write_text(json.dumps(counts, indent=1))
            part.replace(COUNTS)
        self.cases.clear()
        self.read.clear()
        self.seconds.clear()


def main() -> None:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*names, []], help="left out: all")
    parser.add_argument("--cases", type=int, default=1_000_000, help="of each, with earlier runs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    asked = parser.parse_args()
    chosen = [t for t in TARGETS if not asked.targets or t.name in asked.targets]
    signal.signal(signal.SIGPROF, _late)
    campaign = Campaign(asked.seed)
    seeds = {target.name: target.seeds() for target in chosen}
    start = time.monotonic()
    try:
        while time.monotonic() - start < asked.seconds:
            done = saved()
            left = [t for t in chosen if done.get(t.name, {"cases": 0})["cases"] < asked.cases]
            if not left:
                break
            for target in left:
                campaign.round(target, seeds[target.name], ROUND)
            campaign.save()
    except KeyboardInterrupt:
        campaign.save()
    for name, row in saved().items():
        speed = row["cases"] / max(row["cpu_s"], 1e-9)
        print(f"{name:14} {row['cases']:>10,} cases {row['read']:>10,} read {speed:7,.0f} a CPU s")
    sys.exit(1 if campaign.found else 0)


if __name__ == "__main__":
    main()
