"""``python -m tests.reached FILE``: lines and branches that tests reach, by package.

FILE is what ``coverage json`` wrote. Exit code 1 below the floors, which are for the whole:
coverage's own ``fail_under`` knows only lines and branches together.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LINES_PCT = 95.0
BRANCHES_PCT = 90.0


def by_package(files: dict[str, Any]) -> dict[str, Counter[str]]:
    """Package of nvmesim, or file beside the packages -> counts."""
    found: dict[str, Counter[str]] = {}
    for name, file in files.items():
        package = Path(name.replace("\\", "/").split("nvmesim/", 1)[1]).parts[0]
        counts = file["summary"]
        found.setdefault(package.removesuffix(".py"), Counter()).update(
            {
                "lines": counts["num_statements"],
                "reached": counts["covered_lines"],
                "branches": counts["num_branches"],
                "taken": counts["covered_branches"],
            }
        )
    return found


def percent(part: int, whole: int) -> float:
    """Share in percent; of nothing all is reached.

    >>> percent(1, 4), percent(0, 0)
    (25.0, 100.0)
    """
    return 100 * part / whole if whole else 100.0


def main(path: str) -> int:
    packages = by_package(json.loads(Path(path).read_text("utf-8"))["files"])
    total: Counter[str] = Counter()
    print(f"{'':20}  lines  reached  branches  taken")
    for name, counts in [*sorted(packages.items()), ("all", total)]:
        total += counts if name != "all" else Counter()
        lines = percent(counts["reached"], counts["lines"])
        branches = percent(counts["taken"], counts["branches"])
        counted = f"{counts['lines']:6} {lines:6.1f} %  {counts['branches']:6} {branches:6.1f} %"
        print(f"{name:20} {counted}")
    print(f"at least {LINES_PCT:g} % of lines and {BRANCHES_PCT:g} % of branches are wanted")
    return int(lines < LINES_PCT or branches < BRANCHES_PCT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
