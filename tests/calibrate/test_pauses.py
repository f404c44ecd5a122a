"""What holds up a disk of rounds is recovered from simulated captures, and not found where not."""

from dataclasses import replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.over_time import pauses as fitting
from nvmesim.calibrate.over_time.pauses import NONE, PauseFit, PauseTail, fit_pauses
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import Pauses, Quantity, Rounds, Stalls
from tests.calibrate.bench import drive

BASE, EACH = 45e-6, 11e-6
RATE, MEAN, CV = 400.0, 60e-6, 4.0
SHARE, STALL, STALL_CV = 2e-4, 3e-3, 0.3


def known(*, pauses: bool, stalls: bool):
    """A virtual disk, and what may hold it up."""
    q = Quantity
    stops = {}
    if pauses:
        stops["pauses"] = Pauses(
            every=q(value=1e12 / RATE), length=q(value=1e12 * MEAN), cv=q(value=CV),
            law="lognormal",
        )  # fmt: skip
    if stalls:
        stops["read_stalls"] = Stalls(
            share=q(value=SHARE), length=q(value=1e12 * STALL), cv=q(value=STALL_CV)
        )
    rounds = Rounds(
        base=q(value=1e12 * BASE), base_cv=q(value=0.2), read=q(value=1e12 * EACH),
        cv=q(value=0.4), **stops,
    )  # fmt: skip
    made = drive()
    none = {"base": q(value=0.0)}
    update = {
        "rounds": rounds, "read": made.read.model_copy(update=none),
        "write": made.write.model_copy(update=none),
    }  # fmt: skip
    return made.model_copy(update=update)


def captured(profile, seed: int = 1) -> list[Point]:
    """Reads and writes at four depths with their whole distributions, 6 s or so each."""
    points = []
    for read in (1.0, 0.0):
        for n in (1, 4, 16, 64):
            asked = Point("", read, True, 4096, 1, n, 1.0, None)
            count = min(100_000 * n**0.5, 500_000)
            a = measure(profile, free_host(), asked, requests=round(count), seed=seed + n)
            points.append(
                replace(
                    asked, iops=a.iops, mean_s=a.mean_s, percentiles_s=dict(a.percentiles_s),
                    bins=a.bins, count=round(count),
                )
            )  # fmt: skip
    return points


@pytest.fixture(scope="module")
def both():
    """Captures of a disk with pauses and stalls of reads, and what is found in them."""
    points = captured(known(pauses=True, stalls=True), 100)
    return points, fit_pauses(points)


def test_pauses_and_stalls_are_told_apart_and_recovered(both):
    _, found = both
    assert set(found.parts) == {"pauses", "read_stalls"}
    share, length, cv = found.values["read_stalls"]
    assert share == pytest.approx(SHARE, rel=0.25)
    assert length == pytest.approx(STALL, rel=0.15)
    assert cv < 0.6
    rate, mean, _ = found.values["pauses"]
    assert rate * mean == pytest.approx(RATE * MEAN, rel=0.5)
    columns = found.columns()
    low, high = np.quantile(columns["rounds.read_stalls.share"], (0.025, 0.975))
    assert low <= SHARE <= high
    assert len(columns) == 6


@pytest.mark.long
def test_what_only_passes_with_time_is_no_stall():
    found = fit_pauses(captured(known(pauses=True, stalls=False)))
    assert found.parts == ("pauses",)
    assert "pauses of all in flight" in found.text


def test_a_disk_that_nothing_holds_up_has_none():
    found = fit_pauses(captured(known(pauses=False, stalls=False)))
    assert found.parts == ()
    assert found.text.startswith("no pauses")
    assert found.values == {}


def test_too_few_depths_or_no_distributions_give_none(both):
    points, _ = both
    assert fit_pauses(points[:2]) is NONE
    assert fit_pauses([replace(p, bins=None) for p in points]) is NONE
    assert fit_pauses([]) is NONE


@pytest.mark.long
def test_percentiles_that_pauses_make_are_not_of_the_body(both):
    points, found = both
    kept = {p.outstanding: set(found.without_tail(p).percentiles_s) for p in points[:4]}
    assert kept[1] >= {50.0, 99.0}
    assert kept[64] == {50.0}
    assert NONE.without_tail(points[3]) is points[3]


def sampled(rng: np.random.Generator) -> list[PauseTail]:
    """Rounds held up as the law says, drawn anew: what 5 s of reads at four depths would show."""
    logs = np.log([RATE, MEAN, CV, SHARE, STALL, STALL_CV])
    tails = []
    for n in (1, 4, 16, 64):
        cycle = BASE + n * EACH
        beyond = 1e-4 * np.concatenate([[1.0], 1 + np.geomspace(1, 120, 14)])
        empty = PauseTail(n, False, cycle, beyond, np.ones(len(beyond) + 1))
        survival = fitting._survivals(logs, ("pauses", "read_stalls"), fitting._Rows([empty]))[0]
        share = -np.diff(np.concatenate([[1.0], survival, [0.0]]))
        rounds = rng.multinomial(round(5 / cycle), share).astype(float)
        tails.append(replace(empty, rounds=rounds))
    return tails


@pytest.mark.slow
def test_intervals_cover_at_the_stated_rate():
    truth = np.array([1e12 / RATE, 1e12 * MEAN, CV, SHARE, 1e12 * STALL, STALL_CV])
    parts = ("pauses", "read_stalls")
    hits = []
    for trial in range(200):
        rows = fitting._Rows(sampled(np.random.default_rng(trial)))
        logs = fitting._fitted(parts, rows)
        found = PauseFit(parts, logs, fitting._drawn(parts, logs, rows))
        low, high = np.quantile(list(found.columns().values()), (0.025, 0.975), axis=1)
        hits.append((low <= truth) & (truth <= high))
    covered = np.mean(hits, axis=0)
    print(dict(zip(found.columns(), covered, strict=True)))
    assert (covered >= 0.90).all()
