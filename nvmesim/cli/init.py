"""`nvmesim init`: a first scenario, asked for or from options; `nvmesim ui`: the page."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from nvmesim.cli.output import check_writable, option, output_path, save
from nvmesim.errors import InputError, NvmesimError, nearest
from nvmesim.raid.levels import CHOICES, MD_LEVELS, POOL_LEVELS
from nvmesim.version import install_command

if TYPE_CHECKING:
    from nvmesim.catalog.profile import PlatformProfile

STACKS: Final = {"linux": "linux-io_uring", "windows": "windows-2019"}
"""Operating system -> the stack that is taken for it."""
NO_PLATFORM: Final = "none"
LISTED: Final = 6
"""Names that a wrong or half a name is answered with."""
COMMENTS: Final = {
    "server.platform": "its sockets and adapters; nvmesim catalog list --kind platform",
    "server.stack": "nvmesim catalog list: stacks",
    "server.sockets.cpu": "or { cores = 16, threads_per_core = 2, ghz = 2.9, lanes = 64 }",
    "drives.profile": "catalog name, or the file that calibrate -o wrote",
    "drives.socket": "where they are attached, counted from 0",
    "volume": 'kernel = "5.14" where the md of an older Linux does it',
    "volume.raid": f"{' '.join(MD_LEVELS)}, ZFS: {' '.join(POOL_LEVELS)}",
    "volume.engine": "who does the RAID; nvmesim catalog list",
    "volume.degraded": "[0]: a drive has failed; rebuild = true: it is being rebuilt",
    "workload": 'filesystem = "xfs", guest = "kvm-virtio" where it goes through them',
    "workload.block_size": 'or a mix: { "4 KiB" = 0.7, "64 KiB" = 0.3 }',
    "workload.read": "fraction of requests that read",
    "workload.threads": "per volume (or per drive without one)",
    "workload.outstanding": "per thread, as fio iodepth and DiskSpd -o",
    "workload.slo": "the goal: latency that requests should not exceed",
}


@dataclass(frozen=True)
class Question:
    """One thing that a scenario needs, and what an answer may be."""

    option: str
    says: str
    usual: str
    known: Callable[[], Sequence[str]] = tuple
    """Names to complete from; empty: any text that the scenario takes."""
    is_asked: Callable[[Mapping[str, str]], bool] = lambda answers: True


def questions(generation: int = 0) -> list[Question]:
    """Return what is asked, in its order; the usual CPU is of the drives' PCIe *generation*."""
    from nvmesim.catalog import load as catalog
    from nvmesim.scenario.workload_keys import DRIVE, presets

    def free(answers: Mapping[str, str]) -> bool:
        return answers["platform"] == NO_PLATFORM

    def bare(answers: Mapping[str, str]) -> bool:
        return not _own_drives(answers["platform"])

    return [
        Question("platform", "Server (none: choose CPUs)", NO_PLATFORM,
                 lambda: (NO_PLATFORM, *catalog.names("platform"))),
        Question("cpu", "CPU", usual_cpu(generation), lambda: catalog.names("cpu"), free),
        Question("sockets", "Sockets", "1", lambda: ("1", "2", "4"), free),
        Question("os", "Operating system", "linux", lambda: tuple(STACKS)),
        Question("drive", "Drive", DRIVE, lambda: catalog.names("drive"), bare),
        Question("count", "How many drives", "8", is_asked=bare),
        Question("raid", "RAID level", "raid5", lambda: CHOICES),
        Question("load", "Load", "oltp", lambda: tuple(presets())),
        Question("goal", "p99 latency to stay below", "1 ms"),
    ]  # fmt: skip


@click.command(epilog="Example: nvmesim init --drive intel-p4610-1.6tb --count 8 --raid raid5 "
               "--load oltp -o server.toml")  # fmt: skip
@option("--platform NAME", "Catalog name of the server; none: give --cpu.")
@option("--cpu NAME", "Catalog name of the CPU.")
@option("--sockets N", "How many of them: 1, 2 or 4.")
@option("--os NAME", "linux or windows.")
@option("--drive NAME", "Catalog name of the drive, or a profile's file.")
@option("--count N", "How many drives.")
@option("--raid LEVEL", "RAID level, or none.")
@option("--load NAME", "oltp, vm-farm, log-writer, scan or backup.")
@option("--goal TIME", "Latency that 99 % of the requests should keep, 1ms.")
@output_path("The scenario to write; default: print it.", "-o", "--output")
def init(output: Path | None, **options: str | None) -> int:
    """Write a first scenario, with comments.

    On a terminal it asks for what no option states, and checks each answer: part of a name is
    enough (PM1743), Tab completes it, ? lists what there is. Elsewhere it takes a usual value.
    """
    from nvmesim.catalog import load as catalog
    from nvmesim.scenario.load import to_text
    from nvmesim.scenario.workload_keys import DRIVE, preset

    check_writable(output)
    if output is not None and output.exists():
        raise InputError(f"{output}: is there already; name another file, or move it away")
    base = output.parent if output else Path()
    answers: dict[str, str] = {}
    for question in questions(_generation(options["drive"] or DRIVE, base)):
        if given := options[question.option]:
            answers[question.option] = checked(question, answers, given, base)
        elif question.is_asked(answers):
            answers[question.option] = _asked(question, answers, base)
    needs, cpu = _generation(answers.get("drive", ""), base), answers.get("cpu", "")
    if cpu and (has := catalog.get("cpu", cpu).pcie_generation) < needs:
        said = f"links of {answers['drive']} (PCIe {needs}) are PCIe {has}: {cpu} has no more"
        click.echo(f"nvmesim: {said}", err=True)
    tables = scenario_tables(answers)
    name = output.name if output else "server.toml"
    head = (
        f"# {preset(answers['load']).says}.\n"
        f"# Written by nvmesim init; predict it with: nvmesim run {name}\n"
    )
    save(output, head + to_text(tables, COMMENTS), f"; next: nvmesim run {output}")
    return 0


def checked(
    question: Question, answers: Mapping[str, str], given: str, base: Path, *,
    is_asked: bool = False,
) -> str:  # fmt: skip
    """Return *given* as the scenario takes it, a part of a name completed.

    Raises InputError, which lists what is near, for what is no answer, also beside the earlier
    *answers*; it names the option, or nothing where the question *is_asked* just above.
    """
    from nvmesim.scenario.load import scenario_from_dict

    text, known = given.strip(), question.known()
    what = repr(text) if is_asked else f"--{question.option} {text!r}"
    if known and text not in known and not text.endswith(".toml"):
        found = [name for name in known if text.casefold() in name.casefold()]
        if not found:
            raise InputError(f"{what} is unknown; {nearest(text, known)}")
        if len(found) > 1:
            more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
            raise InputError(f"{what} may be {', '.join(found[:LISTED])}{more}; write more of it")
        text = found[0]
    if question.option == "count" and not (text.isdecimal() and 1 <= int(text) <= 1024):
        raise InputError(f"{what}: write a number from 1 to 1024")
    if question.option in ("drive", "count", "raid", "goal"):
        # The scenario itself says what is wrong: too few drives, no such level, no latency.
        try:
            scenario_from_dict(scenario_tables({**answers, question.option: text}), base)
        except InputError as error:
            said = re.sub(r"^[a-z]+(\.\w+)+: ", "", str(error))
            raise InputError(said if text in said else f"{what}: {said}") from None
    return text


def _asked(question: Question, answers: Mapping[str, str], base: Path) -> str:
    """Ask on a terminal until there is an answer; the usual one elsewhere."""
    usual = question.usual
    if question.option == "raid" and _count(answers) < 3:
        usual = "none"
    if not sys.stdin.isatty():
        return checked(question, answers, usual, base)
    _complete_from(question.known())
    while True:
        try:
            given = click.prompt(question.says, default=usual, err=True)
        except (click.Abort, KeyboardInterrupt, EOFError):
            if answers:
                said = " ".join(f"--{name} {shlex.quote(text)}" for name, text in answers.items())
                click.echo(f"\nnvmesim: to go on with these answers: nvmesim init {said}", err=True)
            raise
        if given.strip() == "?":
            click.echo("  " + "  ".join(question.known() or ("any value",)), err=True)
            continue
        try:
            found = checked(question, answers, given, base, is_asked=True)
        except NvmesimError as error:
            click.echo(f"  {error}", err=True)
            continue
        if found != given:
            click.echo(f"  {found}", err=True)
        return found


def _complete_from(names: Sequence[str]) -> None:
    """Let Tab complete *names*, where the terminal's line editor is there."""
    try:
        import readline
    except ImportError:  # Windows
        return

    def complete(text: str, state: int) -> str | None:
        near = [name for name in names if text.casefold() in name.casefold()]
        return near[state] if state < len(near) else None

    readline.set_completer_delims("")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def scenario_tables(answers: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables of a server with one kind of drive and one load; usual where unanswered.

    A platform of the catalog brings its sockets, and the drives if they are those of an instance;
    drives of one's own are spread over its sockets.

    >>> scenario_tables({"drive": "hdd-7200", "count": "2", "raid": "raid1"})["volume"]["raid"]
    'raid1'
    """
    from nvmesim.catalog.toml import is_path
    from nvmesim.scenario.workload_keys import DRIVE, preset, workload

    raid, load = answers.get("raid", "none"), answers.get("load", "oltp")
    system, platform = answers.get("os", "linux"), answers.get("platform", NO_PLATFORM)
    is_known = platform != NO_PLATFORM
    sockets = len(_platform(platform).server["sockets"]) if is_known else (
        int(answers.get("sockets", "1"))
    )  # fmt: skip
    server: dict[str, Any] = {"platform": platform} if is_known else {}
    server["stack"] = STACKS[system]
    if not is_known or "cpu" in answers:
        server["sockets"] = [{"cpu": answers.get("cpu", "xeon-gold-6130")} for _ in range(sockets)]
    drive, count = answers.get("drive", DRIVE), _count(answers)
    shares = [(socket, len(range(socket, count, sockets))) for socket in range(sockets)]
    drives = [{"profile": drive, "count": n, "socket": socket} for socket, n in shares if n]
    own = "drive" not in answers and _own_drives(platform)
    what = platform if own else f"{count} x {Path(drive).stem if is_path(drive) else drive}"
    return {
        "name": what + (f", {raid}" if raid != "none" else ""),
        "server": server,
        **({} if own else {"drives": drives}),
        **({"volume": {"raid": raid, "engine": _engine(raid, system), "degraded": []}}
           if raid != "none" else {}),
        "workload": [{"name": preset(load).title, **workload(load),
                      "slo": answers.get("goal", "1 ms")}],
    }  # fmt: skip


def usual_cpu(generation: int) -> str:
    """Return the CPU to start from: no older than PCIe *generation*, of 16 cores or nearly.

    >>> usual_cpu(3), usual_cpu(4)
    ('xeon-gold-6130', 'epyc-7313')
    """
    from nvmesim.catalog import load as catalog

    known = [catalog.get("cpu", name) for name in catalog.names("cpu")]
    new = [cpu for cpu in known if cpu.pcie_generation >= generation] or known
    return min(new, key=lambda cpu: (cpu.pcie_generation, abs(cpu.cores - 16))).name


def _generation(drive: str, base: Path) -> int:
    """PCIe generation of a drive by a part of its name, or its file; 0 if it has none."""
    from nvmesim.catalog import load as catalog
    from nvmesim.catalog.links import parse_link

    near = [name for name in catalog.names("drive") if drive and drive.casefold() in name]
    try:
        profile = catalog.load("drive", near[0] if near else drive, base)
        link = parse_link(getattr(profile, "link", ""))
    except NvmesimError:
        return 0
    return link.generation if link.kind == "pcie" else 0


def _platform(name: str) -> PlatformProfile:
    from nvmesim.catalog import load as catalog

    return catalog.get("platform", name)


def _own_drives(platform: str) -> bool:
    """True if a platform comes with its drives, as instances do."""
    return platform != NO_PLATFORM and bool(_platform(platform).drives)


def _count(answers: Mapping[str, str]) -> int:
    platform = answers.get("platform", NO_PLATFORM)
    if "count" not in answers and _own_drives(platform):
        return sum(int(group["count"]) for group in _platform(platform).drives)
    return int(answers.get("count", "8"))


def _engine(raid: str, system: str) -> str:
    if raid in POOL_LEVELS:
        return "openzfs"
    spaces = {"raid5": "parity", "raid6": "parity"}.get(raid, "mirror")
    windows = "intel-vroc" if raid == "raid0" else f"storage-spaces-{spaces}"
    return windows if system == "windows" else "linux-md"


@click.command(epilog="Example: nvmesim ui, or nvmesim ui report.html")
@click.argument("file", metavar="[FILE.html]", required=False, type=click.Path(path_type=Path))
@option("--port", "Port of the page; default: a free one.", type=click.IntRange(1, 65535))
@option("--no-browser", "Print the address and open nothing.", is_flag=True)
def ui(file: Path | None, port: int | None, no_browser: bool) -> int:
    """Design a server in the browser.

    Pick parts, drop captures, move sliders, read the answer, send the report. FILE.html, a file
    that the page wrote, is opened with its designs. The page is served to this machine
    alone (127.0.0.1) at an address with a secret in it, the first line that is printed; nothing is
    sent anywhere. Ctrl-C ends it.
    """
    try:
        from nvmesim.ui.answer import designs_in
        from nvmesim.ui.serve import serve
    except ImportError as error:
        raise InputError(f"ui needs {error.name}: {install_command('ui')}") from None

    opened = [] if file is None else designs_in(file)
    serve(port, browser=not no_browser, say=click.echo, opened=opened)
    return 0
