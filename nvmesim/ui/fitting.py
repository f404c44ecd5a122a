"""What does not fit together in a design although it can be simulated, and what would make it."""

from collections.abc import Mapping
from typing import Any, Final

from nvmesim.catalog import load as catalog
from nvmesim.show.words import plural
from nvmesim.ui import controls
from nvmesim.ui.trust import problem_of

TRIED: Final = ("volume.raid", "volume.engine", "server.stack")
"""Controls whose choices are each tried."""
OF_WINDOWS: Final = ("intel-vroc", "storage-spaces")
OF_LINUX: Final = ("linux-md", "openzfs", "user-space-parity")
IN_KERNEL: Final = ("linux-md", "openzfs", *OF_WINDOWS)


def unfit(tables: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return key -> value -> why a choice does not fit this design, and what would make it fit."""
    found: dict[str, dict[str, str]] = {}
    if problem_of(tables):
        return found
    for control in controls.controls():
        if control.key in TRIED:
            tried = {value: _with(tables, control.key, value) for value, _ in control.choices}
            found[control.key] = {value: text for value, text in tried.items() if text}
    return found


def _with(tables: Mapping[str, Any], key: str, value: str) -> str:
    changed = controls.put(tables, key, value, {})
    return problem_of(changed) or remarks(changed).get("volume.engine", "")


def remarks(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return control -> what does not fit there, and what would.

    >>> remarks({"server": {"stack": "spdk"}, "volume": [{"raid": "raid5"}]})["volume.engine"]
    'runs in the kernel: take a stack of the kernel, such as io_uring'
    """
    at = controls.values(tables)
    stack, engine, count = at["server.stack"], at["volume.engine"], at["drives.count"]
    found = {
        "volume.engine": _engine(str(engine), str(stack)) if engine is not None else "",
        "drives.count": _bays(str(at["server.platform"]), int(count or 0)),
    }
    return {key: text for key, text in found.items() if text}


def _engine(engine: str, stack: str) -> str:
    windows = stack.startswith("windows")
    if stack == "spdk" and engine.startswith(IN_KERNEL):
        return "runs in the kernel: take a stack of the kernel, such as io_uring"
    if engine.startswith(OF_WINDOWS) and not windows:
        own = ", which VROC is on Linux" if engine.startswith("intel-vroc") else ""
        return f"runs on Windows: take a Windows stack, or Linux md{own}"
    if engine.startswith(OF_LINUX) and windows:
        return "runs on Linux: take a Linux stack, or Intel VROC or Storage Spaces"
    return ""


def _bays(name: str, count: int) -> str:
    if name not in catalog.names("platform"):  # the answer says what is wrong with it
        return ""
    platform = catalog.get("platform", name)
    if platform.bays is None or count <= platform.bays.value:
        return ""
    maker = name.partition("-")[0]
    larger = [
        (not other.startswith(maker), q.value, part.model)
        for other in catalog.names("platform")
        if (q := (part := catalog.get("platform", other)).bays) is not None and q.value >= count
    ]  # fmt: skip
    more = f", or a server with {min(larger)[1]:.0f}: {min(larger)[2]}" if larger else ""
    bays = plural(round(platform.bays.value), "bay")
    return f"{platform.model} has {bays} for {count} drives: take {platform.bays.value:.0f}{more}"
