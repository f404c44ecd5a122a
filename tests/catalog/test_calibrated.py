"""What a calibration leaves in a profile: written, read again, and put in place."""

import tomllib

import pytest

from nvmesim.catalog import load
from nvmesim.catalog.profile import Alternative, Captured, DriveProfile, JointDraws, Residual
from nvmesim.catalog.toml import to_toml
from nvmesim.errors import CatalogError


def drive() -> DriveProfile:
    die = {"value": "70 us", "low": "65 us", "high": "76 us", "basis": "fitted"}
    other = Alternative(
        name="read ceiling in the controller", weight=0.25,
        values={"commands": "640k/s", "read.die": die},
        joint=JointDraws(names=("commands",), factors=((0.99,), (1.01,))),
    )  # fmt: skip
    return load.get("drive", "intel-p4610-1.6tb").model_copy(
        update={
            "alternatives": (other,),
            "residuals": (
                Residual(
                    read=0.7, block_size=4096, threads=32, outstanding=128, drives=2, iops=-0.02
                ),
                Residual(read=1, block_size=4096, threads=1, outstanding=1, iops=0.0, p99_9=0.1),
            ),
            "captured": Captured(
                block_sizes=(4096,), read_shares=(0.7, 1.0), depths=(1, 2048), kernel="6.1"
            ),
            "untold": {"dies": "reads at three depths"},
        }
    )


def test_it_is_written_and_read_again() -> None:
    made = drive()
    again = load.from_table("drive", tomllib.loads(to_toml(made)))
    assert again == made


def test_an_alternative_takes_the_place_of_the_profile() -> None:
    made = drive()
    (other,) = made.alternatives
    placed = load.with_alternative(made, other)
    assert placed.commands.value == 640e3
    assert placed.read.die.low == 65e6
    assert placed.read.base == made.read.base
    assert placed.alternatives == ()
    assert placed.joint == other.joint


def test_an_alternative_of_an_unknown_number_is_refused() -> None:
    other = Alternative(name="x", weight=0.5, values={"read.dye": "1 us"})
    with pytest.raises(CatalogError, match=r"read\.dye is not a known key"):
        load.with_alternative(drive(), other)


def test_depth_is_that_of_each_drive() -> None:
    assert drive().residuals[0].depth == 2048
