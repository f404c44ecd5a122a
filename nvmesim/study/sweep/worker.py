"""A worker process: one job a line on standard input, one answer a line on standard output.

Started as ``python -m nvmesim.study.sweep.worker``, so that a script or notebook that sweeps needs
no ``if __name__ == "__main__"``, and nothing is pickled.
"""

from __future__ import annotations

import os
import sys
from typing import IO

from nvmesim.study.sweep.point import SweepJob, answer


def answer_text(text: str) -> str:
    """Return the answer to a job, both as one line of JSON."""
    return answer(SweepJob.from_text(text)).to_text()


def serve(jobs: IO[str], answers: IO[str]) -> None:
    """Answer jobs until there are no more."""
    for line in jobs:
        answers.write(answer_text(line) + "\n")
        answers.flush()


def main() -> None:
    """Keep standard output for the answers alone: what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(open(0, encoding="utf-8", closefd=False), answers)  # noqa: SIM115


if __name__ == "__main__":
    main()
    sys.exit(0)
