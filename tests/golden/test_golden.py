"""The golden files: see the package's docstring."""

import pytest

from tests.engines.test_modes import run_python
from tests.golden import CASES, HERE, map_text, result_text

HOW = "results have changed: if that is meant, `make golden`, and say why in the changelog"


@pytest.mark.parametrize("case", CASES)
def test_a_result_is_the_golden_one(case):
    assert result_text(case) == (HERE / f"{case}.json").read_text("utf-8"), HOW


def test_addresses_are_the_golden_ones():
    assert map_text() == (HERE / "raid-map.json").read_text("utf-8"), HOW


def test_no_golden_file_is_left_over():
    assert {file.stem for file in HERE.glob("*.json")} == {*CASES, "raid-map"}


@pytest.mark.parametrize("case", ["one-drive", "raid5"])
def test_the_other_engine_gives_the_same_digits(case):
    assert result_text(case, "simpy") == result_text(case)


def test_another_process_gives_the_same_bytes():
    """Other hash seed, one thread, another locale's digits: nothing of it counts."""
    text = run_python(
        "from tests.golden import result_text; print(result_text('two-groups'), end='')",
        PYTHONHASHSEED="123", NUMBA_NUM_THREADS="1", OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1",
        LC_ALL="C",
    )  # fmt: skip
    assert text == result_text("two-groups")
