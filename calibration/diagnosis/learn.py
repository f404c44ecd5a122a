"""Learn how common mistakes are from public threads whose causes are known.

``python calibration/diagnosis/learn.py --simulate`` weighs all threads of tests/study/threads.toml
that evidence.jsonl lacks or has of other forms (an hour; each is kept as it is done), then learns;
without it, what the file has is learned from. It prints how often causes of later threads are found
by what earlier ones tell, and with ``--write`` writes the numbers to mistakes.toml.

What is learned from is what was true where a row could show it (`NOTICED`). What counts is that,
but that nothing is wrong where all rows lie inside of their intervals, as in tests/study.

A conditional logit: the score of a cause is its log likelihood (`best` of its best form's, the rest
of the mean's), what the rows state, and a logarithm of how common it is, of its own and in each
context (`Server.contexts`). Both are shrunk to `START` and to no difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from nvmesim.capture.registry import read_captures
from nvmesim.study.diagnosis.diagnose import Search
from nvmesim.study.diagnosis.evidence import of_arrays, rows_of
from nvmesim.study.diagnosis.mistakes import known
from nvmesim.study.sweep.api import tables_of

ROOT: Final = Path(__file__).parents[2]
EVIDENCE: Final = Path(__file__).with_name("evidence.jsonl")
FOLDER: Final = ROOT / "nvmesim" / "study" / "diagnosis"
NO_FORM: Final = (
    *("#", "    [", "best", "healthy", "unknown", "weight", "check", "mend", "windows", "source"),
    *("facts", "]"),
)
"""How lines begin that change no form."""
CODES: Final = list(known().weights)
START: Final = {"drbd": 0.3, "cold": 0.3}
"""How common causes are before anything is learned; others 1. These were added for one thread each
(assumed)."""
SPREAD: Final = {"healthy": 10.0}
"""Standard deviation of the logarithm of how common one is, around that; others `USUAL`."""
USUAL: Final = 0.7
IN_CONTEXT: Final = 0.7
"""The same of how many times as common it is in a context."""
NOTICED: Final = 0.7
"""A cause is there to be learned if a row does no more than this share of its prediction, or lies
outside of its interval: the share from which a planted mistake counts (tests/study/planted.py)."""
SPLITS: Final = (66, 98, 132)
"""Threads that were known when further ones were collected."""
FOLDS: Final = 12
LEAST: Final = -60.0
"""Log likelihood of what is hopeless."""
MISSED: Final = -8.0
"""Log probability of a cause that nothing names."""

AS: Final = {"counts": "counts", "learned": "rows can show", "cause": "was true"}
"""Key of what threads are judged by, in words."""

Weighed = Mapping[str, Any]
"""A thread: its cause, what is learned and counts, contexts that hold, what rows tell, log
likelihoods by code."""


def weighed(thread: Mapping[str, Any], folder: Path) -> Weighed:
    """Return what the rows of *thread* tell of each cause, without how common it is."""
    stated = tomllib.loads(thread["server"])
    load = {"threads_total": 1, "outstanding": 1, **stated.get("workload", [{}])[0]}
    path = folder / "rows.csv"
    path.write_text(thread["rows"].lstrip())
    tables, base = tables_of({**stated, "name": thread["name"], "workload": [load]})
    rows, _ = rows_of(read_captures([path]))
    if tables.get("volume"):
        rows, _ = of_arrays(rows)
    search = Search(tables, base, rows, None, None, None)
    found = search.likelihoods(*search.tried())
    inside, cause = all(row.is_inside for row in search.compared), thread["cause"]
    least = min(row.measured / row.predicted.value for row in search.compared)
    is_shown = not inside or (least <= NOTICED and cause in found)
    return {
        "name": thread["name"],
        "forms": forms(),
        "cause": cause,
        "learned": cause if is_shown else "healthy",
        "counts": "healthy" if inside else cause,
        "contexts": list(search.contexts),
        "told": search.told(),
        "logs": {c: [round(x, 3) for x in logs] for c, logs in found.items() if "+" not in c},
    }


@cache
def forms() -> str:
    """Return a name of all forms that are simulated: they differ where their texts do."""
    texts = [(FOLDER / name).read_text("utf-8") for name in ("forms.py", "mistakes.toml")]
    lines = (line for text in texts for line in text.splitlines() if not line.startswith(NO_FORM))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def simulate() -> None:
    """Append threads to `EVIDENCE` that it lacks or has of other forms; all in their order."""
    text = (ROOT / "tests" / "study" / "threads.toml").read_text("utf-8")
    weighed_before = {t["name"] for t in read() if t.get("forms") == forms()}
    every = tomllib.loads(text)["thread"]
    with tempfile.TemporaryDirectory() as folder, EVIDENCE.open("a") as out:
        for thread in every:
            if thread["name"] not in weighed_before:
                print(json.dumps(weighed(thread, Path(folder))), file=out, flush=True)
    last = {thread["name"]: thread for thread in read()}
    kept = [last[thread["name"]] for thread in every]
    EVIDENCE.write_text("".join(f"{json.dumps(thread)}\n" for thread in kept))


def read() -> list[Weighed]:
    """Return what `EVIDENCE` has."""
    return [json.loads(line) for line in EVIDENCE.read_text().splitlines()]


class Learned:
    """How common causes are, as some threads tell."""

    def __init__(self, threads: Sequence[Weighed]) -> None:
        shape = (len(CODES), 1 + len(threads[0]["contexts"]))
        centre, spread = np.zeros(shape), np.full(shape, IN_CONTEXT)
        centre[:, 0] = np.log([START.get(code, 1.0) for code in CODES])
        spread[:, 0] = [SPREAD.get(code, USUAL) for code in CODES]
        known = [t for t in threads if t["learned"] in t["logs"]]
        mean, apart, told, holds = self._tables(known)
        truths = np.arange(len(known)), np.array([CODES.index(t["learned"]) for t in known])

        def loss(at: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
            share, numbers = expit(at[0]), at[1:].reshape(shape)
            scores = mean + share * apart + told + holds @ numbers.T
            whole = logsumexp(scores, axis=1)
            off = np.exp(scores - whole[:, None])
            off[truths] -= 1
            rest = (numbers - centre) / spread
            to_share = (off * apart).sum() * share * (1 - share) + at[0] + 2
            fit = (whole - scores[truths]).sum() + 0.5 * ((rest**2).sum() + (at[0] + 2) ** 2)
            return float(fit), np.append(to_share, (off.T @ holds + rest / spread).ravel())

        start = np.concatenate(([-2.0], centre.ravel()))
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
        self.best, self.numbers = expit(found[0]), found[1:].reshape(shape)

    @staticmethod
    def _tables(threads: Sequence[Weighed]) -> tuple[np.ndarray[Any, Any], ...]:
        """Logs of means (-inf: cannot be), how far the best is above, what is told, contexts."""
        mean = np.full((len(threads), len(CODES)), -np.inf)
        apart, told = np.zeros_like(mean), np.zeros_like(mean)
        for i, thread in enumerate(threads):
            for code, logs in thread["logs"].items():
                at = i, CODES.index(code)
                best, mean[at] = np.maximum(logs, LEAST)
                apart[at] = best - mean[at]
                told[at] = np.log(thread["told"].get(code, 1.0))
        return mean, apart, told, np.array([[1.0, *thread["contexts"]] for thread in threads])

    def judged(
        self, threads: Sequence[Weighed], by: str = "counts"
    ) -> list[tuple[str, int, float]]:
        """Return what counts, its place, 99 if nothing names it, and its log chance, a thread."""
        mean, apart, told, holds = self._tables(threads)
        scores = mean + self.best * apart + told + holds @ self.numbers.T
        out = []
        for thread, row in zip(threads, scores, strict=True):
            place, chance = 99, MISSED
            if thread[by] in thread["logs"]:
                own = row[CODES.index(thread[by])]
                place, chance = 1 + int((row > own).sum()), float(own - logsumexp(row))
            out.append((thread[by], place, chance))
        return out

    def written(self, text: str) -> str:
        """Return *text* of mistakes.toml with these numbers."""
        for code, row in zip(CODES, np.exp(self.numbers), strict=True):
            numbers = ", ".join(f"{x:.3g}" for x in row)
            key = rf'^({code} = |code = "{code}"\nweight = )\[.*\]'
            text = re.sub(key, rf"\g<1>[{numbers}]", text, count=1, flags=re.MULTILINE)
        return re.sub(r"^best = .*$", f"best = {self.best:.3g}", text, count=1, flags=re.MULTILINE)


def tests(threads: Sequence[Weighed]) -> Iterator[tuple[str, list[Weighed], list[Weighed]]]:
    """Names of tests, threads that are learned from, and those that are judged."""
    for first in SPLITS:
        for end in (n for n in (*SPLITS, len(threads)) if n > first):
            yield (f"{first + 1} to {end} by the first {first}", list(threads[:first]),
                   list(threads[first:end]))  # fmt: skip
    yield f"the {len(threads)} that were learned from", list(threads), list(threads)


def told(name: str, found: Sequence[tuple[str, int, float]]) -> str:
    """Return a line of counts."""
    well = [place for cause, place, _ in found if cause == "healthy"]
    ill = [place for cause, place, _ in found if cause != "healthy"]
    first, three = (sum(place <= n for _, place, _ in found) for n in (1, 3))
    return (
        f"{name}: {first} first, {three} in three of {len(found)}; healthy "
        f"{well.count(1)} of {len(well)}; with a cause {ill.count(1)}, "
        f"{sum(place <= 3 for place in ill)} of {len(ill)}; "
        f"mean log probability {np.mean([chance for *_, chance in found]):.2f}"
    )


def main() -> None:
    """Learn, test and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulate", action="store_true", help="weigh threads not yet weighed")
    parser.add_argument("--write", action="store_true", help="write mistakes.toml")
    asked = parser.parse_args()
    if asked.simulate:
        simulate()
    threads = read()
    older = sum(thread.get("forms") != forms() for thread in threads)
    print(f"{older} of {len(threads)} threads were weighed with other forms; --simulate mends that")
    for name, some, others in tests(threads):
        print(told(name, Learned(some).judged(others)), flush=True)
    folds = [
        (Learned([t for i, t in enumerate(threads) if i % FOLDS != fold]), threads[fold::FOLDS])
        for fold in range(FOLDS)
    ]
    for by in ("counts", "learned", "cause"):
        found = [one for learned, left_out in folds for one in learned.judged(left_out, by)]
        print(told(f"each by the others, a {FOLDS}th left out, by what {AS[by]}", found))
    if asked.write:
        path = FOLDER / "mistakes.toml"
        path.write_text(Learned(threads).written(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
