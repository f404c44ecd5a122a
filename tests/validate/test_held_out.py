"""Held-out rows: what is fitted, what is asked, and what the answers add up to."""

import math
from dataclasses import asdict

import pytest
from held_cases import COLUMNS, HeldCase, HeldRow, find_cases, ruler, splits
from held_out import CaseAnswer, answer_case, planned
from held_table import failures, groups, json_rows
from pydantic import TypeAdapter

import nvmesim
from nvmesim.cli.main import run_command
from nvmesim.errors import InputError
from nvmesim.study.validate.coverage import CoveredRow, coverage


def row(jobs: int, depth: int, iops: float, line: int = 0, **cells: str) -> HeldRow:
    blank = dict.fromkeys(COLUMNS, "")
    shape = {"op": "randread", "block_size": "4K", "jobs": str(jobs), "iodepth": str(depth)}
    return HeldRow(blank | shape | {"iops": str(iops)} | cells, line)


def drive(*rows: HeldRow) -> HeldCase:
    facts = {"source": "x", "stack": "linux-libaio", "link": "pcie4 x4"}
    return HeldCase("x-1", facts, rows)


def test_every_row_is_asked_or_counted_with_a_reason() -> None:
    for case in find_cases():
        plan = planned(case)
        reached = {r.line for s in plan.splits for r in (*s.fitted, *s.asked)}
        refused = {row.line for row, _ in plan.unasked}
        assert all(why for _, why in plan.unasked)
        assert not reached & refused
        assert reached or refused
        for split in plan.splits:
            repeated = {r.key() for r in split.fitted} & {r.key() for r in split.asked}
            assert case.is_server or not repeated  # a server's repeats are told as restated


def test_sources_and_rows_are_those_of_the_tables_and_none_is_another_again() -> None:
    """Two pages that hold the same run are one vote."""
    known: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for case in find_cases():
        for r in case.rows:
            if r.cells["iops"]:
                known.setdefault(r.key(), []).append((case.source, r.iops))
    shared: dict[tuple[str, str], int] = {}
    for found in known.values():
        pairs = {(a, b) for a, x in found for b, y in found if a < b and abs(x / y - 1) < 0.005}
        for pair in pairs:
            shared[pair] = shared.get(pair, 0) + 1
    assert not {pair: n for pair, n in shared.items() if n >= 3}
    cases = find_cases()
    assert len({c.source for c in cases}) >= 40
    assert all(r.iops > 0 and r.size > 0 for c in cases for r in c.rows)
    assert {c.source for c in find_cases(["R22"])} == {"R22"}
    with pytest.raises(InputError, match="R22"):
        find_cases(["R222"])


def test_drives_are_fitted_to_rows_apart_and_the_ruler_knows_no_ceiling() -> None:
    rows = [row(1, d, 1000.0 * d, line) for line, d in enumerate((1, 2, 8, 64))]
    found = {s.name: [int(r.in_flight or 0) for r in s.fitted] for s in splits(drive(*rows), rows)}
    assert found == {"2 rows": [1, 64], "3 rows": [1, 64, 8], "2 small rows": [1, 2]}
    fitted = [row(1, 1, 1000.0), row(2, 1, 2000.0)]
    assert ruler(row(32, 1, 1.0), fitted) == pytest.approx(32_000.0)
    assert ruler(row(1, 1, 1.0, op="randwrite"), fitted) is None
    rows = [row(1, 1, 9_700.0, 0), row(1, 8, 48_000.0, 1), row(1, 32, 71_000.0, 2)]
    facts = {"source": "x", "stack": "linux-libaio", "link": "sata3"}
    answer = answer_case(HeldCase("x-1", facts, tuple(rows)))
    assert [f for f in answer.failures if f.what == "row"] == []
    assert answer.predictions


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (row(1, 4, 1.0), 4000.0),  # in flight
        (row(4, 64, 1.0), 100_000.0),  # the rows show that the drive is full
        (row(1, 256, 1.0), 100_000.0),
        (row(1, 64, 1.0, block_size="16K"), 12_500.0),
    ],
)
def test_the_ruler_is_the_least_of_three_products(asked: HeldRow, expected: float) -> None:
    fitted = [row(1, 1, 1000.0), row(1, 64, 50_000.0), row(4, 64, 100_000.0), row(8, 64, 100_000.0)]
    assert ruler(asked, fitted) == pytest.approx(expected)


def test_one_vote_a_source_and_the_naive_rule_beside() -> None:
    rows = [CoveredRow("a", 100, 110, 90, 130, 100)] * 9 + [CoveredRow("b", 100, 100, 90, 110, 150)]
    found = coverage(rows)
    assert (found.rows, found.sources) == (10, 2)
    assert found.closer == pytest.approx(0.5)
    assert found.worst == pytest.approx((0.1 + 0.005) / 0.005)
    assert found.error_p90 == pytest.approx(0.1)


def test_crps_is_least_for_the_honest_width() -> None:
    def score(half: float) -> float:
        ends = math.exp(half)
        return CoveredRow("a", 110.0, 100.0, 100.0 / ends, 100.0 * ends).crps

    honest = math.log(1.1) * 1.96
    assert score(honest) < score(honest / 8)
    assert score(honest) < score(honest * 8)


def test_a_case_is_fitted_predicted_and_kept_as_json() -> None:
    rates = {1: 12_000.0, 4: 46_000.0, 16: 165_000.0, 64: 400_000.0}
    rows = [row(1, d, x, line) for line, (d, x) in enumerate(rates.items())]
    answer = answer_case(drive(*rows))
    assert {p.split for p in answer.predictions} == {"2 rows", "3 rows", "2 small rows"}
    assert TypeAdapter(CaseAnswer).validate_python(asdict(answer)).predictions[0].low > 0
    found = {g.name.strip(): g.found for g in groups([answer])}
    assert found["throughputs"].error < 0.5
    assert all(line["crps"] >= 0 for line in json_rows([answer]))
    assert failures([answer]) == [] or all(f.why for f in failures([answer]))


def test_an_installed_package_says_where_they_are(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(nvmesim, "__file__", str(tmp_path / "site" / "nvmesim" / "__init__.py"))
    assert run_command(["validate", "--held-out"]) == 2
    assert "run nvmesim from a checkout" in capsys.readouterr().err
