"""What the part picker shows: names to search, groups, a line of what each part does."""

from __future__ import annotations

import functools
from typing import Any, Final, Literal

from nvmesim.catalog import load as catalog
from nvmesim.catalog.profile import CpuProfile, DriveProfile, PlatformProfile
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
    found = []
    for name in catalog.names(kind):
        part, maker = catalog.get(kind, name), name.partition("-")[0]
        found.append({"name": name, "label": part.model or name, "says": _says(part),
                      "group": _MAKERS.get(maker, maker.capitalize())})  # fmt: skip
    return sorted(found, key=lambda part: (part["group"], part["name"]))


def _says(part: Any) -> str:
    if isinstance(part, CpuProfile):
        return f"{part.cores} cores, {part.ghz.value:g} GHz, {part.lanes} lanes"
    if isinstance(part, PlatformProfile):
        return _platform_says(part)
    assert isinstance(part, DriveProfile)
    numbers = [q for _, q in catalog.quantities(part) if q.value]
    known = sum(q.basis != "assumed" for q in numbers)
    is_measured = any(q.basis in ("measured", "fitted") for q in numbers)
    source = "measured" if is_measured else "estimate"
    if part.captured is not None and part.captured.datasheet:
        source = "data sheet"
    reads, writes = _rates(part)
    return (
        f"{part.link}, {part.capacity.value / 1e12:.3g} TB, about "
        f"{about(reads)} reads, {about(writes)} writes/s of 4 KiB ({source}; {known} of "
        f"{len(numbers)} numbers known)"
    )


def _platform_says(part: PlatformProfile) -> str:
    if part.drives:
        return f"{plural(part.drives[0]['count'], 'drive')} of the provider"
    text = plural(len(part.server["sockets"]), "socket")
    if part.bays is None:
        return text
    guess = ", assumed" if part.bays.basis == "assumed" else ""
    cards = "".join(f"; {catalog.get('raid-engine', name).model}" for name in part.controllers)
    return f"{part.bays.value:.0f} bays of {part.bay_link}, {text}{guess}{cards}"


def _rates(part: DriveProfile) -> tuple[float, float]:
    """Reads and writes of 4 KiB a second that its busiest part allows."""
    dies, write, commands = part.dies.value, part.write, part.commands.value
    program = max(write.program.value / PS_PER_S, 1e-9)
    own = commands if write.commands is None else write.commands.value
    reads = min(commands, dies / (part.read.die.value / PS_PER_S), part.read_bandwidth.value / PAGE)
    writes = min(dies * write.unit.value / PAGE / program, part.write_bandwidth.value / PAGE)
    return reads, min(writes, own, commands)
