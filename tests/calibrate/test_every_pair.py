"""Captures of every two kinds in one call: calibrated as far as they go, or refused in one line."""

import functools
import itertools
from pathlib import Path

import pytest

from nvmesim.capture.capture import Capture, Captures
from nvmesim.capture.registry import READERS, read_capture, read_captures
from nvmesim.cli.calibrate import fit_capture, fit_host
from nvmesim.cli.main import run_command
from nvmesim.errors import FitError, InputError

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "capture" / "data"
LOCAL = ROOT / "calibration" / "local-disk"
KINDS = [reader.name for reader in READERS]
PAIRS = list(itertools.combinations_with_replacement(KINDS, 2))
FEW = 2
"""Samples of a kind that meet those of the others."""


class BegunError(Exception):
    """All captures are understood: what follows fits one number after the other, for minutes."""


def begin(*_: object) -> None:
    raise BegunError


@pytest.fixture
def fits_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of points end where they begin; those of traces and stacks at their first word."""
    monkeypatch.setattr("nvmesim.calibrate.drive.explaining.fit_reads", begin)
    monkeypatch.setattr("nvmesim.calibrate.drive.explaining.bank_optimum", begin)
    monkeypatch.setattr("nvmesim.calibrate.drive.explaining.fit_writes", begin)


@functools.cache
def samples(kind: str) -> list[Capture]:
    """Captures of *kind*, sizes that are mixed and requests that are single among them."""
    more = {
        "fio-json": [LOCAL / "randrw_qd4.json", DATA / "fio-json" / "randrw_bssplit_qd8.json.gz"],
        "blkparse": [DATA / "blkparse" / "single_randrw.txt.gz"],
    }
    files = sorted(path for path in (DATA / kind).iterdir() if path.is_file())
    return [read_capture(path) for path in dict.fromkeys([*files[:FEW], *more.get(kind, [])])]


def calibrate(captures: Captures, stack: bool) -> None:
    """As `nvmesim calibrate` does, until it has begun to fit; what it refuses is one line."""
    try:
        if stack:
            fit_host(captures, "x", "2.4 GHz", None, (), begin)
        else:
            fit_capture(captures, "x", None, (), None, begin)
    except BegunError:
        return
    except InputError as error:
        refusal = str(error)
    else:
        return
    assert refusal
    assert "\n" not in refusal


@pytest.mark.usefixtures("fits_begin")
@pytest.mark.parametrize("kinds", PAIRS, ids="+".join)
def test_every_pair_of_kinds(kinds: tuple[str, str]) -> None:
    for pair in itertools.product(*map(samples, kinds)):
        for captures in (Captures(pair), Captures(pair[::-1])):
            calibrate(captures, stack=False)
        calibrate(Captures(pair), stack=True)


def test_all_kinds_in_one_folder(tmp_path: Path) -> None:
    """Results find the logs that are of them by their names: another way through the readers."""
    for kind in KINDS:
        for file in sorted((DATA / kind).iterdir())[:FEW]:
            (tmp_path / f"{kind}-{file.name}").write_bytes(file.read_bytes())
    captures = read_captures(str(tmp_path))
    assert len({capture.format for capture in captures.files}) >= len(KINDS) - 2
    with pytest.raises(BegunError):
        fit_capture(captures, "x", None, (), None, begin)


def test_the_folder_of_results_and_logs() -> None:
    """Its jobs have block sizes of their own and in common; that once was a TypeError."""
    with pytest.raises(BegunError):
        fit_capture(read_captures(str(LOCAL)), "x", None, (), None, begin)


def test_traces_of_which_none_can_be_fitted_are_refused() -> None:
    cut = DATA / "blkparse" / "md_raid0_randread256k.txt.gz"
    with pytest.raises(FitError, match="too few to fit"):
        fit_capture(read_captures([cut, DATA / "biosnoop"]), "x", None, (), None, begin)


@pytest.mark.slow
def test_a_trace_beside_results_to_the_end(tmp_path: Path, capfd) -> None:
    results = DATA / "fio-json" / "randread_4k_qd4.jsonplus.json.gz"
    out = tmp_path / "drive.toml"
    code = run_command(["calibrate", str(results), str(DATA / "blkparse"), "-o", str(out)])
    said = " ".join(capfd.readouterr().out.split())
    assert code == 0
    assert "not used, the queue depth is not known" in said
    assert out.exists()
