"""``python -m tests.theory``: simulated against exact, as a table; exit 1 if one is off."""

from __future__ import annotations

import sys

from tests.theory.cases import FALSE_ALARM, all_cases, outcome


def main() -> int:
    cases = all_cases()
    bad = 0
    print(f"{'system':44} {'simulated':>10} {'exact':>10} {'error':>8} {'allowed':>8}")
    for case in cases:
        result = outcome(case, len(cases))
        bad += not result.is_good
        mark = "" if result.is_good else "  <-- off"
        print(
            f"{case.name:44} {result.simulated:10.5f} {case.exact:10.5f} "
            f"{result.error / case.exact:8.3%} {result.allowed / case.exact:8.3%}{mark}"
        )
    print(f"{len(cases)} systems, {bad} off; a correct engine fails with probability {FALSE_ALARM}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
