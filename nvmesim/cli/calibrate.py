"""`nvmesim calibrate` and `validate`: fitted to captures; predicted against measured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nvmesim
from nvmesim.cli.output import (
    bytes_read,
    noting_interrupt,
    option,
    output_path,
    progress_bar,
    save,
    scenario_of,
    steps,
)
from nvmesim.cli.simulating import Answer, simulates
from nvmesim.errors import FitError, InputError
from nvmesim.files import write_text

if TYPE_CHECKING:
    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.evidence import DriveFit, StackFit
    from nvmesim.calibrate.trace.fit import TraceFit
    from nvmesim.capture.capture import Captures
    from nvmesim.study.validate.score import Score

    AnyFit = DriveFit | StackFit | TraceFit | EmpiricalFit

Tell = Callable[[str], None]


@click.command(epilog="Example: nvmesim calibrate fio/*.json -o drive.toml --hold-out QD=16")
@click.argument("captures", nargs=-1, metavar="CAPTURE...")
@output_path("Write the profile (TOML).", "-o", "--output")
@option("--name NAME", "Name of the profile; else that of the file.")
@option("--captured-on STACK[,LINK[,CPU]]", "The host that measured, as linux-io_uring,'pcie4 "
        "x4','2.4 GHz': its time is subtracted.")  # fmt: skip
@option("--through paths PATH", "A file system or a guest that captured requests passed, as xfs or "
        "kvm-virtio; repeatable. A table may say it by row (filesystem, guest).",
        multiple=True)  # fmt: skip
@option("--hold-out held_out RULE", "Predict QD=16, BS='64 KiB', OP=randread or JOBS=4 instead of "
        "fitting it; repeatable. Of a trace: LAST=50%; else its last third.",
        multiple=True)  # fmt: skip
@option("--empirical is_empirical", "Draw latencies from the capture itself; only for its own "
        "queue depth.", is_flag=True)  # fmt: skip
@option("--stack is_stack", "Fit the host's CPU costs instead.", is_flag=True)
@option("--cpu NAME", "With --stack: a catalog CPU, '2 x xeon-gold-6130', or a clock as '2.4 GHz'.")
@option("--link LINK", "With --stack: the drive's link, 'pcie4 x4'.")
@option("--datasheet FILE", "The drive's data sheet (TOML or CSV, figures as printed), or the name "
        "of a drive in the catalog: what no capture shows is as it says; without captures the "
        "drive is fitted to it.", type=click.Path())  # fmt: skip
@option("--force", "Write the profile even if it misses its own rows.", is_flag=True)
@simulates(report="Write measured against fitted as one HTML page.", verbose=True)
def calibrate(
    captures: tuple[str, ...], output: Path | None, name: str | None, captured_on: str | None,
    paths: tuple[str, ...], held_out: tuple[str, ...], is_empirical: bool, is_stack: bool,
    cpu: str | None, link: str | None, datasheet: str | None, force: bool,
) -> Answer:  # fmt: skip
    """Fit a profile to captures of one drive.

    CAPTURE is a file, a folder or a glob, in any mix of formats. With --stack the CPU costs of the
    host that made the captures are fitted instead of the drive. A drive that misses one of its own
    rows by more than a third of its IOPS is not written without --force. Ctrl-C ends the search:
    the best so far is written, says so, and the exit code is 130.
    """
    from nvmesim.calibrate.asked_host import passed
    from nvmesim.calibrate.infer.optimum import stoppable
    from nvmesim.capture.registry import read_captures

    for is_wrong, text in (
        (datasheet and (is_stack or is_empirical),
         "--datasheet is of a drive and its ceilings; leave it out with --stack and --empirical"),
        (is_stack and captured_on,
         "--captured-on is for drives; with --stack name the --cpu and --link"),
        (is_stack and not cpu, "--stack needs --cpu, a catalog CPU or a clock such as '2.4 GHz'"),
        (not is_stack and (cpu or link),
         f"{'--cpu' if cpu else '--link'} is for --stack; a drive's host goes into --captured-on"),
        (not datasheet and not captures, "name captures of a drive, or --datasheet FILE"),
        (datasheet and not captures and (captured_on or held_out or paths),
         "--captured-on, --through and --hold-out are about captures; name them, or leave these "
         "options out"),
        (is_empirical and (captured_on or paths),
         "--empirical keeps the host in the samples; leave out --captured-on and --through"),
        (is_empirical and is_stack,
         "--empirical is for drives; leave out --empirical or --stack"),
        (is_empirical and held_out,
         "--empirical draws from all samples, none is predicted: no --hold-out"),
    ):  # fmt: skip
        if is_wrong:
            raise InputError(text)
    stated = name or (output.stem if output else None)
    title = stated or Path([*captures, datasheet][0] or "").stem or "fitted"
    found = None
    if captures:
        with bytes_read("reading captures") as progress:
            found = passed(read_captures(captures, progress=progress), paths)
    fit: AnyFit
    ending = "finishing with the best so far"
    with noting_interrupt(ending) as pressed, stoppable(pressed), steps("calibrating") as tell:
        if found is None:
            from nvmesim.calibrate.datasheet import read_datasheet
            from nvmesim.calibrate.drive.fit import fit_datasheet

            fit = fit_datasheet(read_datasheet(Path(datasheet or "")), name=stated, tell=tell)
        elif is_empirical:
            from nvmesim.calibrate.drive.empirical import fit_empirical

            if (n := len(found.files)) != 1:
                raise FitError(f"--empirical: {n} captures; name the one whose latencies are drawn")
            fit = fit_empirical(found.files[0], name=title)
        elif is_stack and cpu:
            fit = fit_host(found, title, cpu, link, held_out, tell)
        else:
            fit = fit_capture(found, title, captured_on, held_out, datasheet, tell)
    return _answer(fit, output, is_forced=force, is_early=pressed.is_set())


def fit_capture(
    captures: Captures, name: str, captured_on: str | None, held_out: Sequence[str],
    datasheet: str | None, tell: Tell,
) -> DriveFit | TraceFit:  # fmt: skip
    """Return a drive fitted to *captures*, or to the longest one of single requests.

    The latter where nobody stated the depth; its end is then held out.
    """
    from nvmesim.calibrate.drive.fit import fit_drive

    is_stated = any(m.conditions.outstanding for m in captures.measurements)
    if is_stated or all(c.requests is None for c in captures.files):
        return fit_drive(
            captures, name=name, captured_on=captured_on, held_out=tuple(held_out), tell=tell,
            datasheet=datasheet,
        )  # fmt: skip
    if datasheet:
        raise FitError(f"--datasheet {datasheet}: a trace of single requests is fitted without one")
    from nvmesim.calibrate.arrivals import arrivals_of
    from nvmesim.calibrate.asked_host import parse_host
    from nvmesim.calibrate.trace.fit import fit_trace
    from nvmesim.units import parse_fraction

    last = 1 / 3
    for rule in held_out:
        key, _, value = rule.partition("=")
        if key.strip().upper() != "LAST":
            what = "of a trace of single requests the end is held out; write LAST=50%"
            raise FitError(f"--hold-out {rule}: {what}")
        last = parse_fraction(value)
        if not 0 <= last <= 0.9:
            raise FitError(f"--hold-out {rule}: out of range; write LAST=0% to 90%")
    longest = max((c for c in captures.files if c.requests is not None), key=lambda c: c.rows)
    notes: list[str] = []
    arrivals = arrivals_of(longest, notes)
    cut = round(len(arrivals) * (1 - last))
    fit = fit_trace(
        arrivals.part(0, cut), name=name, captured_on=captured_on,
        host=parse_host(captured_on).host if captured_on else None,
        held_out=arrivals.part(cut, len(arrivals)), tell=tell,
    )  # fmt: skip
    return replace(fit, warnings=(*notes, *fit.warnings))


def fit_host(
    captures: Captures, title: str, cpu: str, link: str | None, held_out: Sequence[str],
    tell: Tell,
) -> StackFit:  # fmt: skip
    """Return the stack of the host that made *captures*, whose CPU is named or a clock."""
    from nvmesim.calibrate.asked_host import LINK, parse_cpu
    from nvmesim.calibrate.stack.fit import fit_stack

    ghz, named = parse_cpu(cpu)
    return fit_stack(
        captures, ghz=ghz, cpu=named, name=title, link=link or LINK, held_out=tuple(held_out),
        tell=tell,
    )  # fmt: skip


def _answer(fit: AnyFit, output: Path | None, *, is_forced: bool, is_early: bool) -> Answer:
    """Write the profile unless it misses its own rows, and say which."""
    from nvmesim.calibrate.infer.optimum import EARLY
    from nvmesim.catalog.toml import fitted_toml
    from nvmesim.show.views.fits import fit_blocks, fit_page

    missed = [] if is_forced else list(getattr(fit, "misses", ()))
    if is_early:
        update = {"notes": f"{EARLY}\n{fit.profile.notes}".strip()}
        profile: Any = fit.profile.model_copy(update=update)
        fit = replace(fit, profile=profile, warnings=(EARLY, *fit.warnings))
    if output is not None and not missed:
        save(output, fitted_toml(fit.profile))
    for text in missed:
        click.echo(f"nvmesim: {text}", err=True)
    if output is not None and missed:
        click.echo(
            f"nvmesim: {output} was not written: the profile misses its own rows; mend or leave "
            "out these, or --force", err=True,
        )  # fmt: skip
    code = 130 if is_early else int(output is not None and bool(missed))
    return Answer(lambda: fit_blocks(fit), fit.to_json, lambda: fit_page(fit), code)


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
        written = _new_set(sets[1:])
        return Answer(lambda: [], lambda: {"written": written})
    if is_held_out:
        return _held_out(sets, write=write)
    scores = _scores(sets)
    if not sets:
        from nvmesim.study.validate.score import relearned

        scores = list(relearned(scores))
    if write:
        _write_reports(scores, whole=not sets)
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


def _new_set(rest: Sequence[str]) -> list[str]:
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


def _write_reports(scores: Sequence[Score], *, whole: bool) -> None:
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
