"""The catalog's drives and CPUs behind the names that machines give them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.capture.text import shown
from nvmesim.catalog import load as catalog
from nvmesim.catalog.toml import toml_value
from nvmesim.describe.facts import Disk, FoundCpu, pcie_parts

SAME_SIZE: Final = 0.1
"""Drives of one series and capacity differ less: 3.84 and 4 TB do not."""

_SERIES: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (re.compile(r"SSDPE2KE0(?:16|32|64)T8|\bP4610\b"), ("intel-p4610-1.6tb", "intel-p4610-6.4tb")),
    (re.compile(r"SSDPE2KX0\d0T8|\bP4510\b"), ("intel-p4510-1tb",)),
    (re.compile(r"7450.*MTFDK\w\w\d+T\dTFR|7450[ _]PRO", re.I), ("micron-7450-pro-3.84tb",)),
    (re.compile(r"Samsung SSD 980 PRO", re.I), ("samsung-980pro-1tb",)),
)
"""Model strings of catalog drives. Source: the vendors' part numbers (Intel SSDPE2KE: P4600 and
P4610, T8 the latter; SSDPE2KX: P4510; Micron MTFDK..TFR: 7450 PRO, TFS: MAX)."""

_STAND_INS: Final = {
    "disk": ("hdd-7200", "a 7,200 rpm disk"),
    "sata": ("sata-ssd", "a SATA SSD"),
    "sas": ("sas-ssd", "a SAS SSD"),
    "pcie4": ("micron-7450-pro-3.84tb", "a data-centre drive on PCIe 4.0"),
    "pcie3": ("intel-p4510-1tb", "a data-centre drive on PCIe 3.0"),
}
"""Profile and what it is, for drives that are not in the catalog."""


@dataclass(frozen=True)
class CatalogPart:
    """How a scenario names a part, and what had to be supposed for it."""

    toml: str
    assumed: str = ""


def drive_part(disk: Disk, link: str | None) -> CatalogPart:
    """Return the profile of *disk*: a catalog entry, or a stand-in that says that it is one."""
    series = next((names for pattern, names in _SERIES if pattern.search(disk.model)), ())
    capacities = {name: catalog.get("drive", name).capacity.value for name in series}
    for name, capacity in capacities.items():
        if disk.size is None or abs(disk.size - capacity) <= SAME_SIZE * capacity:
            return CatalogPart(toml_value(name))
    what = shown(disk.model) or "a drive without a model's name"
    if capacities:
        name = min(capacities, key=lambda n: abs(capacities[n] - (disk.size or 0)))
        why = f"{what} is of that series, of another capacity"
    else:
        is_fast = link is not None and pcie_parts(link)[0] >= 4
        kind = "disk" if disk.rotates else disk.interface
        name, like = _STAND_INS.get(kind or "", _STAND_INS["pcie4" if is_fast else "pcie3"])
        why = f"{what} is not in the catalog; {like} stands in for it"
    table = {"extends": name, "name": f"stand-in for {shown(disk.model) or 'an unnamed drive'}"}
    if disk.size:
        table["capacity"] = f"{disk.size} B"
    text = f"{why} ({name}): calibrate on captures of it, and name that profile"
    return CatalogPart(toml_value(table), text)


def cpu_part(cpu: FoundCpu, lanes: int, generation: int) -> CatalogPart:
    """Return the CPU: a catalog entry where its name is known, else a table of what was read.

    *lanes* and *generation* are the least that the drives' links prove.
    """
    name = catalog_cpu(cpu.model)
    if name is None:
        return _unknown_cpu(cpu, lanes, generation)
    profile = catalog.get("cpu", name)
    changes: dict[str, Any] = {}
    if cpu.cores != profile.cores:
        changes["cores"] = cpu.cores
    if cpu.threads_per_core != profile.threads_per_core:
        changes["threads_per_core"] = cpu.threads_per_core
    joining = 16 * profile.interconnect_links if profile.interconnect == "xgmi" else 0
    if lanes > profile.lanes - (joining if cpu.sockets > 1 else 0):
        changes["lanes"] = lanes + (joining if cpu.sockets > 1 else 0)
    if not changes:
        return CatalogPart(toml_value(name))
    listed = ", ".join(f"{key} {value}" for key, value in changes.items())
    return CatalogPart(
        toml_value({"extends": name, **changes}), f"{name} as seen, not as sold: {listed}"
    )


def catalog_cpu(model: str) -> str | None:
    """Return the catalog entry of a CPU by the name that it gives itself.

    >>> catalog_cpu("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"), catalog_cpu("AMD EPYC")
    ('xeon-gold-6130', None)
    """

    def words(text: str) -> list[str]:
        plain = re.sub(r"\((?:R|TM|C)\)|@.*$|\b\d+-Core\b", " ", text, flags=re.I)
        return [w for w in plain.lower().split() if w not in ("cpu", "processor", "intel")]

    same = (n for n in catalog.names("cpu") if words(catalog.get("cpu", n).model) == words(model))
    return next(same, None) if words(model) else None


def _unknown_cpu(cpu: FoundCpu, lanes: int, generation: int) -> CatalogPart:
    ghz = cpu.base_ghz
    text = "its clock is in its name"
    if ghz is None and cpu.bogomips:
        ghz, text = round(cpu.bogomips / 2000, 2), "its clock is taken as half its BogoMIPS"
    if ghz is None:
        ghz, text = 2.5, "its clock is not known and set to 2.5 GHz"
    table: dict[str, Any] = {
        "name": shown(cpu.model) or "unknown CPU",
        "cores": cpu.cores,
        "threads_per_core": cpu.threads_per_core,
        "ghz": ghz,
        "lanes": max(lanes, 48),
        "pcie_generation": generation,
    }
    if re.search(r"\bAMD\b|EPYC", cpu.model):  # its links to other sockets take lanes of its own
        joining = 16 * 3 if cpu.sockets > 1 else 0
        table |= {
            "lanes": max(lanes + joining, 128),
            "interconnect": "xgmi",
            "interconnect_links": 3,
            "interconnect_rate": "18 GT/s",
        }
    what = shown(cpu.model) or "the CPU"
    return CatalogPart(
        toml_value(table),
        f"{what} is not in the catalog: {text}; its lanes, memory and socket links are guesses",
    )
