"""``python -m tests.mutation [GROUP…] [--module M] [--each N]``: a table, and who survived.

By default a sample of the mutants of each module is tried; ``--each 0`` tries all. Results add up
in ``build/mutation``: what was noticed is not tried again until its module changes, what survived
is. ``--table`` only says what is known.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.mutation.groups import GROUPS, Group
from tests.mutation.mutants import Mutant, sites
from tests.mutation.trial import ROOT, path_of, prepare, unnoticed

RESULTS = ROOT / "build" / "mutation" / "results.json"
EXPLAINED = Path(__file__).with_name("explained.toml")


Reasons = dict[tuple[str, str, str, str], set[str]]


def explained() -> Reasons:
    """Which mutants change nothing: by module, function and change the lines, "" for any."""
    entries = tomllib.loads(EXPLAINED.read_text("utf-8")).get("mutant", [])
    found: Reasons = {}
    for entry in entries:
        identity = (entry["module"], entry["where"], *entry["change"].split("  ->  "))
        found.setdefault(identity, set()).add(entry.get("line", ""))
    return found


def is_explained(mutant: Mutant, reasons: Reasons) -> bool:
    line = path_of(mutant.module).read_text("utf-8").splitlines()[mutant.line - 1].strip()
    return bool(reasons.get(mutant.identity, set()) & {"", line})


def stamp(module: str) -> str:
    return hashlib.sha256(path_of(module).read_bytes()).hexdigest()[:16]


class Results:
    """What became of each mutant, by module and number; void when the module has changed."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, str]] = {}
        if RESULTS.exists():
            self.known = json.loads(RESULTS.read_text("utf-8"))

    def of(self, module: str) -> dict[str, str]:
        known = self.known.setdefault(module, {"source": stamp(module)})
        if known["source"] != stamp(module):
            known = self.known[module] = {"source": stamp(module)}
        return known

    def note(self, mutant: Mutant, became: str) -> None:
        """Read anew, since several runs may be under way, and written beside."""
        self.known = Results().known
        self.of(mutant.module)[str(mutant.number)] = became
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        beside = RESULTS.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(self.known), "utf-8")
        beside.replace(RESULTS)


def chosen(module: str, each: int, seed: int) -> list[Mutant]:
    found = list(sites(module, path_of(module).read_text("utf-8")))
    if not each or len(found) <= each:
        return found
    return sorted(random.Random(seed).sample(found, each), key=lambda m: m.number)


def try_module(group: Group, module: str, mutants: list[Mutant]) -> None:
    """Note what becomes of *mutants*, those noticed before left out."""
    results = Results()
    todo = [m for m in mutants if results.of(module).get(str(m.number)) != "noticed"]
    if not todo:
        return
    tests = group.modules[module]
    usual = prepare(tests)
    limit = int(3 * usual + 20)
    left = []
    for mutant in todo:
        survived = unnoticed(tests, mutant, limit)
        results.note(mutant, "survived" if survived else "noticed")
        left += [mutant] * survived
    limit = int(3 * prepare(group.further) + 20) if left and group.further else 0
    for mutant in left:
        if group.further and not unnoticed(group.further, mutant, limit):
            results.note(mutant, "noticed")
        else:
            print(f"         survived  {mutant}", flush=True)


def in_child(work: Callable[[], None]) -> bool:
    """Whether *work* ended well in a process of its own: the switch of the JIT is read once."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def table() -> int:
    """Print what is known of each module; return how many survivors nobody has explained."""
    results, reasons, open_ones = Results(), explained(), 0
    print(f"{'':8} {'module':24} changes  tried  noticed  explained  open")
    for name, group in GROUPS.items():
        total: Counter[str] = Counter()
        for module in group.modules:
            found = list(sites(module, path_of(module).read_text("utf-8")))
            known = results.of(module)
            count = Counter(known[str(m.number)] for m in found if str(m.number) in known)
            survivors = [m for m in found if known.get(str(m.number)) == "survived"]
            count["explained"] = sum(is_explained(m, reasons) for m in survivors)
            count["changes"], count["tried"] = len(found), count["noticed"] + len(survivors)
            count["open"] = len(survivors) - count["explained"]
            total += count
            _row(name, module, count)
            for mutant in survivors:
                if not is_explained(mutant, reasons):
                    print(f"         survived  {mutant}")
        _row(name, "all", total)
        open_ones += total["open"]
    return open_ones


def _row(name: str, module: str, count: Counter[str]) -> None:
    print(f"{name:8} {module:24} {count['changes']:7}{count['tried']:7}{count['noticed']:9}"
          f"{count['explained']:11}{count['open']:6}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation")
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all if left out")
    parser.add_argument("--module", action="append", help="only this one, as model.raid_row")
    parser.add_argument("--each", type=int, default=12, help="mutants a module, 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="only say what is known")
    asked = parser.parse_args()
    if unknown := set(asked.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    for name in [] if asked.table else asked.groups or GROUPS:
        group = GROUPS[name]

        def work(group: Group = group) -> None:
            os.environ["NUMBA_DISABLE_JIT"] = "0" if group.jit else "1"
            for module in group.modules:
                if not asked.module or module in asked.module:
                    try_module(group, module, chosen(module, asked.each, asked.seed))

        if not in_child(work):
            return 2
    return 1 if table() else 0


if __name__ == "__main__":
    sys.exit(main())
