"""``python -m tests.theory``: simulated against exact, as a table; exit 1 if one is off."""

import sys

from tests.theory.cases import FALSE_ALARM, HEADER, all_cases, outcome, table_row


def main() -> int:
    cases = all_cases()
    print(HEADER)
    bad = 0
    for case in cases:
        result = outcome(case, len(cases))
        bad += not result.is_good
        print(table_row(result))
    print(f"{len(cases)} systems, {bad} off; a correct engine fails with probability {FALSE_ALARM}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
