"""A result as the part of the page that follows the controls, and quotes side by side."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from nvmesim.errors import InputError
from nvmesim.measure.paired import Comparison
from nvmesim.predict.bottleneck import best_relief
from nvmesim.predict.changes import watts
from nvmesim.predict.result import Result
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.workloads import loads_differ
from nvmesim.show import answer as shown
from nvmesim.show import words
from nvmesim.show.blocks import Block, Bullets, Charts, Range, Ranges, Section, Warnings, present
from nvmesim.show.blocks import table as table_of
from nvmesim.show.page import html, rendered, script_json
from nvmesim.show.report import server
from nvmesim.study.best import STATES, in_state, volumes_of
from nvmesim.study.designs import heading, short_keys, value_words
from nvmesim.ui.controls import form, parts

SURE: Final = 0.9
"""Probability from which the page says that a goal is met, or missed below 1 minus it."""
WAIT: Final = '<span class="wait">…</span>'


# One design ---------------------------------------------------------------------------------------


def first(result: Result) -> str:
    """Return the figures of a first look: how sure they are is not known yet, and not shown."""
    says = f"About {words.about(result.total.iops.value)} IOPS, how sure: "
    goal = result.goal and ("wait", "", f"Goal {words.format_time(result.goal.limit)}: …")
    return rendered(
        "nvmesim.ui:answer.html", says=Markup(says + WAIT), goal=goal, slow=None,
        fast=html([shown.cards(result, is_first_look=True)]),
    )  # fmt: skip


def answer(result: Result) -> str:
    """Return the whole answer: headline and verdict, bars, figures, what would help, charts."""
    changes = result.bottleneck.reliefs
    slow = {
        "warnings": html([Warnings(tuple(result.warnings))]),
        "reliefs": html(present(shown.reliefs(changes))),
        "settings": [(json.dumps(dict(relief.set), default=str), relief.change)
                     for relief in shown.helping(changes) if relief.set],
        "charts": html([_charts(result)]), "server": html(present(server(result))),
        "known": html([shown.facts(result), shown.known(result)]),
        "assumed": html(present(shown.assumed(result))),
        "assumptions": words.plural(len(result.assumptions), "assumption"),
    }  # fmt: skip
    return rendered(
        "nvmesim.ui:answer.html", says=shown.headline(result), goal=_verdict(result), slow=slow,
        fast=html([shown.ranges(result), shown.cards(result)]),
    )  # fmt: skip


def _verdict(result: Result) -> tuple[str, str, str] | None:
    """How it looks, its sign, and how likely the goal is met; green from `SURE` on."""
    goal = result.goal
    if goal is None or goal.probability is None:
        return None
    p = goal.probability
    css, sign = ("met", "✓") if p >= SURE else ("missed", "✗") if p <= 1 - SURE else ("unsure", "?")
    asked = f"{goal.what} within {words.format_time(goal.limit)}"
    verb = "Meets" if p >= 0.5 else "Misses" if css == "missed" else "More likely misses"
    chance = f"{'' if p >= 0.5 else ': met'} with a probability of {words.chance(p)}"
    return css, sign, f"{verb} {asked}{chance}"


def _charts(result: Result) -> Charts:
    # Altair takes a second to import, and a first look needs none.
    from nvmesim.show.charts.result import latency_cdf, latency_curve, utilization

    charts = {}
    if len(result.curve) > 1:
        caption = "Each point has another number outstanding"
        caption += "; dashed red: the goal." if result.goal else "."
        charts["Latency against load"] = (latency_curve(result), caption)
    if len(result.total.latency.bin_s):
        charts["Share of requests within a latency"] = (latency_cdf(result), "")
    charts["Busy, along the path"] = (utilization(result), "")
    return Charts(charts)


# Two to four quotes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quote:
    """One design with what it does whole, with a drive failed, and while that is rebuilt."""

    tables: Mapping[str, Any]
    price: float | None
    """EUR, as typed or as the parts' profiles state."""
    healthy: Result
    degraded: Result | None = None
    rebuilding: Result | None = None

    @property
    def scenario(self) -> ResolvedScenario:
        """What was simulated."""
        found = self.healthy.resolved
        assert isinstance(found, ResolvedScenario)
        return found


def states_of(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the design with a drive failed, and rebuilding; nothing if it does not survive one."""
    volumes = volumes_of(tables)
    if not volumes or any(v.get("raid", "raid0") in ("none", "raid0") for v in volumes):
        return {}
    return {state: in_state(tables, state) for state in STATES[1:]}


def page_blocks(quotes: Sequence[Quote], gains: Sequence[Comparison]) -> list[Block]:
    """Return the quotes as a table, bars and charts; *gains* are those over the first."""
    from nvmesim.show.charts.designs import side_by_side

    named = zip(names_of(quotes), quotes, strict=True)
    healthy = {f"{n}: {name}": q.healthy for n, (name, q) in enumerate(named, 1)}
    rows = [[what, *cells] for what, cells in _lines(quotes, gains).items() if any(cells)]
    lead = [_lead(n, gain) for n, gain in enumerate(gains, 2)]
    bars = [Range(name, r.total.iops, f"{_iops(r)} IOPS") for name, r in healthy.items()]
    drawn = {t: (c, "Thin: 95 % interval.") for t, c in side_by_side(healthy).items()}
    return [
        Section("Side by side", (
            Bullets(tuple(lead)), Ranges(tuple(bars), shared=True),
            table_of("Quotes side by side", ("", *(f"<{name}" for name in healthy)), rows),
            Warnings(tuple(loads_differ([q.scenario for q in quotes]))),
        )),
        Section("Charts", (Charts(drawn),)),
    ]  # fmt: skip


def names_of(quotes: Sequence[Quote]) -> list[str]:
    """What each quote is called; with what differs, where two are called the same."""
    names = [q.healthy.scenario for q in quotes]
    if len(set(names)) == len(names):
        return names
    own = list(differing([q.tables for q in quotes]).items())[:2]
    shown = [(short_keys([key])[0], values) for key, values in own]
    return [
        ", ".join([name, *(value_words(key, of[i]) for key, of in shown if of[i] != "-")])
        for i, name in enumerate(names)
    ]


def _lead(number: int, gain: Comparison) -> str:
    if gain.p_better is None:
        return f"{number} against 1: not known which does more"
    p = gain.p_better
    winner, loser = (number, 1) if p >= 0.5 else (1, number)
    chance = words.chance(max(p, 1 - p))
    return f"{winner} does more IOPS than {loser} with a probability of {chance}"


def _lines(quotes: Sequence[Quote], gains: Sequence[Comparison]) -> dict[str, list[str]]:
    """What is compared -> a text for each quote."""
    results = [q.healthy for q in quotes]
    rates = [(q.healthy.total.iops.value, q.price, watts(q.scenario)) for q in quotes]
    rebuilds = [None if q.rebuilding is None else q.rebuilding.rebuild for q in quotes]
    against = [f"{words.gain(g.gain.value)} ({words.gain_span(g.gain.low, g.gain.high)})"
               for g in gains]  # fmt: skip
    own = {
        key: values
        for key, values in differing([q.tables for q in quotes]).items()
        if not re.fullmatch(r"drives(\.\d+)?\.(profile|count)", key)
    }  # a row of their own
    return {
        **{label: list(map(said, v)) for k, v in own.items() for label, said in [_in_words(k)]},
        "drives": [_drives(q.scenario) for q in quotes],
        "usable TB": [words.terabytes(q.healthy.usable_bytes or 0) for q in quotes],
        "price, EUR": ["not known" if e is None else f"{e:,.0f}" for _, e, _ in rates],
        "W, drives and CPUs": ["not known" if w is None else f"{w:,.0f}" for *_, w in rates],
        "IOPS": [words.kiops(r.total.iops.value) for r in results],
        "95 % within": [words.span(r.total.iops) for r in results],
        "mean, µs": [words.microseconds(r.total.latency.mean) for r in results],
        "p99, µs": [words.microseconds(r.total.latency.percentiles[99.0]) for r in results],
        "CPU": [words.percent(r.cpu.logical_utilization) for r in results],
        "IOPS per EUR": [f"{iops / eur:,.4g}" if eur else "" for iops, eur, _ in rates],
        "IOPS per W": [f"{iops / w:,.4g}" if w else "" for iops, _, w in rates],
        "IOPS, a drive failed": [_iops(q.degraded) for q in quotes],
        "IOPS, while it is rebuilt": [_iops(q.rebuilding) for q in quotes],
        "hours to rebuild": ["-" if r is None else f"{r.hours:.2g}" for r in rebuilds],
        "limited by": [_limit(r) for r in results],
        "lacks of the goal": [_lacks(r) for r in results],
        "IOPS against 1": ["", *against],
    }


def _in_words(key: str) -> tuple[str, Callable[[str], str]]:
    """A key as the Design page calls it, and what says its values so.

    >>> _in_words("drives.1.count")[0], _in_words("volume.spares")[0], _in_words("run.seed")[0]
    ('Number of drives, table 2', 'hot spares', 'run.seed')
    >>> _in_words("server.platform")[1]("hpe-dl380-gen11"), _in_words("volume.degraded")[1]("3")
    ('HPE ProLiant DL380 Gen11 (2U)', 'drive 3 has failed')
    """
    bare, table = re.sub(r"\.\d+(?=\.)", "", key), re.search(r"\.(\d+)(?=\.)", key)
    control = next((c for c in form("design") if c.key.replace(".0.", ".") == bare), None)
    if control is None:
        return heading(key.removeprefix("volume.")), str
    label = control.label + (f", table {int(table[1]) + 1}" if table else "")
    if bare == "volume.degraded":
        return label, lambda v: f"drive {v} has failed" if v not in ("-", "") else "all drives work"
    known = dict(control.choices)
    if control.form == "part":
        known = {part["name"]: part["label"] for part in parts(control.kind)}
    return label, lambda v: known.get(v, v)


def _limit(result: Result) -> str:
    """What stops it, in the words of its sentence."""
    said = result.bottleneck.sentence.removeprefix("Limited by ")
    return said.removesuffix(".").removesuffix(f"; {best_relief(())}")


def _drives(scenario: ResolvedScenario) -> str:
    names = Counter(drive.profile.model or drive.profile.name for drive in scenario.drives)
    return ", ".join(f"{n} x {name}" for name, n in names.items())


def _iops(result: Result | None) -> str:
    if result is None:
        return "-"
    return f"{words.kiops(result.total.iops.value)} ({words.span(result.total.iops)})"


def _lacks(result: Result) -> str:
    """Say what is between the answer and its goal, and how likely it is met."""
    goal = result.goal
    if goal is None or goal.probability is None:
        return "no goal"
    value = words.latency_at(result.total.latency, goal.what) or 0.0
    over = f"{goal.what} is {words.format_time(value - goal.limit)} above"
    over = "nothing" if value <= goal.limit else over
    return f"{over}; met with a probability of {words.chance(goal.probability)}"


def differing(designs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the keys that are not the same in all *designs*, with the value that each has.

    >>> differing([{"volume": [{"raid": "raid5"}]}, {"volume": [{"raid": "raid6"}]}])
    {'volume.raid': ['raid5', 'raid6']}
    """
    flat = [dict(_flat(tables, "")) for tables in designs]
    keys = dict.fromkeys(key for one in flat for key in one if not key.endswith("name"))
    found = {key: [one.get(key, "-") for one in flat] for key in keys}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _flat(item: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield from _flat(value, f"{key}.{name}".lstrip("."))
    elif isinstance(item, list) and any(isinstance(i, Mapping) for i in item):
        for number, value in enumerate(item):
            yield from _flat(value, key if len(item) == 1 else f"{key}.{number}")
    else:
        yield key, ", ".join(map(str, item)) if isinstance(item, list) else str(item)


# Answers that leave the app: an HTML file that holds its designs, and a PDF of it -----------------

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
PDF_S: Final = 60
MOST_BYTES: Final = 64 << 20
_DESIGNS: Final = re.compile(r'<script type="application/json" id="designs">(.*?)</script>', re.S)


def with_designs(page: str, texts: Sequence[str]) -> str:
    """Return the HTML *page* with the TOML of the designs that it is about."""
    data = f'<script type="application/json" id="designs">{script_json(list(texts))}</script>'
    return page.replace("</main>", f"{data}\n</main>", 1)


def on_one_page(page: str) -> str:
    """Return the HTML *page* such that it is printed on one sheet."""
    style = "<style>@page{size:A4;margin:9mm}@media print{body{zoom:.6}nav{display:none}}</style>"
    return page.replace("</head>", f"{style}</head>", 1)


def designs_in(file: Path) -> list[str]:
    """Return the TOML of the designs in an HTML file of the app; InputError if it has none."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file}: is larger than {MOST_BYTES >> 20} MiB")
        text = file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    found = _DESIGNS.search(text)
    try:
        texts: Any = json.loads(found[1]) if found else None
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise InputError(f"{file}: holds no design; give a file that the page's Share wrote")
    return texts


def pdf_of(page: Path) -> Path:
    """Print the HTML file *page* beside it with a headless browser; InputError without one."""
    program = next((p for name in BROWSERS if (p := shutil.which(name))), None)
    if program is None:
        raise InputError("no headless browser is installed; open the HTML file and print it")
    made = page.with_suffix(".pdf")
    flags = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={made}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # which root has none of
    try:
        subprocess.run(
            [os.path.abspath(program), *flags, page.as_uri()], cwd=page.parent, timeout=PDF_S,
            check=True, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"the browser made no PDF ({type(error).__name__})") from None
    if not made.is_file():
        raise InputError("the browser made no PDF; open the HTML file and print it")
    return made
