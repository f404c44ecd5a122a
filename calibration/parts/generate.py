"""Make catalog entries of today's drives and CPUs from the table of sourced facts beside this file.

    python calibration/parts/generate.py [FOLDER [NAME...]]

FOLDER is the catalog's data folder (default: the one of this repository). Drives are fitted as
`nvmesim calibrate --datasheet` fits them. The same table gives the same files; entries of other
origin (measured ones) are left as they are. Takes two minutes.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nvmesim.calibrate.datasheet import FLUSH, Sheet
from nvmesim.calibrate.drive.fit import fit_datasheet
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Frozen, Quantity
from nvmesim.catalog.toml import to_toml
from nvmesim.units import parse_size

HERE = Path(__file__).parent
TABLE = HERE / "parts-2026.csv"
DATA = HERE.parents[1] / "nvmesim" / "catalog" / "data"
FIGURES = {
    "rand_read_kiops": ("random_read", 1e3), "rand_write_kiops": ("random_write", 1e3),
    "mix7030_kiops": ("mix_70_30", 1e3), "seq_read_gbps": ("sequential_read", 1e9),
    "seq_write_gbps": ("sequential_write", 1e9), "lat_read_us": ("read_latency", 1e-6),
    "lat_write_us": ("write_latency", 1e-6), "w_active": ("power_active", 1.0),
    "w_idle": ("power_idle", 1.0),
}  # fmt: skip
MEMORY = "general knowledge of the data sheet, not read"
DRAWS = 16
"""Joint draws that an entry keeps."""
DIGITS = 4
REPEATS = 0.02
"""Half the width of what was measured once. Assumed: saturated rates repeat within it."""
WHOLE = ("buffer", "capacity", "unit")
"""Sizes, which are not rounded."""
MARK = "calibration/parts/generate.py"
SMT = Quantity(
    value=1.25, low=1.15, high=1.3, basis="assumed",
    source="up to 15 % (two sockets) to 30 % (one): dasher.com/will-hyper-threading-improve-"
    "processing-performance; for storage not measured",
)  # fmt: skip


def rows(kind: str) -> list[dict[str, str]]:
    """Rows of the table that are of *kind*: drive or cpu."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if row["kind"] == kind]


def drive_of(row: Mapping[str, str]) -> DriveProfile:
    """The drive of *row*, fitted to its figures; those from memory are assumed."""
    figures = {
        key: _last(row[column]) * scale
        for column, (key, scale) in FIGURES.items()
        if row[column].strip()
    }
    match = re.match(r"gen(\d) x(\d)", row["pcie"])
    link = f"pcie{match[1]} x{match[2]}" if match else "pcie4 x4"
    source = row["source"] if row["basis"] == "read" else MEMORY
    capacity = float(parse_size(row["capacity"]))
    sheet = Sheet(TABLE, figures, capacity, link, {"model": row["model"], "source": source})
    profile = fit_datasheet(sheet, name=row["name"]).profile
    update: dict[str, Any] = {"notes": _notes(row), "residuals": ()}
    if row["capacity_basis"] == "assumed":
        update["capacity"] = Quantity(
            value=capacity, basis="assumed", source="the source names a series and no capacity"
        )
    if "consumer" in row["note"]:
        update["write"] = profile.write.model_copy(update={"volatile": True, "flush": FLUSH})
    if unit := re.search(r"([0-9]+ KiB) \(indirection unit\)", row["note"]):  # less is read first
        size = Quantity(value=float(parse_size(unit[1])), basis="datasheet", source=source)
        update["write"] = profile.write.model_copy(update={"unit": size})
    if small := re.search(r"([0-9.]+) M reads of 512 B, ([^;]+)", row["note"]):
        # the channel, not the controller, stops those of 4 KiB
        rate = 1e6 * float(small[1])
        update["commands"] = Quantity(
            value=rate, low=(1 - REPEATS) * rate, high=(1 + REPEATS) * rate, basis="measured",
            source=small[2],
        )  # fmt: skip
        update["untold"] = {k: v for k, v in profile.untold.items() if k != "commands"}
    if profile.joint is not None:
        factors = profile.joint.factors[:: max(1, len(profile.joint.factors) // DRAWS)]
        update["joint"] = profile.joint.model_copy(update={"factors": factors[:DRAWS]})
    update["alternatives"] = tuple(
        a.model_copy(update={"joint": None}) for a in profile.alternatives
    )
    profile = profile.model_copy(update=update)
    rounded = _rounded(profile, row["basis"] == "read")
    return rounded if isinstance(rounded, DriveProfile) else profile


def _last(text: str) -> float:
    """The number of a cell: the larger of a range, without signs."""
    return float(re.split(r"[ /-]+", text.strip().lstrip("<>~ "))[-1].lstrip("<"))


def _notes(row: Mapping[str, str]) -> str:
    said = [f"Figures of {row['model']}: {row['source'] or MEMORY} ({row['basis']})."]
    said += [row["note"].rstrip(".; ") + "."] if row["note"] else []
    said.append("What a data sheet does not say (dies, channels, buffer) is assumed; " + MARK + ".")
    return "\n".join(said) + "\n"


def _rounded(part: Frozen, is_evidence: bool) -> Frozen:
    """*part* with four digits; without evidence all of its numbers are assumed."""
    changed: dict[str, Any] = {}
    for name in part.model_fields_set:
        value = getattr(part, name)
        if isinstance(value, Quantity):
            keep = name in WHOLE
            ends = {k: getattr(value, k) for k in ("value", "low", "high")}
            ends = ends if keep else {k: _digits(v) for k, v in ends.items()}
            basis = value.basis if is_evidence or value.basis != "datasheet" else "assumed"
            changed[name] = value.model_copy(update={**ends, "basis": basis})
        elif isinstance(value, Frozen):
            changed[name] = _rounded(value, is_evidence)
    return part.model_copy(update=changed)


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def cpu_of(row: Mapping[str, str]) -> CpuProfile:
    """The CPU of *row*."""
    is_evidence = row["basis"] == "read"
    source = row["source"] or MEMORY

    def quantity(text: str, *, known: bool = is_evidence) -> Quantity:
        basis = "datasheet" if known else "assumed"
        return Quantity.model_validate(
            {"value": float(text), "basis": basis, "source": source if known else MEMORY}
        )

    channels, _, rate = (part.strip() for part in row["mem"].split("(")[0].partition(" x "))
    kind, links, speed = _socket_link(row["socket_link"], row["name"])
    update: dict[str, Any] = {}
    if row["allcore_ghz"]:
        read = "all-core turbo 3.5" in row["source"]
        update["turbo_ghz"] = quantity(row["allcore_ghz"], known=read)
    return CpuProfile(
        name=row["name"], model=_cpu_model(row["model"]), cores=int(row["cores"]),
        threads_per_core=2, ghz=quantity(row["base_ghz"]), smt_yield=SMT, lanes=int(row["lanes"]),
        pcie_generation=round(float(row["pcie"])), interconnect=kind, interconnect_links=links,
        interconnect_rate=speed, memory_channels=int(channels), memory_rate=f"{rate} MT/s",
        tdp_w=quantity(row["tdp_w"]),
        sources=(f"{source}; {row['note']}", "lanes, socket links and channels by generation; "
                 "of a range of links the number is assumed", MARK), **update,
    )  # fmt: skip


def _cpu_model(model: str) -> str:
    return f"AMD {model}" if model.startswith("EPYC") else f"Intel {model}"


def _socket_link(text: str, name: str) -> tuple[Any, int, str]:
    """Kind, number and rate of the links between sockets."""
    match = re.match(r"(UPI|xGMI) (\d)(?:-(\d))? x ([0-9.]+)", text)
    if match is None:
        return "none", 0, "0 GT/s"
    many = match[3] is not None and ("platinum" in name or "epyc" in name)
    return match[1].lower(), int(match[3] if many else match[2]), f"{match[4]} GT/s"


def entries(names: list[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Folder, name and text of each entry; of *names* alone if there are any."""
    for row in rows("drive"):
        if not names or row["name"] in names:
            yield "drives", row["name"], to_toml(drive_of(row))
    for row in rows("cpu"):
        if not names or row["name"] in names:
            yield "cpus", row["name"], to_toml(cpu_of(row))


def is_ours(path: Path) -> bool:
    """True if *path* is free or was written by this script."""
    return not path.exists() or MARK in path.read_text("utf-8")


def main(folder: Path, names: list[str]) -> None:
    """Write the entries below *folder*."""
    for part, name, text in entries(names):
        path = folder / part / f"{name}.toml"
        if is_ours(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"{part}/{name}", file=sys.stderr)


__all__ = ["cpu_of", "drive_of", "entries", "rows"]

if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA, sys.argv[2:])
