"""`nvmesim validate`: published measurements, predicted against measured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import nvmesim
from nvmesim.cli.output import option, progress_bar, save, scenario_of
from nvmesim.cli.simulating import Answer, simulates
from nvmesim.errors import InputError
from nvmesim.files import write_text

if TYPE_CHECKING:
    from nvmesim.study.validate.score import Score


@click.command(
    epilog="Example: nvmesim validate team-jbod --report team.html   (or: validate new my-server)"
)
@click.argument("sets", nargs=-1, metavar="[SET...]")
@option("--held-out is_held_out", "Predict held-out rows of every source (or of the sources "
        "named) instead.", is_flag=True)  # fmt: skip
@option("--write", "Write report.md of each set, and SCOREBOARD.md.", is_flag=True)
@simulates(report="Write predicted against measured as one HTML page.")
def validate(sets: tuple[str, ...], is_held_out: bool, write: bool) -> Answer:
    """Compare predictions with published measurements.

    Each SET (a name, or a folder with set.toml; all if left out) is calibrated on its inputs, and
    its targets are predicted. `validate new DIR` makes a set of your own to fill in, `validate new
    DIR SERVER.toml CAPTURE...` one of a server of yours and what was measured on it. Exit code 1 if
    a target misses its set's budget.
    """
    if sets[:1] == ("new",):
        written = _new(sets[1:])
        return Answer(lambda: [], lambda: {"written": written})
    if is_held_out:
        return _held_out(sets, write=write)
    scores = _scores(sets)
    if not sets:
        from nvmesim.study.validate.score import relearned

        scores = list(relearned(scores))
    if write:
        _write(scores, whole=not sets)
    from nvmesim.show.views.scoreboard import page, score_blocks

    return Answer(
        lambda: score_blocks(scores),
        lambda: {"sets": [line.to_json() for s in scores for line in s.lines]},
        lambda: page(scores), 0 if all(s.met for s in scores) else 1,
    )  # fmt: skip


def _held_out(names: tuple[str, ...], *, write: bool) -> Answer:
    """Predict held-out rows; what does so stands beside the rows, in the repository alone."""
    folder = Path(nvmesim.__file__).resolve().parents[1] / "calibration" / "held-out"
    if not folder.is_dir():
        raise InputError("held-out rows are in the repository alone; run nvmesim from a checkout")
    sys.path.insert(0, str(folder))
    table = importlib.import_module("held_table")
    with progress_bar("predicting held-out rows") as progress:
        return Answer(*table.answer(names, progress, write=write))


def _new(rest: Sequence[str]) -> list[str]:
    """Write the files of a new set; their paths."""
    from nvmesim.study.validate.published import new_set, set_of_rows

    if not rest or len(rest) == 2:
        raise click.UsageError(
            "validate new needs one folder, or a folder, a scenario and captures, such as: "
            "nvmesim validate new mine server.toml rows.csv"
        )
    if len(rest) > 2:
        from nvmesim.capture.registry import read_captures

        made = set_of_rows(Path(rest[0]), scenario_of(rest[1]), read_captures(rest[2:]))
    else:
        made = new_set(Path(rest[0]))
    found = [str(path) for path in made]
    for path in found:
        click.echo(f"nvmesim: wrote {path}", err=True)
    return found


def _scores(names: tuple[str, ...]) -> list[Score]:
    from nvmesim.study.validate.answer import answer
    from nvmesim.study.validate.published import Question, find_sets, read_set
    from nvmesim.study.validate.score import score

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
    from nvmesim.show.views.scoreboard import report, scoreboard

    for one in scores:
        write_text(one.published.folder / "report.md", report(one))
    if whole:
        from nvmesim.predict.uncertainty.model_error import TABLES, write_learned
        from nvmesim.study.validate.score import misses

        folder = scores[0].published.folder.parent
        ours = Path(nvmesim.__file__).resolve().parents[1] / "calibration" / "published"
        if folder.resolve() == ours:  # the model's error is learned from the project's own sets
            click.echo(f"nvmesim: wrote {write_learned(TABLES[0], misses(scores))}", err=True)
        save(folder / "SCOREBOARD.md", scoreboard(scores))
