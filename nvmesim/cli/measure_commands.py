"""`nvmesim measure` runs fio on a drive and fits it; `capture-plan` prints the same rows."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli import output as out
from nvmesim.cli.output import option, output_path
from nvmesim.errors import InputError
from nvmesim.files import write_text

if TYPE_CHECKING:
    from nvmesim.study.measuring.machine import Machine, Target
    from nvmesim.study.measuring.measure import Answer, MeasuredStep, Measuring, Plan

FILE_SIZE = "4G"
"""As fio and people say it; fio's "4GiB" is 4 GB."""
ENDED = {
    "enough": "another row would narrow it by less than a tenth",
    "budget": "the time is over", "plan": "every row of the plan is measured",
    "interrupted": "interrupted: fitted to what there is", "failed": "fitted to what there is",
}  # fmt: skip
GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""GT/s of a lane -> PCIe generation."""
system_option = click.option(
    "--os", "system", type=click.Choice(("linux", "windows")), default="linux", show_default=True,
    help="Of the plan. linux: a fio job file; windows: DiskSpd lines.",
)  # fmt: skip


@click.command(epilog="Example: nvmesim measure /dev/nvme0n1 -o drive.toml --budget 5min")
@click.argument("target", metavar="DEVICE|FILE", required=False)
@output_path(
    "Write the profile (TOML); rows are kept beside it. With --plan: the plan.", "-o", "--output"
)
@option("--name NAME", "Name of the profile; else that of the file.")
@option("--ssh host HOST", "Measure there; it needs fio only.", default="")
@option("--for server SERVER.toml", "Choose rows that narrow this server's throughput and p99; "
        "else the drive's own.")  # fmt: skip
@option("--budget", "Time to measure, at most.", default="10min", show_default=True)
@option("--writes", "Measure writes too. THE DRIVE'S CONTENT IS LOST.", is_flag=True)
@option("--yes-overwrite confirmed SERIAL", "With --writes: the drive's serial number, instead of "
        "being asked for it.")  # fmt: skip
@option("--precondition", "With --writes: fill the drive twice at random first; its duration is "
        "said.", is_flag=True)  # fmt: skip
@option("--fixed", "Measure all rows of the plan, in their order.", is_flag=True)
@option("--captured-on stack", "Stack of the machine that measures.", default="linux-io_uring",
        show_default=True)  # fmt: skip
@option("--engine", "fio's ioengine.", default="io_uring", show_default=True)
@option("--plan is_plan", "Print the rows as a job file; run nothing.", is_flag=True)
@system_option
@out.json_option
def measure(
    target: str | None, output: Path | None, name: str | None, host: str, server: str | None,
    budget: str, writes: bool, confirmed: str | None, precondition: bool, fixed: bool, stack: str,
    engine: str, is_plan: bool, system: str, as_json: bool,
) -> int:  # fmt: skip
    """Measure a drive with fio, and fit it meanwhile.

    Begins with one request in flight and with a full drive, then measures the row that narrows the
    answer most per second, until the next would bring less than a tenth or --budget is over. It
    reads only, unless --writes is given. A file is made and removed again. Ctrl-C keeps what there
    is. Exit code 3: fio or the connection failed; what was measured is kept.
    """
    if is_plan:
        if server is not None:
            raise InputError("--plan prints the fixed rows; --for chooses them while it measures")
        return _print_plan(output, system, writes=writes, drive=target)
    if target is None or output is None:
        raise InputError("name a drive or a file, and -o PROFILE.toml; or --plan for a job file")
    out.check_writable(output)
    _check_apart(output, None if host else target)
    from nvmesim.study.measuring.machine import (
        Machine,
        Target,
        conditions,
        has_throttled,
        target_of,
    )
    from nvmesim.study.measuring.measure import Plan, run_fio
    from nvmesim.units import PS_PER_S, parse_time_ps

    machine = Machine(host)
    plan = Plan(
        partial(run_fio, machine, Target(target), engine), output.with_suffix(".rows"),
        name or output.stem, writes=writes, budget_s=parse_time_ps(budget) / PS_PER_S, stack=stack,
        answer=_answer(server, stack), adaptive=not fixed,
    )  # fmt: skip
    machine.check_fio(engine)
    found = target_of(machine, target, FILE_SIZE)
    if precondition and (not writes or found.made):
        raise InputError("--precondition overwrites a drive; it needs --writes and a drive")
    if writes and not found.made:
        _confirm(machine, found, confirmed)
        _fill(machine, found, engine, asked=precondition)
    with _laid_out(machine, found):
        measured_on = _conditions(machine, found, plan)
        ready = replace(plan, run=partial(run_fio, machine, found, engine))
        done = replace(_run(ready), conditions=measured_on)
    throttled = "smart" in measured_on and has_throttled(
        measured_on["smart"], conditions(machine, target).get("smart", "")
    )
    return _written(done, output, as_json, throttled=throttled)


def _check_apart(output: Path, target: str | None) -> None:
    """Refuse a profile that would be written over what is measured, or where rows are kept."""
    rows = output.with_suffix(".rows")
    if target is not None and output.resolve() == Path(target).resolve():
        raise InputError(f"{output}: is what is measured; give the profile a name of its own")
    if rows == output or (rows.exists() and not rows.is_dir()):
        raise InputError(f"{rows}: rows are kept in a folder of this name; choose another -o")


@contextmanager
def _laid_out(machine: Machine, target: Target) -> Iterator[None]:
    """Write the file that is to be made once over, so that reads meet data; at last remove it."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    ends = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) == signal.SIG_DFL]
    for number in ends:
        signal.signal(number, end)
    try:
        if target.made:
            click.echo(f"nvmesim: writing {target.size} to {target.path}, removed afterwards",
                       err=True)  # fmt: skip
            machine.run([
                "fio", "--name=lay-out", f"--filename={target.path}", f"--size={target.size}",
                "--rw=write", "--bs=1m", "--end_fsync=1", "--output-format=json",
            ])  # fmt: skip
        yield
    finally:
        if target.made:
            machine.asked(f"rm -f -- {shlex.quote(target.path)}")
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


def _answer(server: str | None, stack: str) -> Answer | None:
    """Return what is asked for; InputError before anything is run."""
    from nvmesim.catalog import load as catalog
    from nvmesim.study.measuring.measure import with_drive

    catalog.get("stack", stack)
    if server is None:
        return None
    scenario = out.scenario_of(server)
    return with_drive(scenario.to_dict(), str(scenario.base.absolute()))


def _confirm(machine: Machine, target: Target, confirmed: str | None) -> None:
    """Refuse a target with anything on it, then ask for the drive's serial number."""
    from nvmesim.study.measuring.machine import refuse_unless_free

    if not target.path.startswith("/dev/"):
        raise InputError(f"{target.path}: exists; name a file that does not, it will be removed")
    serial = refuse_unless_free(machine, target.path)
    if not serial:
        raise InputError(f"{target.path} has no serial number to confirm; measure a file on it")
    given = confirmed if confirmed is not None else click.prompt(
        f"All data on {target.path} will be lost. Type its serial number ({serial}) to go on"
    )  # fmt: skip
    if given.strip() != serial:
        raise InputError(
            f"{given!r} is not the serial number of {target.path}; nothing was written"
        )


def _fill(machine: Machine, target: Target, engine: str, *, asked: bool) -> None:
    """Fill the drive twice, in order and at random, if *asked*; say how long it takes or would."""
    text = machine.run(["lsblk", "-b", "-d", "-n", "-o", "SIZE", target.path], 60.0)
    size = int(text.split()[0])
    hours = 2 * size / 1e9 / 3600
    wanted = "" if asked else "a drive that is not full is faster than it stays; --precondition: "
    click.echo(f"nvmesim: {wanted}two fills of {size / 1e12:.2f} TB, {hours:.1f} h at 1 GB/s",
               err=True)  # fmt: skip
    for access, block, depth in (("write", "1m", 32), ("randwrite", "4k", 128)) if asked else ():
        machine.run([
            "fio", "--name=fill", f"--filename={target.path}", f"--rw={access}", f"--bs={block}",
            f"--iodepth={depth}", "--direct=1", f"--ioengine={engine}", f"--io_size={size}",
            "--norandommap=1",
        ])  # fmt: skip


def _conditions(machine: Machine, target: Target, plan: Plan) -> dict[str, str]:
    """Return what the machine tells; *plan* learns the link, and one below the drive's is said."""
    from nvmesim.study.measuring.machine import conditions, link_below

    found = conditions(machine, target.path)
    below = link_below(found)
    if below:
        click.echo(f"nvmesim: {below}: what is measured is that link's", err=True)
    speed = found.get("link_speed", "16.0 GT/s").split()[0].removesuffix(".0")
    plan.link = f"pcie{GENERATIONS.get(speed, 4)} x{found.get('link_width', '4')}"
    return found


def _run(plan: Plan) -> Measuring:
    from nvmesim.capture.registry import read_captures
    from nvmesim.study.measuring.measure import measure as run_plan
    from nvmesim.units import format_iops

    left_s = plan.budget_s

    def say(step: MeasuredStep) -> None:  # a line a row: the table grows while it measures
        nonlocal left_s
        left_s -= step.seconds
        (found,) = read_captures([step.file]).measurements
        rate = format_iops(sum(op.iops for op in found.ops.values()))
        row = step.row
        load = f"{row.op} {row.kib}k, {row.jobs} x {row.depth}"
        left = f"at most {max(0.0, left_s) / 60:.1f} min left"
        moved = "" if step.settled else "   the rate did not settle"
        click.echo(
            f"{row.name:10} {load:22} {rate:>12} {step.seconds:4.0f} s   {_known(step):15}   "
            f"{left}{moved}", err=True,
        )  # fmt: skip

    out.say_if_compiling("compiled")
    whose = "the drive" if plan.answer is None else "that server"
    click.echo(f"nvmesim: how far throughput and p99 of {whose} are known, 95 %:", err=True)
    ending = "finishing the row and fitting what there is"
    with out.noting_interrupt(ending) as pressed, out.progress_bar() as progress:
        return run_plan(replace(plan, progress=progress, stop=pressed.is_set, on_step=say))


def _known(step: MeasuredStep) -> str:
    how = "expected" if step.is_expected else "known to"
    return "" if step.half_width is None else f"{how} ±{step.half_width:.0%}"


def _written(done: Measuring, output: Path, as_json: bool, *, throttled: bool) -> int:
    from nvmesim.catalog.toml import fitted_toml
    from nvmesim.show.words import plural

    measured = plural(len(done.steps), "row")
    notes = [f"measured by nvmesim in {done.seconds:.0f} s: {measured} of fio"]
    if done.ended in ("interrupted", "failed"):
        why = f": {done.error}" if done.error else ""
        notes.append(f"{done.ended} before its plan was over{why}")
    notes += [f"{key}: {text}" for key, text in done.conditions.items() if key != "smart"]
    if throttled:
        notes.append("throttled: hot while it was measured")
        click.echo("nvmesim: the drive was throttled for its temperature: cool it, and measure "
                   "again", err=True)  # fmt: skip
    profile = done.fit.profile.model_copy(update={"notes": "\n".join(notes)})
    write_text(output, fitted_toml(profile))
    rows = output.with_suffix(".rows")
    click.echo(
        f"nvmesim: {ENDED[done.ended]}; {measured} in {done.seconds / 60:.1f} min, "
        f"{_known(done.steps[-1]) or 'width not known'}; wrote {output} and {rows}", err=True,
    )  # fmt: skip
    if "virt" in done.conditions:
        guest = done.conditions["virt"]
        click.echo(f"nvmesim: measured in a guest ({guest}): its disk, not a drive", err=True)
    if as_json:
        out.print_json(done.to_json())
    if done.ended == "failed":
        click.echo(f"nvmesim: {done.error}; what was measured is kept", err=True)
    return {"interrupted": 130, "failed": 3}.get(done.ended, 0)


def _print_plan(output: Path | None, system: str, *, writes: bool, drive: str | None = None) -> int:
    from nvmesim.study.measuring.rows import PLAN, diskspd_lines, fio_job

    out.check_writable(output)
    rows = [row for row in PLAN if writes or not row.writes]
    text = fio_job(rows, *[drive] if drive else []) if system == "linux" else diskspd_lines(rows)
    out.save(output, text, "; it overwrites the drive that it is run on" if writes else "")
    return 0


@click.command(name="capture-plan", epilog="Example: nvmesim capture-plan --os linux -o drive.fio")
@system_option
@output_path("The file to write; default: print it.", "-o", "--output")
def capture_plan(system: str, output: Path | None) -> int:
    """Write what to run on a drive: `measure --plan --writes`.

    THE DRIVE'S CONTENT IS OVERWRITTEN.
    """
    return _print_plan(output, system, writes=True)
