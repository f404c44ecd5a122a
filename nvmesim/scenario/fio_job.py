"""fio job files as workloads."""

from __future__ import annotations

from pathlib import Path

from nvmesim.scenario.loads import ParsedLoad


def load(reference: str, base: Path, *, key: str = "fio") -> list[ParsedLoad]:
    """Return the loads of a fio job file."""
    raise NotImplementedError
