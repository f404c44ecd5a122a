"""`nvmesim measure` runs fio on a drive and fits it; `capture-plan` prints the same rows."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvmesim.cli.output import (
    check_writable,
    json_option,
    noting_interrupt,
    option,
    output_path,
    print_json,
    progress_bar,
    say_if_compiling,
    scenario_of,
)
from nvmesim.errors import InputError
from nvmesim.files import write_text

if TYPE_CHECKING:
    from nvmesim.study.measuring.machine import Machine, Target
    from nvmesim.study.measuring.measure import MeasuredStep, Measuring

FILE_SIZE = "4GiB"
ENDED = {
    "enough": "another row would narrow the answer by less than a tenth",
    "budget": "the time is over", "plan": "every row of the plan is measured",
    "interrupted": "interrupted, fitted to what there is", "failed": "fitted to what there is",
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
@json_option
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
        return _print_plan(output, system, writes=writes or target is None)
    if target is None or output is None:
        raise InputError("name a drive or a file, and -o PROFILE.toml; or --plan for a job file")
    check_writable(output)
    from nvmesim.catalog import load as catalog
    from nvmesim.study.measuring.machine import Machine, lay_out, target_of

    catalog.get("stack", stack)
    machine = Machine(host)
    machine.check_fio(engine)
    found = target_of(machine, target, FILE_SIZE)
    if writes:
        _confirm(machine, found, confirmed)
    if precondition:
        _precondition(machine, found, engine, writes)
    try:
        if found.made:
            click.echo(
                f"nvmesim: writing {found.size} to {found.path}, removed afterwards", err=True
            )
        lay_out(machine, found)
        done = _run(
            machine, found, output, name or output.stem, server, budget,
            writes=writes, fixed=fixed, stack=stack, engine=engine,
        )  # fmt: skip
    finally:
        if found.made:
            machine.asked(f"rm -f -- {shlex.quote(found.path)}")
    return _written(done, output, as_json)


def _confirm(machine: Machine, target: Target, confirmed: str | None) -> None:
    """Refuse a target with anything on it, then ask for the drive's serial number."""
    from nvmesim.study.measuring.machine import refuse_unless_free

    if target.made:
        return
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


def _precondition(machine: Machine, target: Target, engine: str, writes: bool) -> None:
    """Fill the drive twice, sequentially and at random, after saying how long it takes."""
    if not writes or target.made:
        raise InputError("--precondition overwrites a drive; it needs --writes and a drive")
    text = machine.run(["lsblk", "-b", "-d", "-n", "-o", "SIZE", target.path], 60.0)
    size = int(text.split()[0])
    click.echo(f"nvmesim: two fills of {size / 1e12:.2f} TB: "
               f"{2 * size / 1e9 / 3600:.1f} h at 1 GB/s", err=True)  # fmt: skip
    for access, block, depth in (("write", "1m", 32), ("randwrite", "4k", 128)):
        machine.run([
            "fio", "--name=fill", f"--filename={target.path}", f"--rw={access}", f"--bs={block}",
            f"--iodepth={depth}", "--direct=1", f"--ioengine={engine}", f"--io_size={size}",
            "--norandommap=1",
        ])  # fmt: skip


def _run(
    machine: Machine, target: Target, output: Path, name: str, server: str | None, budget: str,
    *, writes: bool, fixed: bool, stack: str, engine: str,
) -> Measuring:  # fmt: skip
    from nvmesim.study.measuring.machine import conditions, link_below
    from nvmesim.study.measuring.measure import FioRunner, Plan, with_drive
    from nvmesim.study.measuring.measure import measure as run_plan
    from nvmesim.units import PS_PER_S, parse_time_ps

    answer = None
    if server is not None:
        scenario = scenario_of(server)
        answer = with_drive(scenario.to_dict(), str(scenario.base.absolute()))
    measured_on = conditions(machine, target.path)
    below = link_below(measured_on)
    if below:
        click.echo(f"nvmesim: {below}: what is measured is that link's", err=True)
    speed = measured_on.get("link_speed", "16.0 GT/s").split()[0].removesuffix(".0")
    link = f"pcie{GENERATIONS.get(speed, 4)} x{measured_on.get('link_width', '4')}"
    say_if_compiling("compiled")
    ending = "finishing the row and fitting what there is"
    with noting_interrupt(ending) as pressed, progress_bar() as progress:
        plan = Plan(
            FioRunner(machine, target, engine), output.with_suffix(".rows"), name,
            writes=writes, budget_s=parse_time_ps(budget) / PS_PER_S, stack=stack, link=link,
            answer=answer, adaptive=not fixed, progress=progress, stop=pressed.is_set,
            on_step=_say_step,
        )  # fmt: skip
        return replace(run_plan(plan), conditions=measured_on)


def _say_step(step: MeasuredStep) -> None:
    """One line a row on stderr: the table grows while it measures."""
    from nvmesim.capture.registry import read_captures
    from nvmesim.units import format_iops

    (found,) = read_captures([step.file]).measurements
    rate = format_iops(sum(op.iops for op in found.ops.values()))
    known = "" if step.half_width is None else f"   answer known to ±{step.half_width:.0%}"
    moved = "" if step.settled else "   did not settle"
    click.echo(f"{step.row.name:10} {rate:>12} {step.seconds:5.0f} s{known}{moved}", err=True)


def _written(done: Measuring, output: Path, as_json: bool) -> int:
    from nvmesim.catalog.toml import to_toml

    notes = [f"measured by nvmesim in {done.seconds:.0f} s: {len(done.steps)} rows of fio"]
    if done.ended in ("interrupted", "failed"):
        notes.append(f"{done.ended} before its plan was over {done.error}".strip())
    notes += [f"{key}: {text}" for key, text in done.conditions.items() if key != "smart"]
    profile = done.fit.profile.model_copy(update={"notes": "\n".join(notes)})
    write_text(output, to_toml(profile))
    rows = output.with_suffix(".rows")
    click.echo(f"nvmesim: wrote {output}: {ENDED[done.ended]}; its rows are in {rows}", err=True)
    if "virt" in done.conditions:
        guest = done.conditions["virt"]
        click.echo(f"nvmesim: measured in a guest ({guest}): its disk, not a drive", err=True)
    if as_json:
        print_json(done.to_json())
    if done.ended == "failed":
        click.echo(f"nvmesim: {done.error}; what was measured is kept", err=True)
    return {"interrupted": 130, "failed": 3}.get(done.ended, 0)


def _print_plan(output: Path | None, system: str, *, writes: bool) -> int:
    from nvmesim.study.measuring.rows import PLAN, diskspd_lines, fio_job

    check_writable(output)
    rows = [row for row in PLAN if writes or not row.writes]
    text = fio_job(rows) if system == "linux" else diskspd_lines(rows)
    if output is None:
        click.echo(text, nl=False)
        return 0
    write_text(output, text)
    harm = "; it overwrites the drive that it is run on" if writes else ""
    click.echo(f"nvmesim: wrote {output}{harm}", err=True)
    return 0


@click.command(name="capture-plan", epilog="Example: nvmesim capture-plan --os linux -o drive.fio")
@system_option
@output_path("The file to write; default: print it.", "-o", "--output")
def capture_plan(system: str, output: Path | None) -> int:
    """Write what to run on a drive: `measure --plan --writes`.

    THE DRIVE'S CONTENT IS OVERWRITTEN.
    """
    return _print_plan(output, system, writes=True)
