"""What the part picker shows: names to search, groups, a line of what each part does."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, Literal

from nvmesim.catalog import load as catalog
from nvmesim.catalog.profile import CpuProfile, DriveProfile, PlatformProfile
from nvmesim.errors import NvmesimError
from nvmesim.show.words import about, plural
from nvmesim.units import PS_PER_S

PAGE: Final = 4096
PartKind = Literal["drive", "cpu", "platform"]
_MAKERS: Final = {"hpe": "HPE", "aws": "AWS", "gcp": "GCP", "wd": "WD", "asus": "ASUS",
                  "qnap": "QNAP", "hdd": "By kind", "sata": "By kind", "sas": "By kind",
                  "team": "Measured servers"}  # fmt: skip


@functools.cache
def parts(kind: PartKind) -> list[dict[str, str]]:
    """Return the catalog's parts of *kind*: name, label, group and what each does.

    >>> next(p for p in parts("cpu") if p["name"] == "xeon-gold-6130")["says"]
    '16 cores, 2.1 GHz, 48 lanes'
    """
    found = [(name, catalog.get(kind, name)) for name in catalog.names(kind)]
    shown = [{"name": name, "label": p.model or name, "group": _group(name), "says": _says(p)}
             for name, p in found]  # fmt: skip
    return sorted(shown, key=lambda part: (part["group"], part["name"]))


def _group(name: str) -> str:
    maker = name.partition("-")[0]
    return _MAKERS.get(maker, maker.capitalize())


def _says(part: Any) -> str:
    if isinstance(part, CpuProfile):
        return f"{part.cores} cores, {part.ghz.value:g} GHz, {part.lanes} lanes"
    if isinstance(part, PlatformProfile):
        return _platform_says(part)
    assert isinstance(part, DriveProfile)
    return _drive_says(part)


def _platform_says(part: PlatformProfile) -> str:
    if part.drives:
        return f"{plural(part.drives[0]['count'], 'drive')} of the provider"
    sockets = len(part.server["sockets"])
    bays = "" if part.bays is None else f"{part.bays.value:.0f} bays of {part.bay_link}, "
    guess = ", assumed" if part.bays is not None and part.bays.basis == "assumed" else ""
    return f"{bays}{plural(sockets, 'socket')}{guess}"


def _drive_says(part: DriveProfile) -> str:
    dies = part.dies.value
    reads = min(part.commands.value, dies / (part.read.die.value / PS_PER_S),
                part.read_bandwidth.value / PAGE)  # fmt: skip
    program = max(part.write.program.value / PS_PER_S, 1e-9)
    writes = min(dies * part.write.unit.value / PAGE / program, part.write_bandwidth.value / PAGE)
    if part.write.commands is not None:
        writes = min(writes, part.write.commands.value)
    writes = min(writes, part.commands.value)
    numbers = [q for _, q in catalog.quantities(part) if q.value]
    known = sum(q.basis != "assumed" for q in numbers)
    captured = part.captured
    source = (
        "data sheet"
        if captured is not None and captured.datasheet
        else ("measured" if any(q.basis in ("measured", "fitted") for q in numbers) else "estimate")
    )
    return (
        f"{part.link}, {part.capacity.value / 1e12:.3g} TB, about "
        f"{about(reads)} reads, {about(writes)} writes/s of 4 KiB ({source}; {known} of "
        f"{len(numbers)} numbers known)"
    )


def problem_of(tables: Mapping[str, Any]) -> str:
    """Return why a design with *tables* cannot be, in a line; "" if it can."""
    from nvmesim.ui.trust import scenario_of

    try:
        scenario_of(tables)
    except NvmesimError as error:
        return str(error)
    return ""
