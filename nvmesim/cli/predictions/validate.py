"""`nvmesim validate`: published measurements, predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import nvmesim
from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import check_writable, json_option, output_path, print_json, write_text
from nvmesim.cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nvmesim.study.validate.score import Line, Score

MOST_NAMED = 12
"""Cases whose sources are listed one by one."""
EXAMPLE = "Example: nvmesim validate team-jbod --report team.html   (or: validate new my-server)"


@click.command(epilog=EXAMPLE)
@click.argument("sets", nargs=-1, metavar="[SET...]")
@output_path("Write predicted against measured as one HTML page.", "--report")
@click.option(
    "--held-out", "is_held_out", is_flag=True,
    help="Predict held-out rows of every source (or of the sources named) instead.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Write report.md of each set, and SCOREBOARD.md.")
@json_option
@bounded()
def validate(
    sets: tuple[str, ...], report: Path | None, is_held_out: bool, write: bool, as_json: bool
) -> int:
    """Compare predictions with published measurements.

    Each SET (a name, or a folder with set.toml; all if left out) is calibrated on its inputs, and
    its targets are predicted. `validate new DIR` makes a set of your own to fill in. Exit code 1 if
    a target misses its set's budget.
    """
    if sets[:1] == ("new",):
        return _new(sets[1:])
    if is_held_out:
        return _held_out(sets, as_json)
    check_writable(report)
    scores = _scores(sets)
    if not sets:
        from nvmesim.study.validate.learn import relearned

        scores = list(relearned(scores))
    if as_json:
        print_json({"sets": [line.to_json() for s in scores for line in s.lines]})
    else:
        from nvmesim.show.terminal import show

        show(_view(scores))
    if report is not None:
        from nvmesim.show.validation_page import page

        write_text(report, page(scores))
        click.echo(f"nvmesim: wrote {report}", err=True)
    if write:
        _write(scores, whole=not sets)
    return 0 if all(s.met for s in scores) else 1


def _held_out(names: tuple[str, ...], as_json: bool) -> int:
    """Predict held-out rows of other sources, and say how near that came."""
    from nvmesim.study.validate.held_out import held_out
    from nvmesim.study.validate.held_score import HEADINGS, by_source, failures, groups, json_rows

    with progress_bar("predicting held-out rows") as progress:
        answers = held_out(names, progress)
    if as_json:
        failed = [vars(f) for f in failures(answers)]
        print_json({"rows": list(json_rows(answers)), "failures": failed})
        return 0
    from nvmesim.show.terminal import rows_view, show

    lines = groups(answers) + ([] if len(answers) > MOST_NAMED else by_source(answers))
    show(rows_view(HEADINGS, [line.cells() for line in lines]))
    show(rows_view(("", "rows", "why"), [(f.what, str(f.rows), f.why) for f in failures(answers)]))
    return 0


def _new(rest: Sequence[str]) -> int:
    from nvmesim.study.validate.skeleton import new_set

    if len(rest) != 1:
        raise click.UsageError("validate new needs one folder, such as: nvmesim validate new mine")
    for path in new_set(Path(rest[0])):
        click.echo(f"nvmesim: wrote {path}", err=True)
    return 0


def _scores(names: tuple[str, ...]) -> list[Score]:
    from nvmesim.study.validate import Question, answer, find_sets, read_set, score

    published = [read_set(folder) for folder in find_sets(names)]
    scores = []
    with progress_bar("validating") as progress:
        for i, one in enumerate(published):

            def tell(text: str, share: float, done: int = i) -> None:
                if progress is not None:
                    progress(text, (done + share) / len(published))

            scores.append(score(one, answer(Question.of(one), tell)))
    return scores


def _write(scores: Sequence[Score], *, whole: bool) -> None:
    from nvmesim.show.validation_markdown import report, scoreboard

    for one in scores:
        write_text(one.published.folder / "report.md", report(one))
    if whole:
        from nvmesim.study.validate.learn import write_learned

        folder = scores[0].published.folder.parent
        if folder.resolve() == _ours():  # the model's error is learned from the project's own sets
            click.echo(f"nvmesim: wrote {write_learned(scores)}", err=True)
        path = folder / "SCOREBOARD.md"
        write_text(path, scoreboard(scores))
        click.echo(f"nvmesim: wrote {path}", err=True)


def _ours() -> Path:
    """Return the folder of the sets in the project's repository."""
    return Path(nvmesim.__file__).resolve().parents[1] / "calibration" / "published"


def _view(scores: Sequence[Score]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from nvmesim.show.terminal import plain, rows_view
    from nvmesim.show.validation_markdown import counted_words
    from nvmesim.study.validate.score import summary

    parts: list[RenderableType] = []
    headings = ("", "role", "measured", "predicted", "95 %", "error", "budget", "naive", "counted")
    for one in scores:
        title = f"{one.published.name}: {one.published.file.title}"
        rows = [_row(line) for line in one.lines]
        parts += [plain(title, "bold"), rows_view(headings, rows, left=2)]
        parts += [plain(f"  fitted: {f.name} = {f.value:.4g} {f.unit}", "dim")
                  for f in one.prediction.fitted]  # fmt: skip
        parts.append(Text())
    found = summary(scores)
    text = "shown, not scored"
    if found.targets:
        text = (
            f"{found.met} of {found.targets} targets within their budgets, "
            f"{counted_words(found.calibrated)}"
        )
    return Group(*parts, plain(text, "bold"))


def _row(line: Line) -> tuple[str, ...]:
    from nvmesim.show.validation_markdown import measured, number, off, verdict, what
    from nvmesim.study.validate.metrics import metric

    unit = metric(line.row.metric).unit
    p = line.predicted
    return (
        what(line), line.row.role, measured(line), number(p.value, unit),
        f"{number(p.low, unit)}..{number(p.high, unit)}", off(line), verdict(line),
        "" if line.naive is None else number(line.naive, unit), line.not_counted or "yes",
    )  # fmt: skip
