"""One number and one interval: table, sentence, chart, card, JSON and the only workload agree."""

import re

import pytest

import nvmesim as ns
from nvmesim.show import answer
from nvmesim.show.charts import result as charts
from nvmesim.show.page import html
from nvmesim.show.words import about, kiops, span
from nvmesim.units import format_iops


@pytest.fixture(scope="module")
def found():
    """A calibrated drive, whose misfit moves the answer; one workload with a goal."""
    return ns.simulate(ns.Scenario(
        server={"sockets": [{"cpu": "xeon-gold-6130"}]},
        drives=[{"profile": "samsung-980pro-1tb", "count": 2}],
        workload={"threads": 2, "outstanding": 16, "slo": "500 us"},
    ), requests=30_000, curve=True)  # fmt: skip


def test_the_only_workload_is_the_total(found):
    (group,) = found.groups
    total = found.total
    assert (group.iops.value, group.iops.low, group.iops.high) == pytest.approx(
        (total.iops.value, total.iops.low, total.iops.high), rel=1e-6
    )
    assert group.mean_s == pytest.approx(total.latency.mean, rel=1e-3)
    assert group.percentiles["p99"] == pytest.approx(total.latency.percentiles[99.0], rel=1e-3)


def test_sentence_table_card_chart_and_json_say_the_same(found):
    iops = found.total.iops
    row = [cell.text for cell in answer.ops(found).rows[0]]
    assert row[1:3] == [kiops(iops.value), span(iops)]
    assert answer.headline(found).startswith(f"{about(iops.value)} IOPS, probably {span(iops)}. ")
    assert answer.cards(found).pairs[0] == (f"{kiops(iops.value)} IOPS", f"probably {span(iops)}")
    assert found.to_json()["total"]["iops"] == iops.to_json()
    best = max(found.bottleneck.reliefs, key=lambda r: r.gain)
    named = re.search("would give about (.* IOPS)", found.bottleneck.sentence)
    if named:
        assert named[1] == format_iops(best.iops.value)
    drawn = {r["change"]: r for r in _rows(charts.reliefs(found)) if "change" in r}
    assert drawn[best.change]["kiops"] == pytest.approx(best.iops.value / 1e3, rel=1e-3)
    at = min(found.curve, key=lambda p: abs(p.outstanding - found.outstanding))
    assert at.iops == pytest.approx(iops.value, rel=0.05)


def test_every_interval_holds_all_that_is_not_known(found):
    """None is narrower than the parts of the answer that all figures share."""
    shared = found.certainty.figures["iops"]
    least = (shared.numbers[0] ** 2 + shared.misfit[0] ** 2 + shared.model[0] ** 2) ** 0.5
    intervals = [found.total.iops, *(g.iops for g in found.groups)]
    intervals += [s.iops for s in (found.read, found.write) if s is not None]
    intervals += [r.iops for r in found.bottleneck.reliefs]
    for one in intervals:
        assert one.low <= one.value * 2.718281828 ** -(0.99 * least)


def test_no_first_screen_word_that_must_be_looked_up(found):
    """What needs the glossary is folded."""
    page = str(html([*answer.head(found), answer.ops(found), answer.facts(found)])).lower()
    looked_up = "misfit", "chi-square", "kcycles", "re-simulated", "station", "asymptotic", "seed"
    assert [word for word in looked_up if word in page] == []


def _rows(drawn):
    return [row for data in drawn.to_dict()["datasets"].values() for row in data]


def test_the_goal_has_a_probability_that_sentence_and_json_share(found):
    goal = found.goal
    told = {"what": "p99", "limit": 500e-6, "probability": goal.probability}
    assert found.to_json()["goal"] == told
    _, high = found.total.latency.intervals["p99"]
    met = found.total.latency.percentiles[99.0] <= goal.limit
    assert (goal.probability > 0.5) == met
    assert (goal.probability > 0.975) == (high < goal.limit)
    assert "your 500 us" in answer.headline(found)
    bars = {row.name: row for row in answer.ranges(found).rows}
    assert bars["p99"].limit == goal.limit
