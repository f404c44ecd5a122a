"""What a person reads: short numbers, one line each; the same number and interval everywhere."""

import dataclasses
import re
from types import SimpleNamespace

import pytest

import nvmesim as ns
from nvmesim.measure.figures import Interval, Relief
from nvmesim.show import answer
from nvmesim.show.blocks import Cell, Fold, Range, Ranges, Table, markdown, table
from nvmesim.show.charts import result as charts
from nvmesim.show.page import html
from nvmesim.show.station_groups import station_groups
from nvmesim.show.terminal import bar, text
from nvmesim.show.words import about, kiops, microseconds, one_line, percent, span
from nvmesim.units import format_iops
from tests.show.report_example import interval, result


@pytest.mark.parametrize("width", [80, 120])
def test_the_whole_answer_fits_a_screen(width):
    blocks = answer.blocks_of(result(24))
    lines = text(blocks, width=width).splitlines()
    assert len(lines) <= 28
    assert max(map(len, lines)) <= width
    for said in ("1.872M", "1.86M to 1.88M", "256 in flight"):
        assert said in " ".join(lines)


def test_what_is_folded_is_shown_when_asked_and_nothing_nameless_before(found):
    blocks = answer.blocks_of(result(24))
    folded = [block.title for block in blocks if isinstance(block, Fold)]
    short, long = text(blocks), text(blocks, verbose=True)
    assert all(title in short and title in long for title in folded)
    assert "GHz per MIOPS" in long
    assert "GHz per MIOPS" not in short
    # What needs the glossary is folded.
    page = str(html([*answer.head(found), answer.ops(found), answer.facts(found)])).lower()
    looked_up = "misfit", "chi-square", "kcycles", "re-simulated", "station", "asymptotic", "seed"
    assert [word for word in looked_up if word in page] == []


def test_one_table_is_the_same_everywhere():
    shown = table("Loads", ["name", "<what", "p99 [us]"], [["a", "b|", Cell("5", "+1 %", "good")]],
                  looks=["strong"], notes=["a note"])  # fmt: skip
    assert isinstance(shown, Table)
    page, flat, marked = html([shown]), text([shown]), markdown(shown)
    assert '<tr class="strong">' in page
    assert '<small class="good">+1 %</small>' in page
    assert flat.splitlines() == ["name   what   p99 us", "a      b|     5 +1 %", "a note"]
    assert marked.splitlines()[0] == "| name | what | p99, us |"
    assert all("a note" in where for where in (page, flat, marked))


def test_an_interval_is_a_bar_with_the_goals_line():
    wide = Range("p99", Interval(50.0, 25.0, 75.0), "50", limit=90.0, limit_text="goal 90")
    assert bar(wide, top=100.0, width=20) == "     |----o----|  : "
    both = Ranges((wide, dataclasses.replace(wide, name="other", interval=interval(100.0))), True)
    assert len({line.index(":") for line in text([both]).splitlines()}) == 1
    assert html([both]).count('class="goal"') == 2


def test_tables_have_a_row_an_operation_and_a_dash_for_what_is_not_known():
    only_reads = dataclasses.replace(result(2), write=None)
    assert [row[0].text for row in answer.ops(only_reads).rows] == ["read"]
    assert [row[0].text for row in answer.ops(result(2)).rows] == ["total", "read", "write"]
    whole = result(2)
    unknown = dict.fromkeys(whole.total.latency.percentiles)
    latency = dataclasses.replace(whole.total.latency, percentiles=unknown, mean=float("nan"))
    total = dataclasses.replace(whole.total, latency=latency)
    rows = answer.ops(dataclasses.replace(whole, total=total)).rows
    assert [cell.text for cell in rows[0][4:]] == ["-"] * 4


@pytest.mark.parametrize(("count", "is_few"), [(2_000, True), (50_000, False)])
def test_a_dash_says_why(count, is_few):
    """Fewer than 100 samples beyond p99 are too few; more that hang together are not."""
    whole = result(2)
    few = {**whole.read.latency.percentiles, 99.0: None, 99.9: 0.001}
    latency = dataclasses.replace(whole.read.latency, percentiles=few)
    read = dataclasses.replace(whole.read, latency=latency, count=count)
    notes = answer.ops(dataclasses.replace(whole, read=read)).notes[1:]
    known = answer.ops(whole).notes[1:]
    said = [note for note in notes if note not in known]
    assert any("too few" in note for note in notes) == (is_few or any("few of" in n for n in known))
    assert any(note.startswith("- of read:") for note in said) != is_few


def test_numbers_names_and_controls_are_one_safe_line():
    assert [kiops(v) for v in (0.0, 0.5, 99_949.0, 1e6, 12_345_678.0)] == [
        *("0", "0.5", "99.9k", "1M", "12.35M")
    ]
    assert [microseconds(v) for v in (0.0, 99.99e-6, 1.0)] == ["0", "100", "1,000,000"]
    assert [percent(v) for v in (0.0004, 0.0999, 1.0, float("nan"))] == [
        *("0.0 %", "10.0 %", "100 %", "-")
    ]
    assert span(Interval(0.0, 0.0, 0.0)) == ""
    assert span(Interval(1.0, float("-inf"), float("inf"))) == ""
    assert one_line("a\r\n\tb\x1b]0;x\x07\u202ec\ud800") == "a b ]0;x c?"
    found = text(answer.blocks_of(result(2, name="[bold]x[/bold]\x07\n[/]")))
    assert found.splitlines()[0] == "[bold]x[/bold] [/]"


def test_the_table_of_workloads_with_all_its_columns_fits():
    rate = Interval(281_600.0, 135e3, 546e3)
    above = Interval(0.0123, 0.0, 1.0)
    slo = SimpleNamespace(limit_s=1.5e-3, requests_above=above, time_above=0.25)
    one = SimpleNamespace(
        name="log-writer 1", iops=rate, mean_s=1.5e-3, limit_used=0.97, slo=slo,
        percentiles=dict.fromkeys(("p50", "p99", "p99.9"), 12_345e-6),
    )  # fmt: skip
    shown = answer.groups(dataclasses.replace(result(2), groups=(one, one)))
    lines = text([shown], width=120).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 120
    assert not any("…" in line for line in lines)
    assert all(" ".join(cell.text.split()) in lines[1] for cell in shown.rows[0])


def test_station_groups_follow_the_path_and_put_equals_together():
    groups = station_groups(result(8, adapters=True).stations)
    kinds = [g.kind for g in groups]
    assert kinds[0] == "thread"
    assert kinds.index("cpu") < kinds.index("raid-engine") < kinds.index("link")
    assert kinds[-1] == "drive"
    labels = {g.label: len(g.members) for g in groups}
    assert labels["adapter uplink up"] == 2
    assert labels["drive dies"] == 8
    assert "drive0 dies" in [g.label for g in station_groups(result(1, 1).stations)]
    named = [
        dataclasses.replace(s, name=s.name.replace(f"drive{s.drive}", f"rack {s.drive} left"))
        if s.drive is not None
        else s
        for s in result(4).stations
    ]
    assert "drive port up" in [g.label for g in station_groups(named)]


@pytest.fixture(scope="module")
def found():
    """A calibrated drive, whose misfit moves the answer; one workload with a goal."""
    return ns.simulate(ns.Scenario(
        server={"sockets": [{"cpu": "xeon-gold-6130"}]},
        drives=[{"profile": "samsung-980pro-1tb", "count": 2}],
        workload={"threads": 2, "outstanding": 16, "slo": "500 us"},
    ), requests=30_000, curve=True)  # fmt: skip


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
    (group,) = found.groups
    total = found.total
    assert (group.iops.value, group.iops.low, group.iops.high) == pytest.approx(
        (total.iops.value, total.iops.low, total.iops.high), rel=1e-6
    )
    assert group.mean_s == pytest.approx(total.latency.mean, rel=1e-3)
    assert group.percentiles["p99"] == pytest.approx(total.latency.percentiles[99.0], rel=1e-3)


def test_what_brings_nothing_is_named_below_what_helps():
    gains = {"more cores": 0.5, "more links": 0.001, "more drives": -0.02}
    tried = [Relief(name, Interval(1e5, 9e4, 2e5), g, g, g) for name, g in gains.items()]
    shown = answer.reliefs(tried)
    assert [row[0].text for row in shown.rows] == ["more cores"]
    assert "more links, +0.1 %; more drives, -2.0 %" in shown.notes[-1]
    assert not answer.reliefs(tried[1:]).rows
    lighter = dataclasses.replace(tried[1], change="8 in flight", gain=-0.004, latency=0.25)
    slower = dataclasses.replace(lighter, change="4", gain=-0.3)
    notes = answer.reliefs([*tried, lighter, slower]).notes
    assert "8 in flight" in notes[0]
    assert "-75.0 %" in notes[0]
    assert "8 in flight" not in notes[-1]
    assert "4, -30.0 %" in notes[-1]
    assert answer.reliefs([]) is None


def test_every_interval_holds_what_is_not_known_and_the_goal_has_a_probability(found):
    """None is narrower than the parts of the answer that all figures share."""
    shared = found.certainty.figures["iops"]
    least = (shared.numbers[0] ** 2 + shared.misfit[0] ** 2 + shared.model[0] ** 2) ** 0.5
    intervals = [found.total.iops, *(g.iops for g in found.groups)]
    intervals += [s.iops for s in (found.read, found.write) if s is not None]
    intervals += [r.iops for r in found.bottleneck.reliefs]
    for one in intervals:
        assert one.low <= one.value * 2.718281828 ** -(0.99 * least)
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


def _rows(drawn):
    return [row for data in drawn.to_dict()["datasets"].values() for row in data]


def test_the_last_column_of_a_wide_table_is_whole():
    """A first column that keeps its place pushed the last beyond the edge, where it was cut."""
    row = ["6 drives each, raid6, arrays 1, md workers 4", "32,000", "volume0 stripe locks (100 %)"]
    shown = table("Candidates", ["candidate", "price [EUR]", "<fullest part"], [row])
    printed = text([shown], width=60)
    assert max(map(len, printed.splitlines())) <= 60
    assert set(" ".join(row).split()) <= set(printed.split())


def test_numbers_of_a_wide_table_are_whole_and_names_take_lines():
    """Cells of numbers lost their last characters: 1.998M became 1.998, and 41 % became 41."""
    names = ["candidate", "price [EUR]", "usable [TB]", "IOPS", "CPU", "meets the goal", "<part"]
    row = ["4 drives each, raid10, xeon-gold-6130", "10,160", "6.4", "1.998M", "41 %", "91 %",
           "volume0 stripe locks (100 %)"]  # fmt: skip
    printed = text([table("Candidates", names, [row])], width=72).splitlines()
    assert max(map(len, printed)) <= 72
    whole = " ".join(printed).split()
    assert all(cell in " ".join(whole) for cell in row[1:6])
    assert {"price", "EUR", "usable", "TB", "meets"} <= set(whole)
