"""`nvmesim calibrate`: from captures to a drive profile or a stack, with the evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli.output import bytes_read, noting_interrupt, option, output_path, save, steps
from nvmesim.cli.simulating import Answer, simulates
from nvmesim.errors import FitError, InputError

if TYPE_CHECKING:
    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.evidence import DriveFit, StackFit
    from nvmesim.calibrate.trace.fit import TraceFit
    from nvmesim.capture.capture import Captures

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
