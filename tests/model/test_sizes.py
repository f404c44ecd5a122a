"""Random reads larger than 4 KiB: closed forms, and drives that were read by size."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from held_cases import find_cases
from held_out import _predicted, _profile, planned

from nvmesim.predict.simulate import simulate
from nvmesim.scenario.load import scenario_from_dict

COMMANDS, BANDWIDTH = 250e3, 2.0e9
DRIVE = {"extends": "intel-p4610-1.6tb", "commands": f"{COMMANDS}/s", "dies": 512,
         "read_bandwidth": f"{BANDWIDTH} B/s"}  # fmt: skip


def saturated(kib: int, read: dict[str, object]) -> float:
    """Reads/s of *kib* KiB of a drive whose controller is the ceiling at 4 KiB."""
    server = {
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "epyc-9354"}]},
        "drives": [{"profile": DRIVE | {"read": read}, "link": "pcie4 x4"}],
        "workload": [{"block_size": f"{kib} KiB", "access": "random", "read": 1.0, "threads": 16,
                      "outstanding": 64}],
    }  # fmt: skip
    run = simulate(scenario_from_dict(server), requests=30_000, reliefs=False, certainty=False)
    return run.total.iops.value


@pytest.mark.parametrize("share", [None, 0.0, 0.6, 1.0])
@pytest.mark.parametrize("kib", [4, 8, 16])
def test_commands_and_bytes_take_turns_or_overlap(kib: int, share: float | None) -> None:
    """The sum of both times at a share of 1, the longer of the two at 0, between them else."""
    left = 1 / COMMANDS - 4096 / BANDWIDTH
    held = kib * 1024 / BANDWIDTH + ((share or 0.0) * left if kib > 4 else 0.0)
    found = saturated(kib, {} if share is None else {"serial": share})
    assert found == pytest.approx(1 / max(1 / COMMANDS, held), rel=0.02)


def test_data_engines_hold_a_small_command_as_one_would() -> None:
    """Two engines of half the rate have the same ceiling, at each size."""
    split = 2 * 16384 / BANDWIDTH
    engines = {"serial": 1.0, "engines": 2, "split": f"{1e6 * split:.6f} us", "unit": "16 KiB"}
    for kib in (8, 16, 64):
        held = kib * 1024 / BANDWIDTH + 1 / COMMANDS - 4096 / BANDWIDTH
        assert saturated(kib, engines) == pytest.approx(1 / held, rel=0.03)


@pytest.mark.parametrize(("name", "shallow"), [("U07", 1), ("U08", 4)])
def test_sizes_that_no_row_is_of(tmp_path: Path, name: str, shallow: int) -> None:
    """4 KiB by depth and 128 KiB tell 8 to 32 KiB: 44 to 139 % too many with the longer alone."""
    case = next(c for c in find_cases() if c.name == name)
    rows = {(r.size, r.in_flight): r for r in case.rows if r.op == "randread"}
    sweep = [(4096, shallow), (4096, 32), (4096, 1024), (131072, shallow), (131072, 32)]
    asked = [(size, 32) for size in (8192, 16384, 32768) if (size, 32) in rows]

    def at(keys: Sequence[tuple[int, int]]) -> tuple:
        return tuple(rows[key] for key in keys)

    split = replace(planned(case).splits[0], fitted=at(sweep), asked=at(asked))
    profile, refused = _profile(case, split, tmp_path)
    assert not refused
    for row in split.asked:
        found = next(p for p in _predicted(case, split, row, profile) if p.metric == "iops")
        assert found.low < found.measured < found.high
        assert found.predicted == pytest.approx(found.measured, rel=0.25)
