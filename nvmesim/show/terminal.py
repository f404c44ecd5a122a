"""A result, a capture or a profile as a person reads it on a terminal, in about ten seconds."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nvmesim.predict.result import Bottleneck, Result
from nvmesim.show import words as summary


def plain(text: str, style: str = "") -> Text:
    """*text* as it is: no markup, no control characters."""
    return Text(summary.one_line(text), style=style)


def show(renderable: RenderableType, *, console: Console | None = None) -> None:
    """Print to stdout; a pipe gets plain text, 120 wide, without spaces at the ends of lines."""
    screen = console or Console(highlight=False)
    if screen.is_terminal:
        screen.print(renderable)
        return
    flat = Console(file=io.StringIO(), highlight=False, width=120)
    with flat.capture() as captured:
        flat.print(renderable)
    for line in captured.get().splitlines():
        print(line.rstrip(), file=screen.file)


def result_view(result: Result, *, verbose: bool = False) -> RenderableType:
    """The answer: numbers, how sure, why, what relieves it, what to doubt."""
    parts: list[RenderableType] = [
        plain(result.scenario, "bold"),
        *(plain(f"with {change}", "dim") for change in result.changes),
        Text(),
        _answer(result),
        Text(),
        _facts(result),
    ]
    if result.bottleneck.reliefs:
        parts += [Text(), _reliefs(result.bottleneck)]
    groups = summary.group_rows(result)
    if groups:
        parts += [Text(), rows_view(summary.GROUP_COLUMNS, groups)]
    if verbose:
        parts += [Text(), _stations(result), Text(), _members(result)]
    parts += _doubts(result, verbose)
    return Group(*parts)


def _columns(*headings: str, left: int = 1) -> Table:
    """A table with no frame; all but the first columns are right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, heading in enumerate(headings):
        is_left = number < left
        table.add_column(
            heading, justify="left" if is_left else "right", no_wrap=not is_left, overflow="fold"
        )
    return table


def _answer(result: Result) -> Table:
    table = _columns(
        "", "IOPS", "95 %", "GB/s", "mean us", *(f"{c} us" for c in summary.COLUMNS[1:])
    )
    for number, row in enumerate(summary.op_rows(result)):
        table.add_row(
            plain(row.name),
            row.iops,
            row.plus_minus,
            row.gigabytes,
            *row.latencies,
            style="bold" if number == 0 else "",
        )
    return table


def _facts(result: Result) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("why", plain(result.bottleneck.sentence, "bold"))
    table.add_row("cpu", plain(summary.cpu_sentence(result.cpu)))
    if (crossing := result.crossing) is not None:
        table.add_row("sockets", plain(crossing.sentence()))
    if result.sync is not None:
        table.add_row("flushes", plain(summary.sync_sentence(result.sync)))
    if result.rebuild is not None:
        table.add_row("rebuild", plain(summary.rebuild_sentence(result.rebuild)))
    table.add_row("sure", plain(summary.sureness(result)))
    if result.outside:
        table.add_row("outside", plain(summary.outside_sentence(result)))
    engine = f"{result.engine} engine, seed {result.seed}, {summary.seconds(result.wall_s)}"
    table.add_row("ran", plain(engine))
    return table


def _reliefs(bottleneck: Bottleneck) -> Table:
    table = _columns("what would relieve it", "IOPS", "gain (95 %)")
    for relief in bottleneck.reliefs:
        change = summary.relief_gain(relief.gain, relief.gain_low, relief.gain_high)
        helps = relief.gain_low > 0.02
        table.add_row(
            plain(relief.change),
            summary.kiops(relief.iops.value),
            change,
            style="" if helps else "dim",
        )
    return table


def _stations(result: Result) -> Table:
    table = _columns("station", "kind", "busy", "wait us", "service us", "visits", left=2)
    for group in summary.station_groups(result.stations):
        top = group.busiest
        many = len(group.members)
        label = f"{group.label} (busiest of {many})" if many > 1 else group.label
        table.add_row(
            plain(label),
            group.kind,
            summary.percent(top.utilization),
            summary.microseconds(top.wait_mean_s),
            summary.microseconds(top.service_mean_s),
            f"{sum(s.visits_per_request for s in group.members):.3g}",
        )
    return table


def _members(result: Result) -> Table:
    table = _columns("per request", "reads", "writes", "busy")
    for member in result.members:
        table.add_row(
            plain(member.name),
            f"{member.reads_per_request:.4g}",
            f"{member.writes_per_request:.4g}",
            summary.percent(member.utilization),
        )
    return table


def _doubts(result: Result, verbose: bool) -> list[RenderableType]:
    parts: list[RenderableType] = warnings_view(result.warnings)
    if result.assumptions and verbose:
        parts += [Text(), Text("assumed", "dim"), *bullets(result.assumptions)]
    elif result.assumptions:
        count = summary.plural(len(result.assumptions), "assumption")
        parts += [Text(), Text(f"{count} (--verbose lists them)", "dim")]
    return parts


def warnings_view(warnings: Sequence[str]) -> list[RenderableType]:
    """Lines of warnings, none if there are none."""
    if not warnings:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="yellow", no_wrap=True)
    table.add_column(overflow="fold")
    for warning in warnings:
        table.add_row("warning", plain(warning))
    return [Text(), table]


def bullets(lines: Iterable[str]) -> list[RenderableType]:
    """Indented lines."""
    return [Padding(plain(line), (0, 0, 0, 2)) for line in lines]


def rows_view(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1
) -> RenderableType:
    """A plain table of texts; the first *left* columns are left-aligned."""
    table = _columns(*headings, left=left)
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    return table


def result_text(result: Result) -> str:
    """Return what `nvmesim run` prints, without colours."""
    console = Console(width=120, color_system=None, record=False)
    with console.capture() as printed:
        console.print(result_view(result))
    return "\n".join(line.rstrip() for line in printed.get().splitlines())
