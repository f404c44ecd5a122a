"""Misfit, model error, domain and their sum with the rest."""

import math
from dataclasses import replace

import numpy as np
import pytest

from nvmesim.catalog.load import get
from nvmesim.catalog.profile import Captured, Residual
from nvmesim.predict.simulate import simulate
from nvmesim.predict.uncertainty.certainty import model_uncertainty, room
from nvmesim.predict.uncertainty.misfit import Where, is_calibrated, of_profile
from nvmesim.predict.uncertainty.model_error import (
    Miss,
    learned,
    model_error,
    read_table,
    write_table,
)
from nvmesim.predict.uncertainty.standing import Standing, model_class, outside, standing
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.resolve import resolve
from tests.predict.scenarios import scenario
from tests.servers import one_server

MIXES = [(0.12, 8), (0.13, 16), (0.18, 32), (0.04, 64)]
"""How much more a shipped example predicted than its own four captures at 70 % reads."""


def residual(error, depth, read=0.7, **more):
    return Residual(read=read, block_size=4096, threads=1, outstanding=depth, iops=error, **more)


def with_residuals(*rows, **more):
    drive = get("drive", "intel-p4610-1.6tb")
    return drive.model_copy(update={"residuals": tuple(rows), **more})


KNOWN = Standing("mixes", "drive", rows=6)
FEW = replace(KNOWN, rows=1)


def miss(source, error, standing=KNOWN, known=0.0, metric="iops"):
    return Miss(source, "set", "config", metric, error, known, standing)


def test_a_prediction_moves_by_what_was_missed_nearby_and_of_its_kind():
    profile = with_residuals(*(residual(math.log1p(e), depth) for e, depth in MIXES))
    found = of_profile(profile, Where(0.7, 4096, 24, 1))
    mean = sum(math.log1p(e) for e, _ in MIXES) / len(MIXES)
    assert found.shift == pytest.approx(-mean, abs=0.04)
    assert found.deviation < 0.05
    rows = [residual(0.5, 4, read=1.0, sequential=True), residual(0.1, 4, read=0.0, sync="fsync"),
            residual(-0.2, 4, read=1.0)]  # fmt: skip
    profile = with_residuals(*rows)
    shifts = {
        (sequential, sync): of_profile(profile, Where(read, 4096, 4, 1, sequential, sync)).shift
        for read, sequential, sync in ((1.0, True, ""), (0.0, False, "fsync"), (1.0, False, ""))
    }
    assert shifts[True, ""] == pytest.approx(-0.5, abs=0.01)
    assert shifts[False, "fsync"] == pytest.approx(-0.1, abs=0.01)
    assert shifts[False, ""] == pytest.approx(0.2, abs=0.01)
    other = of_profile(profile, Where(0.0, 4096, 4, 1, False, "sync"))
    assert other.shift == 0.0  # of another kind nobody knows the side
    assert other.deviation > 0.1


def test_a_data_sheets_figure_is_near_and_is_no_row():
    rows = [residual(0.1, 1, read=1.0, measured=11e3),
            residual(0.3, 256, read=1.0, measured=800e3, stated=True)]  # fmt: skip
    profile = with_residuals(*rows)
    assert of_profile(profile, Where(1.0, 4096, 256, 1)).shift > -0.11  # of the row alone
    deep = scenario(drives=1, read=1.0, outstanding=64, drive={"residuals": rows})
    found = simulate(deep, reliefs=False).certainty.standing
    assert (found.rows, found.sheet) == (1, "random reads")
    assert found.words() == "fitted to 1 row and a data sheet"
    lone = {"threads_total": 1, "outstanding": 1}
    shallow = scenario(drives=1, read=1.0, drive={"residuals": rows}, **lone)
    assert simulate(shallow, reliefs=False).certainty.standing.sheet == ""


def test_a_mix_inherits_misses_and_doubt_grows_with_the_distance():
    profile = with_residuals(*(residual(math.log1p(e), depth) for e, depth in MIXES))
    away = ((0.7, 4096), (0.5, 4096), (0.0, 65536))
    places = [Where(read, size, 24, 1) for read, size in away]
    deviations = [of_profile(profile, where).deviation for where in places]
    assert deviations == sorted(deviations)
    rms = math.sqrt(sum(math.log1p(e) ** 2 for e, _ in MIXES) / len(MIXES))
    assert deviations[-1] == pytest.approx(rms, rel=0.05)
    assert abs(of_profile(profile, places[-1]).shift) < 0.01
    profile = with_residuals(residual(0.2, 16, read=1.0), residual(-0.3, 16, read=0.0))
    assert of_profile(profile, Where(0.5, 4096, 16, 1)).deviation > 0.15
    old = with_residuals(missed={"randread": 0.1, "randwrite": -0.25})
    assert of_profile(old, Where(0.5, 4096, 16, 1)).deviation == 0.0  # not calibrated: no captures


def test_the_shipped_interval_holds_what_was_measured():
    """139k measured at 70/30, 159k predicted +-1 % before."""
    rows = [{"read": 0.7, "block_size": 4096, "threads": 1, "outstanding": depth,
             "iops": math.log1p(error)} for error, depth in MIXES]  # fmt: skip
    plain = simulate(scenario(drives=1, read=0.7), reliefs=False)
    held = simulate(scenario(drives=1, read=0.7, drive={"residuals": rows}), reliefs=False)
    moved = held.total.iops.value / plain.total.iops.value
    assert -0.13 < moved - 1 < -0.03
    assert held.certainty.moved["iops"] == pytest.approx(moved - 1)
    assert held.total.latency.mean * moved == pytest.approx(plain.total.latency.mean, rel=0.01)
    assert held.total.iops.low < plain.total.iops.value / 1.12 < held.total.iops.high


def test_loads_that_are_carried_are_inputs_and_nothing_moves_them():
    rows = [{"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": 1, "iops": -0.3}]
    held = simulate(scenario(drives=2, rate_limit="1k/s", drive={"residuals": rows}), reliefs=False)
    assert held.total.iops.value == pytest.approx(8000, rel=0.01)  # four threads on each drive
    assert held.total.iops.high < 1.01 * held.total.iops.value
    assert held.total.iops.low > 0.9 * held.total.iops.value
    found = simulate(scenario(rate="20k/s", arrivals="poisson"), reliefs=False)
    parts = found.certainty.figures["iops"]
    assert parts.numbers == parts.misfit == parts.model == (0.0, 0.0)
    assert max(found.certainty.figures["mean"].model) > 0


def test_the_error_of_the_model_is_as_large_as_where_and_how_often_it_was_seen():
    three = [miss(s, 0.02) for s in "abc"]
    one, more_rows, more_sources = (
        model_error(KNOWN, table=table)
        for table in (three, three * 10, [miss(s, 0.02) for s in "abcdefghij"])
    )
    assert more_sources.half < more_rows.half <= one.half
    assert one.sources == ("a", "b", "c")
    assert one.off == pytest.approx((math.expm1(0.02), math.expm1(0.02)))
    # Of 20 sources, fits of many rows are off by 3 %, of one row by 60 %.
    rows = [miss(f"s{i}", 0.03 * (-1) ** i) for i in range(20)]
    rows += [miss(f"s{i}", 0.6 * (-1) ** i, FEW) for i in range(20)]
    assert model_error(KNOWN, table=rows).half < 0.6 * model_error(FEW, table=rows).half


@pytest.mark.parametrize("figure", ["iops", "p99"])
def test_a_drive_that_is_full_already_is_as_sure_at_more_depth(figure):
    """What counts is how far the answer moves: 64 times the depth, the same bytes/s."""
    full = replace(KNOWN, depth=6.0, moved=0.0)
    near, far = (replace(KNOWN, moved=x) for x in (0.5, 3.0))
    halves = [model_error(s, figure).half for s in (full, near, far)]
    assert halves == sorted(halves)
    assert halves[0] == model_error(replace(full, depth=0.0), figure).half
    assert halves[0] < 0.5 * halves[2]
    assert [s.evidence for s in (full, near, far)] == ["near", "near", "far"]


def test_a_figure_of_a_data_sheet_is_surer_and_without_a_table_nothing_is():
    stated = Standing("drives alone", "drive", sheet="random reads", moved=0.0)
    beyond = replace(stated, sheet="", moved=-3.0)
    assert model_error(stated).half < 0.7 * model_error(beyond).half
    assert model_error(KNOWN, table=[]).half == pytest.approx(math.log(2))


def test_a_prediction_tells_how_far_its_drives_are_from_their_rows():
    """One drive at 1 and at 64 outstanding, fitted to a row of the lone request."""
    alone = simulate(scenario(drives=1, outstanding=1, threads=1), reliefs=False)
    rate = alone.total.iops.value
    rows = [{"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": 1, "iops": 0.0,
             "measured": rate}]  # fmt: skip
    for depth in (1, 16):
        held = simulate(
            scenario(drives=1, outstanding=depth, threads=1, drive={"residuals": rows}),
            reliefs=False,
        )
        gain = math.log2(held.total.iops.value / rate)
        assert held.certainty.standing.moved == pytest.approx(gain, abs=0.02)
        assert held.certainty.standing.depth == pytest.approx(math.log2(depth))


READS = [(1, 14e3), (8, 110e3), (64, 560e3), (128, 730e3), (256, 780e3)]
"""Outstanding and IOPS of one drive's rows."""


@pytest.mark.parametrize(("depth", "size", "rate"), [
    (100, "4 KiB", 690e3), (8, "4 KiB", 100e3), (128, "128 KiB", 48e3), (64, "128 KiB", 48e3),
])  # fmt: skip
def test_a_further_row_makes_no_answer_less_sure(depth, size, rate):
    """A row at a nearer depth may be farther from the answer: the other still tells of it."""
    rows = [{"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": n, "iops": 0.0,
             "measured": measured} for n, measured in READS]  # fmt: skip

    def half(kept):
        load = {"threads": 1, "outstanding": depth, "block_size": size}
        one = resolve(scenario(drives=1, drive={"residuals": kept}, **load))
        bytes_per_s = rate * one.workload[0].mean_size
        found = standing(one, model_class(one, "drive"), "drive", [bytes_per_s])
        return model_error(replace(found, between=1.0)).half  # what is learned of that is noise

    for n in range(1, len(rows)):
        for row in rows:
            fewer = [r for r in rows[-n:] if r != row]
            assert not fewer or half([*fewer, row]) <= half(fewer)


def test_another_loads_rate_that_is_the_same_by_chance_tells_nothing():
    """Writes that happen to do what some row of reads does, not the nearest."""
    rows = [{"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": n, "iops": 0.0,
             "measured": measured} for n, measured in READS]  # fmt: skip
    one = scenario(drives=1, drive={"residuals": rows}, threads=1, outstanding=256, read=0.0)
    found = standing(resolve(one), "drives alone", "drive", [560e3 * 4096])
    assert found.moved == pytest.approx(-0.3)
    assert found.covariates()[4] == 0.0


@pytest.mark.parametrize("read", [1.0, 0.7])
@pytest.mark.parametrize("raid", ["raid5", "raid10"])
@pytest.mark.parametrize("rows", [0, 3])
def test_a_missing_member_makes_no_array_surer(raid, rows, read):
    """Whole it may be held back by anything; less a member by its drives, which rows tell of."""
    kept = [{"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": n, "iops": 0.0,
             "measured": rate} for n, rate in READS[:rows]]  # fmt: skip
    for state in ({"degraded": [0]}, {"degraded": [0], "rebuild": True}):
        whole, less = (
            resolve(scenario(drives=4, read=read, drive={"residuals": kept},
                             volume={"raid": raid, **more}))
            for more in ({}, state)
        )  # fmt: skip
        for verdict in ("drive", "link", "cpu", "latency-bound", "raid-engine"):
            for traffic in (1e8, 4e8, 3e9):
                before = model_uncertainty(whole, verdict, traffic=[traffic] * 4)
                for after in ("drive", "link", "cpu", "latency-bound", "raid-engine"):
                    for times in (1.0, 1.5, 2.0):
                        rest = [0.0, *[times * traffic] * 3]
                        found = model_uncertainty(less, after, traffic=rest)
                        assert found.errors["iops"].half >= before.errors["iops"].half


def test_reads_of_an_array_without_a_member_may_be_slower_than_one_drive():
    """What is missing is computed by md, from all others: one drive's rate is no floor of that."""
    rows = [{"read": 1.0, "block_size": 4096, "threads": 1, "outstanding": 1, "iops": 0.0,
             "measured": 14e3}]  # fmt: skip
    whole, less = (
        resolve(scenario(drives=4, drive={"residuals": rows, "captured": {"stack": "plain"}},
                         volume={"raid": "raid5", **more}))
        for more in ({}, {"degraded": [0]})
    )  # fmt: skip
    assert room(whole, 20e3)[0] == pytest.approx(math.log(20 / (0.7 * 14)))
    assert room(less, 20e3)[0] == math.inf


@pytest.mark.parametrize(
    ("threads", "stack", "path", "fitted"),
    [(2, "plain", {}, 1), (1, "plain", {}, 0), (2, "linux-libaio", {}, 0),
     (2, "plain", {"filesystem": "xfs"}, 0)],
)  # fmt: skip
def test_a_load_that_was_fitted_is_as_sure_as_its_row(threads, stack, path, fitted):
    """Asked: two threads of eight each, raw; the row is of so many, captured on that stack."""
    alone = simulate(scenario(drives=1, outstanding=8, threads=2), reliefs=False)
    row = {"read": 1.0, "block_size": 4096, "threads": threads, "outstanding": 8, "iops": 0.0,
           "measured": alone.total.iops.value, **path}  # fmt: skip
    drive = {"residuals": [row], "captured": {"stack": stack, "depths": [8 * threads]}}
    one = scenario(drives=1, outstanding=8, threads=2, drive=drive)
    found = simulate(one, reliefs=False).certainty
    assert found.standing.fitted == fitted
    assert (max(found.figures["iops"].model) < 0.1) == bool(fitted)


def test_intervals_hold_what_was_left_out():
    """Normal errors of 40 sources: 95 % of further ones lie inside; 400 of them, so 91 to 98 %."""
    rng = np.random.default_rng(5)
    table = [miss(f"s{i}", float(e)) for i, e in enumerate(0.1 * rng.standard_normal(40))]
    half = model_error(KNOWN, table=table).half
    assert 0.9 < float(np.mean(np.abs(0.1 * rng.standard_normal(400)) < half)) <= 0.995


@pytest.mark.parametrize("figure", ["iops", "lat_mean_us"])
def test_an_interval_reaches_as_far_as_errors_of_its_side(figure):
    """Of 40 sources a quarter are slower by half, and none is much faster."""
    errors = [-0.7 if i % 4 == 0 else 0.02 * (-1) ** i for i in range(40)]
    table = [miss(f"s{i}", e) for i, e in enumerate(errors)]
    below, above = model_error(KNOWN, figure, table=table).span
    slower, faster = (below, above) if figure == "iops" else (above, below)
    assert slower > 0.7
    assert 0.02 < faster < 0.75 * slower


def test_sources_left_out_teach_nothing_and_explained_misses_are_not_the_models():
    rows = [miss("a", 0.9), *(miss(s, 0.1) for s in "bcde")]
    without = learned("a", tuple(rows))
    assert without == pytest.approx(learned("", tuple(rows[1:])), abs=1e-6)
    explained = [miss(s, 0.3, known=0.29) for s in "abcd"]
    bare = [miss(s, 0.3) for s in "abcd"]
    found = [model_error(KNOWN, table=rows).half for rows in (explained, bare)]
    assert found[0] < 0.5 * found[1]
    rows = [miss("b", 0.1), miss("a", -0.2)]
    assert write_table(rows) == write_table(reversed(rows))
    assert [row.source for row in read_table(write_table(rows))] == ["a", "b"]


def test_the_four_parts_in_json_and_in_words():
    found = simulate(scenario(read=0.7), reliefs=False).to_json()
    parts = found["uncertainty"]["iops"]
    assert set(parts) == {"simulation", "numbers", "misfit", "model", "total"}
    assert {"mean", "p50", "model_class", "sources", "standing", "basis"} <= set(
        found["uncertainty"]
    )
    iops = found["total"]["iops"]
    total = parts["total"] if isinstance(parts["total"], list) else [parts["total"]] * 2
    assert 1 - iops["low"] / iops["value"] == pytest.approx(total[0], rel=0.06)
    assert iops["high"] / iops["value"] - 1 == pytest.approx(total[1], rel=0.06)


def test_reliefs_say_how_likely_they_help():
    found = simulate(scenario(drives=1, outstanding=1))
    assert found.bottleneck.reliefs
    for relief in found.bottleneck.reliefs:
        assert 0 <= relief.p_better <= 1
        assert relief.gain_low <= relief.gain <= relief.gain_high
    best = found.bottleneck.reliefs[0]
    assert best.gain > 0.2
    assert best.p_better > 0.8  # two drives of the catalog, of which nothing was measured


def test_what_lies_outside_of_the_captures_is_listed():
    captured = Captured(
        block_sizes=(4096,), read_shares=(1.0,), sequential=(False,), depths=(1, 64),
        drives=(1,), stack="linux-libaio",
    )  # fmt: skip
    drive = get("drive", "intel-p4610-1.6tb").model_copy(update={"captured": captured})
    load = {"outstanding": 512, "read": 0.7, "block_size": "64 KiB"}
    one = resolve(scenario_from_dict(one_server("intel-p4610-1.6tb", load)))
    one = replace(one, drives=(replace(one.drives[0], profile=drive),))
    found = {item.what: (item.asked, item.captured) for item in outside(one)}
    assert found == {
        "depth": ("512", "1 to 64"), "block size": ("64 KiB", "4 KiB"),
        "share of reads": ("70%", "100%"), "stack": ("linux-io_uring", "linux-libaio"),
    }  # fmt: skip


@pytest.mark.parametrize(("same", "kind"), [(True, "calibrated"), (False, "catalog")])
def test_a_full_cpu_on_another_stack_than_captured_is_not_calibrated(same, kind):
    drive, one = get("drive", "samsung-980pro-1tb"), resolve(scenario())
    captured = Captured(block_sizes=(4096,), stack=one.stack.name if same else "linux-libaio")
    known = drive.model_copy(update={"captured": captured})
    one = replace(one, drives=tuple(replace(d, profile=known) for d in one.drives))
    assert is_calibrated(drive)
    assert model_uncertainty(one, "cpu").standing.kind == kind
    assert model_uncertainty(one, "drive").standing.kind == "calibrated"


def test_a_drive_whose_writes_are_a_bound_says_so():
    tables = one_server("samsung-980pro-1tb", {"outstanding": 4, "read": 0.9})
    found = simulate(scenario_from_dict(tables), reliefs=False, requests=4000)
    assert any(w.code == "writes" and "at most" in w for w in found.warnings)
