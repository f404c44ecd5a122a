"""DiskSpd command lines as workloads. Flags: DiskSpd 2.2, as its documentation lists them."""

from __future__ import annotations

from nvmesim.scenario.loads import ParsedLoad


def parse(line: str, *, key: str = "diskspd") -> ParsedLoad:
    """Return the load of a DiskSpd command line."""
    raise NotImplementedError
