"""`nvmesim calibrate`: from captures to a drive profile or a stack, with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli.bounds import bounded
from nvmesim.cli.output import check_writable, json_option, output_path, print_json, write_text
from nvmesim.cli.progress import bytes_read, first_interrupt, say_if_compiling, steps, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from nvmesim.calibrate.drive.empirical import EmpiricalFit
    from nvmesim.calibrate.evidence import DriveFit, StackFit
    from nvmesim.calibrate.trace.fit import TraceFit
    from nvmesim.capture.capture import Captures

    Tell = Callable[[str], None]
    AnyFit = DriveFit | StackFit | TraceFit | EmpiricalFit

EXAMPLE = "Example: nvmesim calibrate fio/*.json -o drive.toml --hold-out QD=16"


@click.command(epilog=EXAMPLE)
@click.argument("captures", nargs=-1, metavar="CAPTURE...")
@output_path("Write the profile (TOML).", "-o", "--output")
@click.option("--name", metavar="NAME", help="Name of the profile; else that of the file.")
@click.option(
    "--captured-on", metavar="STACK[,LINK[,CPU]]",
    help="The host that measured, as linux-io_uring,'pcie4 x4','2.4 GHz': its time is subtracted.",
)  # fmt: skip
@click.option(
    "--hold-out", "held_out", multiple=True, metavar="RULE",
    help="Predict QD=16, BS='64 KiB', OP=randread or JOBS=4 instead of fitting it; repeatable. "
    "Of a trace: LAST=50%; else its last third.",
)  # fmt: skip
@click.option(
    "--empirical", "is_empirical", is_flag=True,
    help="Draw latencies from the capture itself; only for its own queue depth.",
)  # fmt: skip
@click.option("--stack", "is_stack", is_flag=True, help="Fit the host's CPU costs instead.")
@click.option(
    "--cpu",
    metavar="NAME",
    help="With --stack: a catalog CPU, '2 x xeon-gold-6130', or a clock as '2.4 GHz'.",
)
@click.option("--link", metavar="LINK", help="With --stack: the drive's link, 'pcie4 x4'.")
@click.option(
    "--datasheet", metavar="FILE", type=click.Path(path_type=Path),
    help="Fit a drive to its data sheet (TOML or CSV, figures as printed) instead of captures.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Write the profile even if it misses its own rows.")
@output_path("Write measured against fitted as one HTML page.", "--report")
@json_option
@bounded()
def calibrate(
    captures: tuple[str, ...], output: Path | None, name: str | None, captured_on: str | None,
    held_out: tuple[str, ...], is_empirical: bool, is_stack: bool, cpu: str | None,
    link: str | None, datasheet: Path | None, force: bool, report: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Fit a profile to captures of one drive.

    CAPTURE is a file, a folder or a glob, in any mix of formats. With --stack the CPU costs of the
    host that made the captures are fitted instead of the drive. A drive that misses one of its own
    rows by more than a third of its IOPS is not written without --force. Ctrl-C ends the search:
    the best so far is written, says so, and the exit code is 130.
    """
    from nvmesim.calibrate.stopping import stoppable

    _check_options(is_stack, captured_on, cpu, link)
    _check_input(captures, datasheet, is_stack or is_empirical or bool(captured_on or held_out))
    _check_empirical(is_empirical, is_stack, captured_on, held_out)
    check_writable(output, report)
    title = name or (output.stem if output else Path([*captures, datasheet][0] or "").stem)
    title = title or "fitted"
    say_if_compiling("compiled")
    fit: AnyFit
    found = None if datasheet else _read(captures)
    ending = "finishing with the best so far"
    with first_interrupt(ending) as pressed, stoppable(pressed), steps("calibrating") as tell:
        if found is None:
            fit = _fit_datasheet(datasheet, name or (output.stem if output else None), tell)
        elif is_empirical:
            fit = _empirical(found, title)
        elif is_stack and cpu:
            fit = _fit_stack(found, title, cpu, link, held_out, tell)
        else:
            fit = _fit_drive(found, title, captured_on, held_out, tell)
    if pressed.is_set():
        fit = _marked(fit)
    missed = [] if force else list(getattr(fit, "misses", ()))
    _write(fit, None if missed else output, report)
    if as_json:
        print_json(fit.to_json())
    else:
        _show(fit)
    refused = _refused(missed, output)
    return 130 if pressed.is_set() else refused


def _marked(fit: AnyFit) -> AnyFit:
    """*fit* as one that was stopped: its profile and its warnings say so."""
    from dataclasses import replace

    from nvmesim.calibrate.evidence import StackFit
    from nvmesim.calibrate.stopping import EARLY

    update = {"notes": f"{EARLY}\n{fit.profile.notes}".strip()}
    warnings = (EARLY, *fit.warnings)
    if isinstance(fit, StackFit):
        return replace(fit, profile=fit.profile.model_copy(update=update), warnings=warnings)
    return replace(fit, profile=fit.profile.model_copy(update=update), warnings=warnings)


def _refused(missed: list[str], output: Path | None) -> int:
    """Say which rows the profile misses; 1 if it was to be written."""
    for text in missed:
        click.echo(f"nvmesim: {text}", err=True)
    if missed and output is not None:
        click.echo(
            f"nvmesim: {output} was not written: the profile misses its own rows; mend or leave "
            "out these, or --force", err=True,
        )  # fmt: skip
        return 1
    return 0


def _check_input(captures: tuple[str, ...], datasheet: Path | None, is_other: bool) -> None:
    """Raise InputError unless there are either captures or a data sheet."""
    from nvmesim.errors import InputError

    if datasheet is None and not captures:
        raise InputError("name captures of a drive, or --datasheet FILE")
    if datasheet is not None and captures:
        raise InputError("--datasheet is instead of captures; leave out one of them")
    if datasheet is not None and is_other:
        raise InputError(
            "--datasheet has no --stack, --empirical, --captured-on or --hold-out; leave them out"
        )


def _fit_datasheet(path: Path | None, title: str | None, tell: Tell) -> DriveFit:
    from nvmesim.calibrate.datasheet import read_datasheet
    from nvmesim.calibrate.drive.sheet import fit_datasheet

    return fit_datasheet(read_datasheet(path or Path()), name=title, tell=tell)


def _show(fit: AnyFit) -> None:
    from nvmesim.calibrate.evidence import DriveFit, StackFit
    from nvmesim.show.evidence import fits, samples
    from nvmesim.show.terminal import show

    if isinstance(fit, DriveFit | StackFit):
        show(fits.blocks_of(fit))
    else:
        show(samples.blocks_of(fit))


def _check_options(
    is_stack: bool, captured_on: str | None, cpu: str | None, link: str | None
) -> None:
    """Raise InputError for options that do not go together."""
    from nvmesim.errors import InputError

    if is_stack and captured_on:
        raise InputError("--captured-on is for drives; with --stack name the --cpu and --link")
    if is_stack and not cpu:
        raise InputError("--stack needs --cpu, a catalog CPU or a clock such as '2.4 GHz'")
    if not is_stack and (cpu or link):
        option = "--cpu" if cpu else "--link"
        raise InputError(f"{option} is for --stack; a drive's host goes into --captured-on")


def _check_empirical(
    is_empirical: bool, is_stack: bool, captured_on: str | None, held_out: tuple[str, ...]
) -> None:
    """Raise InputError for what samples that are drawn as they are leave no room for."""
    from nvmesim.errors import InputError

    if not is_empirical:
        return
    if captured_on:
        raise InputError("--empirical keeps the host in the samples; leave out --captured-on")
    if is_stack:
        raise InputError("--empirical is for drives; leave out --empirical or --stack")
    if held_out:
        raise InputError("--empirical draws from all samples, none is predicted: no --hold-out")


def _read(paths: tuple[str, ...]) -> Captures:
    from nvmesim.capture.registry import read_captures

    with bytes_read("reading captures") as progress:
        return read_captures(paths, progress=progress)


def _fit_drive(
    captures: Captures, title: str, captured_on: str | None, held_out: tuple[str, ...], tell: Tell
) -> DriveFit | TraceFit:
    from nvmesim.calibrate.drive.fit import fit_drive
    from nvmesim.cli.captures.calibrate_samples import from_trace, is_trace

    if is_trace(captures):
        return from_trace(captures, title, captured_on, held_out, tell)
    return fit_drive(captures, name=title, captured_on=captured_on, held_out=held_out, tell=tell)


def _empirical(captures: Captures, title: str) -> EmpiricalFit:
    from nvmesim.cli.captures.calibrate_samples import empirical

    return empirical(captures, title)


def _fit_stack(
    captures: Captures, title: str, cpu: str, link: str | None, held_out: tuple[str, ...],
    tell: Tell,
) -> StackFit:  # fmt: skip
    from nvmesim.calibrate.host import LINK, parse_cpu
    from nvmesim.calibrate.stack.fit import fit_stack

    ghz, named = parse_cpu(cpu)
    return fit_stack(
        captures, ghz=ghz, cpu=named, name=title, link=link or LINK, held_out=held_out, tell=tell
    )


def _write(fit: AnyFit, output: Path | None, report: Path | None) -> None:
    """Write what was asked for, each file whole or not at all."""
    from nvmesim.catalog.text import to_toml

    if output is not None:
        write_text(output, to_toml(fit.profile))
        click.echo(f"nvmesim: wrote {output}", err=True)
    if report is not None:
        from nvmesim.calibrate.evidence import DriveFit, StackFit
        from nvmesim.show.evidence.fits import fit_page
        from nvmesim.show.evidence.samples import samples_page

        with working("writing the report"):
            if isinstance(fit, DriveFit | StackFit):
                write_text(report, fit_page(fit))
            else:
                write_text(report, samples_page(fit))
        click.echo(f"nvmesim: wrote {report}", err=True)
