"""Catalog entries of today are what their script makes of the table of sourced facts."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from nvmesim.catalog import load
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.toml import to_toml

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_parts", ROOT / "calibration" / "parts" / "generate.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PARTS = script()
DRIVES = {row["name"]: row for row in PARTS.rows("drive")}
CPUS = {row["name"]: row for row in PARTS.rows("cpu")}
QUICK = ("intel-p5800x", "samsung-pm9a3-3.84tb")


def kept(name: str, folder: str) -> bool:
    """True for an entry of this script, and not one of a measured part."""
    text = (PARTS.DATA / folder / f"{name}.toml").read_text("utf-8")
    return PARTS.MARK in text


@pytest.mark.parametrize("name", CPUS)
def test_a_cpu_is_what_the_script_makes(name: str) -> None:
    if kept(name, "cpus"):
        text = to_toml(PARTS.cpu_of(CPUS[name]))
        assert text == (PARTS.DATA / "cpus" / f"{name}.toml").read_text("utf-8")
    assert load.get("cpu", name).cores == int(CPUS[name]["cores"])


def same(made: DriveProfile, stored: DriveProfile) -> None:
    """Numbers of a fit are the same within what the order of sums may do."""
    values = dict(quantities(stored))
    for key, q in quantities(made):
        assert q.value == pytest.approx(values[key].value, rel=0.02), key
        assert q.basis == values[key].basis, key
    assert [a.name for a in made.alternatives] == [a.name for a in stored.alternatives]


@pytest.mark.parametrize("name", QUICK)
def test_a_drive_is_what_the_script_makes(name: str) -> None:
    same(PARTS.drive_of(DRIVES[name]), load.get("drive", name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DRIVES if name not in QUICK])
def test_every_drive_is_what_the_script_makes(name: str) -> None:
    same(PARTS.drive_of(DRIVES[name]), load.get("drive", name))


def test_all_of_the_table_are_in_the_catalog() -> None:
    assert set(DRIVES) <= set(load.names("drive"))
    assert set(CPUS) <= set(load.names("cpu"))
    for start in ("samsung-pm9a3-", "kioxia-cm7-", "solidigm-d7-ps1010-", "micron-9550-"):
        assert any(name.startswith(start) for name in DRIVES)


@pytest.mark.parametrize("name", [n for n, row in DRIVES.items() if row["basis"] != "read"])
def test_what_is_from_memory_is_assumed(name: str) -> None:
    stored = load.get("drive", name)
    told = {key for key, q in quantities(stored) if q.basis != "assumed"}
    assert told <= {"capacity", "logical_sector"}
