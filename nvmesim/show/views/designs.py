"""Designs side by side: the largest load of each, what to buy, which of them is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nvmesim.measure.figures import Interval
from nvmesim.measure.paired import Comparison
from nvmesim.show import blocks as b
from nvmesim.show import words
from nvmesim.show.page import document

if TYPE_CHECKING:
    from nvmesim.study.best import Best, StateAnswer
    from nvmesim.study.choose import Candidate, Choice
    from nvmesim.study.rank import Ranking

REASONS = 12
"""Rejected candidates whose reasons are listed; the chart has all."""


def best_page(found: Best) -> str:
    """Return one HTML page that loads nothing: answer, table, charts."""
    return document(f"{found.scenario} · nvmesim best", best_blocks(found))


def best_fragment(found: Best) -> list[b.Block]:
    """The answer and its table."""
    from nvmesim.study.best import RULE

    return b.present(b.Line(str(found), "head"), best_table(found), b.Line(RULE, "soft"),
                     _not_met(found), b.Warnings(found.warnings))  # fmt: skip


def best_blocks(found: Best) -> list[b.Block]:
    """The answer in a sentence, a row for every design and state, and why the others fail."""
    return b.present(
        b.Line(found.scenario, "title"), b.Line(f"largest load with {found.goal.words()}", "soft"),
        *best_fragment(found), b.Section("Charts", (best_figures(found),)),
    )  # fmt: skip


def best_figures(found: Best) -> b.Charts:
    """The charts with their captions."""

    def draw() -> dict[str, tuple[Any, str]]:
        from nvmesim.show.charts.designs import best_charts

        return {t: (drawn, words.texts("designs")[t]) for t, drawn in best_charts(found).items()}

    return b.Charts(draw)


def best_table(found: Best) -> b.Table:
    """A row for every design and state; the design is named once."""
    rows = []
    for design in found.designs:
        if design.error:
            rows.append([design.name, "", "cannot be built", "no", *[""] * 7])
        holds = words.terabytes(design.usable_bytes or 0)
        rows += [["", "", *_state(s)] if n else [design.name, holds, *_state(s)]
                 for n, s in enumerate(design.states)]  # fmt: skip
    heads = ("design", "usable [TB]", "<state", "<goal", "IOPS", "95 % within", "p99 [us]", "CPU",
             "<load", "rebuild [h]", "<held back by")  # fmt: skip
    return b.table("Largest loads", heads, rows, notes=found.notes)


def _state(answer: StateAnswer) -> list[str]:
    result, hours = answer.result, answer.rebuild_hours
    met = "met" if answer.met else ("data lost" if answer.lost else "not met")
    if answer.met and answer.probability is not None:
        met = f"met, {words.chance(answer.probability)} sure"
    limit = "" if answer.missed is None else answer.missed.what
    limit = limit.upper() if limit in ("iops", "cpu") else limit
    load = "" if answer.applied is None else answer.applied.words()
    if result is None:
        return [answer.state, met, "-", "", "-", "-", load, "", limit]
    return [
        answer.state, met, words.kiops(result.total.iops.value), words.span(result.total.iops),
        words.microseconds(result.total.latency.percentiles[99.0]),
        words.percent(result.cpu.logical_utilization), load,
        "" if hours is None else f"{hours:.2g}", answer.why if answer.met else limit,
    ]  # fmt: skip


def _not_met(found: Best) -> b.Bullets | None:
    """Why each design and state that does not meet the goal does not."""
    lines = [f"{d.name}: {d.error}" for d in found.designs if d.error]
    lines += [f"{d.name}, {s.state}: {s.why}" for d in found.designs for s in d.states if not s.met]
    return b.Bullets(tuple(lines), "Not met") if lines else None


def choice_page(choice: Choice, title: str) -> str:
    """Return one HTML page that loads nothing."""
    return document(f"{title} · nvmesim choose", choice_blocks(choice, title))


def choice_blocks(choice: Choice, title: str) -> list[b.Block]:
    """The answer, the chart, those that meet the goal, and why the others do not."""
    from nvmesim.show.charts.designs import choice_chart
    from nvmesim.study.sweep.point import BETWEEN

    met = [c for c in (choice.chosen, *choice.runner_ups) if c is not None]
    chart = f"Throughput against {choice.goal.objective.minimize}"
    parts: list[b.Block] = [
        b.Line(title, "title"), b.Line(str(choice), "head"), _standing(choice),
        b.Charts(lambda: {chart: (choice_chart(choice), words.texts("designs")["choice"])}),
    ]  # fmt: skip
    if met:
        warnings = str(met[0].row.get("warnings") or "").split(BETWEEN)
        parts += [_met(choice, met), b.Warnings(tuple(text for text in warnings if text))]
    rejected = [c for c in choice.candidates if c.state == "rejected"]
    if rejected:
        lines = [f"{c.name}: {c.reason}" for c in rejected[:REASONS]]
        parts.append(b.Bullets(tuple(lines), f"{len(rejected)} rejected"))
    if (more := len(rejected) - REASONS) > 0:
        parts.append(b.Line(f"{more} more (`nvmesim choose -o FILE` writes all)", "soft"))
    if idle := sum(c.state == "not simulated" for c in choice.candidates):
        text = f"{idle} not simulated: no better than those above (`nvmesim choose --all`)"
        parts.append(b.Line(text, "soft"))
    return parts


def _standing(choice: Choice) -> b.Facts:
    """State that the figures are of, and what the chosen one is not told apart from."""
    pairs = [("figures of", choice.candidates[0].condition)]
    if (other := choice.cheaper) is not None:
        what = f"{choice.cost(other)}, {words.chance(other.p_meets)} sure"
        pairs.append(("may do as well", f"{other.name} ({what}): the two are not told apart"))
    pairs += [("what would tell", choice.study), ("what lifts the cheapest", choice.lift)]
    return b.Facts(tuple(pair for pair in pairs if pair[1]))


def _met(choice: Choice, met: list[Candidate]) -> b.Table:
    what = choice.goal.objective.minimize
    heads = ["candidate", f"{what} [{choice.unit}]" if choice.unit else what, "drives",
             "usable [TB]", "power [W]", "IOPS", "p99 [us]", "CPU", "meets the goal",
             "<fullest part"]  # fmt: skip
    rows = []
    for c in met:
        watts, n, holds = None, "", ""
        if c.fixed:
            watts, n = c.fixed.power, str(c.fixed.drives)
            holds = words.terabytes(c.fixed.capacity)
        iops, p99, cost = c.row.get("iops"), c.row.get("lat_p99_us"), c.cost(what)
        rows.append([
            c.name, f"{cost:,.6g}" if cost < float("inf") else "-", n, holds,
            "-" if watts is None else f"{watts:,.0f}", words.kiops(iops) if iops else "-",
            f"{p99:,.0f}" if p99 else "-", words.percent(c.row["cpu_logical"]),
            words.chance(c.p_meets), f"{c.row['fullest']} ({words.percent(c.row['utilization'])})",
        ])  # fmt: skip
    return b.table("Candidates that meet the goal", heads, rows)


def comparison_blocks(found: Comparison) -> list[b.Block]:
    """Two bars, the probability that one beats the other, and the differences."""
    gain, before, after = found.gain, found.iops_a, found.iops_b
    rows = [
        ("IOPS", words.kiops(before.value), words.kiops(after.value), words.gain(gain.value),
         words.gain_span(gain.low, gain.high)),
    ]  # fmt: skip
    for name, change, level in (
        ("mean latency", found.mean_s, found.mean_a_s), ("p99", found.p99_s, found.p99_a_s),
    ):  # fmt: skip
        if change is not None:
            middle, low, high = (1e6 * v for v in (change.value, change.low, change.high))
            was = "" if level is None else f"{1e6 * level:,.0f} us"
            now = "" if level is None else f"{1e6 * (level + change.value):,.0f} us"
            rows.append((name, was, now, f"{middle:+,.0f} us", f"{low:+,.0f} to {high:+,.0f} us"))
    sure = "" if found.p_better is None else (
        f"; {found.b} is faster with a probability of {words.chance(found.p_better)}"
    )  # fmt: skip
    rates = f"{words.about(after.value)} IOPS against {words.about(before.value)}"
    return [
        b.Line(f"{found.b} against {found.a}", "title"),
        b.Line(f"{rates}, {words.gain(gain.value)}{sure}.", "head"),
        _bars({found.a: before, found.b: after}),
        b.table("Differences", ("", found.a, found.b, "change", "95 % within"), rows,
              notes=[f"{found.requests:,} requests of each, with the same random numbers"]),
        b.Warnings(tuple(found.warnings)),
    ]  # fmt: skip


def ranking_blocks(ranking: Ranking) -> list[b.Block]:
    """The choice in a sentence, and a row for each design."""
    rows = ranking.table.to_dicts()
    known = {str(r["candidate"]): Interval(r["mean"], r["low"], r["high"])
             for r in rows if r["low"] is not None}  # fmt: skip
    spans = {name: words.span(i) for name, i in known.items()}
    cells = [
        (name := str(r["candidate"]), words.kiops(r["mean"]), spans.get(name, "")) for r in rows
    ]
    heads = ("design", "IOPS", "95 % within")
    return [b.Line(str(ranking), "head"), _bars(known), b.table("Designs", heads, cells),
            b.Warnings(ranking.warnings)]  # fmt: skip


def _bars(rates: dict[str, Interval]) -> b.Ranges:
    rows = (b.Range(n, i, f"{words.kiops(i.value)} ({words.span(i)})") for n, i in rates.items())
    return b.Ranges(tuple(rows), shared=True)
