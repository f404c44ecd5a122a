"""Garbage collection that stalls writes, fitted to rows of an offered rate."""

from dataclasses import replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.over_time.stalls import fit_stalls, with_collection
from nvmesim.calibrate.points import Point
from nvmesim.scenario.load import scenario_from_dict
from tests.calibrate.bench import OTHER_SEED, drive, host, simulated
from tests.servers import one_server

pytestmark = pytest.mark.xdist_group("stalls")

TRUTH = {"ceiling": 300e3, "rate": 65e3, "length": 10e-3, "slots": 140.0, "every": 1.8, "cv": 0.1}
KNEE = TRUTH["rate"] + TRUTH["slots"] / TRUTH["length"]


def measured(profile, asked, requests=400_000, **more):
    """*asked* with what was measured of it."""
    found = measure(profile, host(), asked, requests=requests, seed=OTHER_SEED)
    shares = dict(found.percentiles_s)
    return replace(asked, iops=found.iops, mean_s=found.mean_s, percentiles_s=shares, **more)


def offered(profile, rate):
    """What six threads of 64 outstanding measured of *rate* writes a second."""
    asked = Point("", 0.0, True, 4096, 6, 64, rate, None, rate=rate, most_outstanding=384)
    return measured(profile, asked, iodepth=1)


def stalls(rows):
    """What *rows* tell of a drive whose other numbers are known."""
    return fit_stalls(drive(), host(), rows, lambda _: None)


def knee(write):
    """Writes/s from which they wait for batches."""
    batches = write.collection
    return batches.rate.value + batches.slots.value / batches.length.value * 1e12


@pytest.fixture(scope="module")
def truth():
    return with_collection(drive(ack=10.0), TRUTH)


@pytest.fixture(scope="module")
def fitted(truth):
    rows = [offered(truth, rate) for rate in (20e3, 50e3, 110e3)]
    rows += [simulated(truth, 6, 64, read=0.0), simulated(truth, 1, 1)]
    return fit_drive(rows)


@pytest.mark.parametrize("rate", [95e3, 140e3, 180e3])
def test_stalls_at_a_rate_between_are_predicted(truth, fitted, rate):
    """Writes stop beyond 79k/s; rows are of 20k, 50k and 110k/s and of a full drive."""
    expected = offered(truth, rate)
    found = measure(fitted.profile, host(), expected, requests=400_000)
    assert expected.percentiles_s[99.0] > 1e-3
    assert found.percentiles_s[99.0] == pytest.approx(expected.percentiles_s[99.0], rel=0.25)
    assert found.mean_s == pytest.approx(expected.mean_s, rel=0.35)


def test_threads_that_are_each_limited_tell_it_too(truth):
    """As fio's ``rate_iops``: 64 outstanding of each thread, at most so many a second."""
    rows = [simulated(truth, 6, 64, read=0.0), simulated(truth, 1, 1)]
    for rate in (50e3, 110e3):
        asked = Point("", 0.0, True, 4096, 6, 64, rate, None, rate_limit=rate / 6)
        rows.append(measured(truth, asked))
    assert knee(stalls(rows).profile.write) == pytest.approx(KNEE, rel=0.2)


def test_below_the_knee_nothing_waits(truth, fitted):
    found = measure(fitted.profile, host(), offered(truth, 0.75 * KNEE), requests=400_000)
    assert found.percentiles_s[99.0] < 60e-6


def test_each_number_of_the_batches_has_an_interval(fitted):
    batches = fitted.profile.write.collection
    for number in (batches.drain, batches.every, batches.length, batches.rate, batches.length_cv):
        assert number.low < number.value < number.high
    assert batches.rate.low < TRUTH["rate"] < batches.rate.high
    assert batches.length.low < 1e12 * TRUTH["length"] < batches.length.high


def test_the_profile_is_one_that_a_server_may_have(fitted, tmp_path):
    tables = one_server("samsung-980pro-1tb", {"outstanding": 4, "read": 0.0})
    tables["drives"][0]["profile"] = fitted.profile.model_dump(mode="json")
    assert scenario_from_dict(tables).drives[0].profile


def test_programs_that_reads_beside_meet(truth):
    """A read finds a program with probability rate x busy, and waits for half of it on average."""
    beside = with_collection(drive(ack=10.0), TRUTH)
    beside = beside.model_copy(update={"write": beside.write.model_copy(update={
        "program": beside.write.program.model_copy(update={"value": 500e6}),
        "collection": beside.write.collection.model_copy(
            update={"busy": beside.write.program.model_copy(update={"value": 2e6})}
        ),
    })})  # fmt: skip
    rows = []
    for rate in (20e3, 60e3, 110e3):
        load = offered(beside, rate)
        read = Point("", 1.0, True, 4096, 1, 1, 5e3, None, rate=5e3, beside=load)
        rows += [load, measured(beside, read, 100_000)]
    rows.append(simulated(beside, 6, 64, read=0.0))
    made = stalls(rows).profile.write
    ratio = made.collection.busy.value * made.program.value / (2e6 * 500e6)
    assert ratio == pytest.approx(1.0, rel=0.3)
    assert np.isclose(made.program.value, 500e6, rtol=0.25)


def test_larger_writes_are_not_counted_as_small_ones(fitted):
    """The knee that rows of 4 KiB tell is the same beside one of 64 KiB, 16 times as slow."""
    rows = [j.point for j in fitted.points]
    slow = {percent: 16 * s for percent, s in rows[2].percentiles_s.items()}
    large = replace(rows[2], block_size=1 << 16, percentiles_s=slow, mean_s=16 * rows[2].mean_s)
    alone, beside = (knee(stalls(each).profile.write) for each in (rows, [*rows, large]))
    assert beside == pytest.approx(alone, rel=0.05)


def test_ordinary_tails_are_no_batches():
    """A drain of dies whose writes wait at 0.9 of what it does has a tail, and no batches."""
    plain = drive()
    rows = [offered(plain, rate) for rate in (20e3, 60e3, 108e3)]
    rows += [simulated(plain, 6, 64, read=0.0), simulated(plain, 1, 1)]
    assert stalls(rows) is None
