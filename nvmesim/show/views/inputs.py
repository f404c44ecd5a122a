"""What an answer depends on (`nvmesim sensitivity`), and the CPUs of a load (`nvmesim size`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from nvmesim.catalog.problems import model_in
from nvmesim.catalog.profile import CpuProfile, DriveProfile, RaidEngineProfile, StackProfile
from nvmesim.show import words
from nvmesim.show.blocks import Block, Facts, Fold, Line, table
from nvmesim.show.page import chart_page
from nvmesim.units import format_iops, percent

if TYPE_CHECKING:
    import polars as pl

    from nvmesim.study.size import Sizing

NEAREST = 5
"""CPUs that are shown unless all are asked for."""
LEAST_GAIN = 0.01
"""A measurement that narrows an interval by less is not worth naming."""
SHOWN = 16
"""Inputs that are shown; a file has all."""
LONGEST: Final = 60
"""Characters of an input's description beyond which its details are left out."""
_HOLDERS: Final[Mapping[str, tuple[str, type[BaseModel]]]] = {
    # how the input's key begins: what it is called, its class
    r"drives(?:\.[\d*]+)?\.profile\.": ("drive", DriveProfile),
    r"server\.stack\.": ("software", StackProfile),
    r"server\.sockets(?:\.[\d*]+)?\.cpu\.": ("CPU", CpuProfile),
    r"volume(?:\.[\d*]+)?\.engine\.": ("RAID", RaidEngineProfile),
}
_METRICS: Final = {"iops": "IOPS", "lat_mean_us": "mean latency", "lat_p50_us": "p50",
                   "lat_p99_us": "p99", "lat_p99_9_us": "p99.9"}  # fmt: skip


def sizing_blocks(sizing: Sizing, *, all_cpus: bool = False) -> list[Block]:
    """GHz that are needed, and the CPUs that carry the load with the least of them, or all."""
    load = sizing.load
    answers = [
        ("published rule", f"{sizing.ghz_per_miops:.1f}", f"{sizing.ghz:.0f}"),
        ("hyper-threads counted", f"{sizing.smt_ghz_per_miops:.1f}", f"{sizing.smt_ghz:.0f}"),
    ]
    asked = (
        f"asked: {format_iops(load.iops)} at {percent(load.utilization)} CPU with "
        f"{load.stack.name}; RAID is not counted, its work on the CPU comes on top (nvmesim run "
        "has it)"
    )
    near = sorted(sizing.cpus, key=lambda c: abs(c.logical_utilization - load.utilization))
    found = [c for c in sizing.cpus if all_cpus or c in near[:NEAREST]]
    rows = [
        [f"{c.sockets} x {c.name}", f"{c.ghz:.0f}", percent(c.rule_utilization),
         percent(c.logical_utilization), percent(c.physical_utilization),
         format_iops(c.most_iops), c.words()]
        for c in found
    ]  # fmt: skip
    notes = [
        f"busy: as the operating system shows it at {format_iops(load.iops)}; up to 5 points over "
        f"the {percent(load.utilization)} asked for still count as carried"
    ]
    if left := len(sizing.cpus) - len(found):
        notes.append(f"the nearest; {left} CPUs more of the catalog with --all")
    heads = ("CPUs", "GHz", "by the rule", "busy", "cores busy", "full at", "<carries it")
    return [
        Line(f"{sizing.ghz:.0f} GHz for {format_iops(load.iops)}", "title"),
        Line(asked, "soft"),
        table("GHz needed", ("", "GHz per million IOPS", "GHz"), answers, notes=[sizing.reason]),
        table("CPUs under the load", heads, rows, notes=notes),
    ]


def sizing_page(sizing: Sizing) -> str:
    """Return the load, the charts and every CPU as one HTML page."""
    title = f"CPUs for {format_iops(sizing.load.iops)}"
    _, asked, *more = sizing_blocks(sizing, all_cpus=True)
    return chart_page(sizing.chart(), title, *more, first=[asked])


def sensitivity_blocks(frame: pl.DataFrame, metric: str, asked: str = "") -> list[Block]:
    """What carries most of the interval, and a row for each input, in that order."""
    shown, name = frame[:SHOWN].to_dicts(), _METRICS.get(metric, metric)

    def change(value: float | None) -> str:
        return "-" if value is None else f"{words.signed(100 * value)} %"

    rows = [
        [in_words(r["input"]), _rounded(r["value"]),
         *(("", "") if r["basis"] == "part"
           else (r["basis"], "stated" if r["stated"] else "usual")),
         change(r["change_low"]), change(r["change_high"]), percent(r["share"]),
         words.half_width(r["without"])]
        for r in shown
    ]  # fmt: skip
    heads = ("input", "<value", "<basis", "<range", "at low", "at high", "share", "once known")
    notes = [
        f"at low, at high: change of {name} with the input at the ends of its range; share: of "
        "all of the interval, as run prints it; once known: how wide the interval would be then"
    ]
    if left := len(frame) - len(shown):
        notes.append(f"{words.plural(left, 'input')} more (-o writes all)")
    return [
        *([Line(f"asked: {asked}", "soft")] if asked else []),
        Line(_headline(frame, name), "head"),
        table("Uncertain inputs", heads, rows, notes=notes),
        Fold("keys of the inputs", (Facts(tuple((in_words(r["input"]), r["input"])
                                                for r in shown)),)),
    ]  # fmt: skip


def sensitivity_page(frame: pl.DataFrame, metric: str, name: str, asked: str) -> str:
    """Return the chart and the table as one HTML page."""
    import polars as pl

    from nvmesim.show.charts.sweep import tornado

    *first, shown, keys = sensitivity_blocks(frame, metric, asked)
    named = pl.Series("name", [in_words(key) for key in frame["input"]], pl.String)
    title = f"{name}: what {_METRICS.get(metric, metric)} depends on"
    return chart_page(tornado(frame.with_columns(named)), title, shown, keys, first=first)


def _headline(frame: pl.DataFrame, metric: str) -> str:
    if not len(frame) or not frame["share"][0]:
        return f"{metric} depends on no uncertain number"
    first = frame.row(0, named=True)
    best = frame.sort("without").row(0, named=True)
    said = (
        f"{metric} is known to {words.half_width(best['whole'])}; {percent(first['share'])} of "
        f"that is from {in_words(first['input'])}"
    )
    if best["whole"] - best["without"] < LEAST_GAIN:
        return f"{said}. No measurement alone narrows it much."
    known = words.half_width(best["without"])
    return f"{said}. What would narrow it most, to {known}: {best['measure']}."


def _rounded(text: str) -> str:
    """*text* with its numbers in four digits.

    >>> _rounded("16.323785 us"), _rounded("27000")
    ('16.32 us', '27000')
    """
    return re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.4g}", text)


# Inputs in words: what a profile's documentation says of the number -------------------------------


def in_words(key: str) -> str:
    """Return an input in words; its *key* where nothing is known of it.

    >>> in_words("drives.0.profile.read.die")
    'drive: mean time a die is busy for one unit'
    >>> in_words("model")
    'errors of the model, as seen on measured servers'
    >>> in_words("server.stack.filesystems.xfs")
    'software: cycles that the file system xfs adds to a request'
    """
    for begins, (name, model) in _HOLDERS.items():
        if found := re.match(begins, key):
            rest = key[found.end() :]
            said = [text.format(*m.groups()) for own, text in words.texts("inputs").items()
                    if (m := re.fullmatch(own, rest))]  # fmt: skip
            text = said[0] if said else _documented(model, rest.split("."))
            return f"{name}: {text or rest.replace('.', ' ').replace('_', ' ')}"
    return words.texts("parts").get(key, key)


def _documented(model: type[BaseModel], path: list[str]) -> str:
    """First sentence on the field at *path*, below *model*."""
    text, names = "", []
    current: type[BaseModel] | None = model
    for part in path:
        if current is None:
            names.append(part)
        else:
            field = current.model_fields.get(part)
            text = (field.description or "") if field else ""
            current = None if field is None else model_in(field.annotation)
    plain = " ".join(text.replace("``", "").split())
    sentence = re.split(r"(?<=[a-z)])[.;:](?:\s|$)", plain, maxsplit=1)[0]
    if len(sentence) > LONGEST:  # what follows is a detail
        sentence = re.split(r", | \(", sentence, maxsplit=1)[0]
    sentence = sentence.rstrip(".")
    said = sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
    if said.startswith("its ") and len(path) > 1:  # of what
        said = f"{path[-2].replace('_', ' ')}, {said}"
    return f"{said} ({' '.join(names)})" if names and said else said
