"""The answers of `nvmesim size` and `nvmesim sensitivity`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvmesim.show import words
from nvmesim.show.blocks import Block, Facts, Fold, Line, Table, table
from nvmesim.show.page import chart_page, html
from nvmesim.show.studies.input_names import in_words
from nvmesim.units import format_iops

if TYPE_CHECKING:
    import polars as pl

    from nvmesim.study.size import Sizing

NEAREST = 5
"""CPUs that are shown unless all are asked for."""
LEAST_GAIN = 0.01
"""A measurement that narrows an interval by less is not worth naming."""
SHOWN = 16
"""Inputs that are shown; a file has all."""


# How many GHz -------------------------------------------------------------------------------------


def sizing_blocks(sizing: Sizing, *, everything: bool = False) -> list[Block]:
    """GHz that are needed, and the CPUs that are nearest to what was asked for."""
    load = sizing.load
    answers = [
        ("published rule", f"{sizing.ghz_per_miops:.1f}", f"{sizing.ghz:.0f}"),
        ("hyper-threads counted", f"{sizing.smt_ghz_per_miops:.1f}", f"{sizing.smt_ghz:.0f}"),
    ]
    asked = (
        f"asked: {format_iops(load.iops)} at {load.utilization:.0%} CPU with {load.stack.name}; "
        "RAID is not counted, its work on the CPU comes on top (nvmesim run has it)"
    )
    return [
        Line(f"{sizing.ghz:.0f} GHz for {format_iops(load.iops)}", "title"),
        Line(asked, "soft"),
        table("GHz needed", ("", "GHz per million IOPS", "GHz"), answers, notes=[sizing.reason]),
        cpus(sizing, everything=everything),
    ]


def cpus(sizing: Sizing, *, everything: bool = False) -> Table:
    """CPUs under the load: those that carry it with the least GHz first, or all."""
    load = sizing.load
    near = sorted(sizing.cpus, key=lambda c: abs(c.logical_utilization - load.utilization))
    found = [c for c in sizing.cpus if everything or c in near[:NEAREST]]
    rows = [
        [f"{c.sockets} x {c.name}", f"{c.ghz:.0f}", f"{c.rule_utilization:.0%}",
         f"{c.logical_utilization:.0%}", f"{c.physical_utilization:.0%}",
         format_iops(c.most_iops), c.words()]
        for c in found
    ]  # fmt: skip
    notes = [
        f"busy: as the operating system shows it at {format_iops(load.iops)}; up to 5 points over "
        f"the {load.utilization:.0%} asked for still count as carried"
    ]
    if len(found) < len(sizing.cpus):
        left = len(sizing.cpus) - len(found)
        notes.append(f"the nearest; {left} CPUs more of the catalog with --all")
    heads = ("CPUs", "GHz", "by the rule", "busy", "of the cores", "full at", "<carries it")
    return table("CPUs under the load", heads, rows, notes=notes)


def fragment(sizing: Sizing) -> str:
    """Return GHz needed and the CPUs that are nearest, as HTML."""
    return html(sizing_blocks(sizing))


def sizing_page(sizing: Sizing) -> str:
    """Return the load, the charts and every CPU as one HTML page."""
    title = f"CPUs for {format_iops(sizing.load.iops)}"
    _, asked, *more = sizing_blocks(sizing, everything=True)
    return chart_page(sizing.chart(), title, *more, first=[asked])


# What the answer depends on -----------------------------------------------------------------------


def sensitivity_blocks(
    frame: pl.DataFrame, metric: str, spread: float | None, asked: str = ""
) -> list[Block]:
    """What carries most of the interval, and a row for each input."""
    head: list[Block] = [Line(f"asked: {asked}", "soft")] if asked else []
    keys = tuple((in_words(key), key) for key in frame["input"][:SHOWN])
    return [
        *head, Line(_said(frame, metric), "head"), inputs(frame, metric, spread),
        Fold("keys of the inputs", (Facts(keys),)),
    ]  # fmt: skip


def inputs(frame: pl.DataFrame, metric: str, spread: float | None, most: int = SHOWN) -> Table:
    """A row for each uncertain input, the one that carries most first."""
    other = "by its basis" if spread is None else f"±{spread:.0%}"
    rows = [
        [in_words(r["input"]), r["value"], r["basis"], "its own" if r["stated"] else other,
         _change(r["change_low"]), _change(r["change_high"]), f"{r['share']:.0%}",
         f"±{100 * r['without']:.0f} %"]
        for r in frame[:most].to_dicts()
    ]  # fmt: skip
    heads = ("input", "<value", "<basis", "<range", "at low", "at high", "share", "measured")
    left = len(frame) - most
    notes = [
        f"at low, at high: change of {metric} with the input at the ends of its range; share: of "
        "the whole interval; measured: what would be left of the interval"
    ]
    notes += [f"{words.plural(left, 'input')} more (-o writes all)"] if left > 0 else []
    return table("Uncertain inputs", heads, rows, notes=notes)


def sensitivity_page(
    frame: pl.DataFrame, metric: str, spread: float | None, name: str, asked: str
) -> str:
    """Return the chart and the table as one HTML page."""
    import polars as pl

    from nvmesim.show.charts.sweep import tornado

    *first, shown, keys = sensitivity_blocks(frame, metric, spread, asked)
    named = pl.Series("name", [in_words(key) for key in frame["input"]], pl.String)
    return chart_page(
        tornado(frame.with_columns(named)),
        f"{name}: what {metric} depends on",
        shown,
        keys,
        first=first,
    )


def _change(value: float | None) -> str:
    return "-" if value is None else f"{words.signed(100 * value)} %"


def _said(frame: pl.DataFrame, metric: str) -> str:
    if not len(frame) or not frame["share"][0]:
        return f"{metric} depends on no uncertain number"
    first = frame.row(0, named=True)
    best = frame.sort("without").row(0, named=True)
    said = f"{first['share']:.0%} of the interval of {metric} is from {in_words(first['input'])}"
    if best["whole"] - best["without"] < LEAST_GAIN:
        return f"{said}; no measurement alone narrows its ±{100 * best['whole']:.0f} % much"
    return (
        f"{said}; this would narrow it most, from ±{100 * best['whole']:.0f} % to "
        f"±{100 * best['without']:.0f} %: {best['measure']}"
    )
