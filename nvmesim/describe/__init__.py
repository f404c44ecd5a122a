"""A scenario from a server's own dumps: lscpu, lspci, lstopo, nvme list, md, numactl, Windows."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from nvmesim.errors import InputError


def describe(files: Sequence[str | PathLike[str]]) -> str:
    """Return a scenario file that says what the dumps in *files* say, and what they leave open.

    Raises
    ------
    InputError
        One line: a file that is no such dump, is cut, or contradicts another one; or no drive.
    """
    from nvmesim.describe.dumps import read_dump
    from nvmesim.describe.merge import merged
    from nvmesim.describe.place import place
    from nvmesim.describe.text import scenario_text
    from nvmesim.scenario.load import scenario_from_dict

    paths = [Path(file) for file in files]
    if not paths:
        raise InputError("no file is named; give dumps such as lscpu.txt and nvme-list.json")
    server = place(merged([(path, *read_dump(path)) for path in paths]))
    text = scenario_text(server, [path.name for path in paths])
    try:
        scenario_from_dict(tomllib.loads(text))
    except InputError as error:
        raise InputError(f"the dumps describe no server that can be modelled: {error}") from None
    return text


__all__ = ["describe"]
