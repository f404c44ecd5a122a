"""Learn how common mistakes are from public threads whose causes are known.

``python calibration/diagnosis/learn.py --simulate`` weighs all threads of tests/study/threads.toml
that evidence.jsonl lacks or has of other forms (minutes to an hour), then learns; without it, what
the file has is learned from. It prints how often causes of later threads are found by what earlier
ones tell, and with ``--write`` writes the numbers to mistakes.toml.

A conditional logit: the score of a cause is its log likelihood (`BEST` of its best form's, the rest
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
START: Final = {"limit": 0.027}
"""How common causes are before anything is learned; others 1. A limit may be anywhere over two
decades, and is taken from the rows: a rate that fits so well by itself is worth the density over 5
units of the logarithm, 0.2, over that of an exact fit, 7.5."""
SPREAD: Final = {"healthy": 10.0}
"""Standard deviation of the logarithm of how common one is, around that; others `USUAL`."""
USUAL: Final = 1.5
IN_CONTEXT: Final = 1.0
"""The same of how many times as common it is in a context."""
SPLITS: Final = (66, 98, 132)
"""Threads that were known when further ones were collected."""
FOLDS: Final = 12
MISSED: Final = -8.0
"""Log probability of a cause that nothing names."""

Weighed = Mapping[str, Any]
"""A thread: its cause, the contexts that hold, what rows tell, log likelihoods by code."""


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
    inside = all(row.is_inside for row in search.compared)
    return {
        "name": thread["name"],
        "forms": forms(),
        "cause": "healthy" if inside else thread["cause"],
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
        self._shape = (len(CODES), 1 + len(threads[0]["contexts"]))
        self._centre = np.zeros(self._shape)
        spread = np.full(self._shape, IN_CONTEXT)
        for i, code in enumerate(CODES):
            self._centre[i, 0] = np.log(START.get(code, 1.0))
            spread[i, 0] = SPREAD.get(code, USUAL)
        known = [t for t in threads if t["cause"] in t["logs"]]
        tables = [self._table(t) for t in known]
        truths = [list(t["logs"]).index(t["cause"]) for t in known]

        def loss(at: np.ndarray[Any, Any]) -> float:
            share, numbers = expit(at[0]), at[1:].reshape(self._shape)
            fit = sum(logsumexp(s := self._scores(t, share, numbers)) - s[i]
                      for t, i in zip(tables, truths, strict=True))  # fmt: skip
            rest = ((numbers - self._centre) / spread).ravel()
            return float(fit + 0.5 * (rest @ rest + (at[0] + 2) ** 2))

        def slope(at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            share, numbers = expit(at[0]), at[1:].reshape(self._shape)
            to_share, to_numbers = 0.0, (numbers - self._centre) / spread**2
            for table, i in zip(tables, truths, strict=True):
                places, logs, _, holds = table
                scores = self._scores(table, share, numbers)
                off = np.exp(scores - logsumexp(scores))
                off[i] -= 1
                to_share += off @ (logs[:, 0] - logs[:, 1]) * share * (1 - share)
                to_numbers[places] += np.outer(off, holds)
            return np.concatenate(([to_share + at[0] + 2], to_numbers.ravel()))

        start = np.concatenate(([-2.0], self._centre.ravel()))
        found = minimize(loss, start, jac=slope, method="L-BFGS-B", options={"maxiter": 500}).x
        self.best, self.numbers = expit(found[0]), found[1:].reshape(self._shape)

    @staticmethod
    def _table(thread: Weighed) -> tuple[Any, ...]:
        codes = list(thread["logs"])
        told = np.log([thread["told"].get(code, 1.0) for code in codes])
        holds = np.array([1.0, *thread["contexts"]])
        return [CODES.index(c) for c in codes], np.array(list(thread["logs"].values())), told, holds

    @staticmethod
    def _scores(table: tuple[Any, ...], share: float, numbers: np.ndarray[Any, Any]) -> Any:
        places, logs, told, holds = table
        return logs @ [share, 1 - share] + told + numbers[places] @ holds

    def judged(self, thread: Weighed) -> tuple[int, float]:
        """Return the place of the cause of *thread*, 99 if nothing names it, and its log chance."""
        if thread["cause"] not in thread["logs"]:
            return 99, MISSED
        scores = self._scores(self._table(thread), self.best, self.numbers)
        own = scores[list(thread["logs"]).index(thread["cause"])]
        return 1 + int((scores > own).sum()), float(own - logsumexp(scores))

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
        learned = Learned(some)
        print(told(name, [(t["cause"], *learned.judged(t)) for t in others]), flush=True)
    out = []
    for fold in range(FOLDS):
        learned = Learned([t for i, t in enumerate(threads) if i % FOLDS != fold])
        out += [(t["cause"], *learned.judged(t)) for t in threads[fold::FOLDS]]
    print(told(f"each by the others, a {FOLDS}th left out", out))
    if asked.write:
        path = FOLDER / "mistakes.toml"
        path.write_text(Learned(threads).written(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
