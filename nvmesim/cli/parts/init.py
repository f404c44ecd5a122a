"""`nvmesim init`: a first scenario, asked for or from options, with comments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nvmesim.cli.output import check_writable, output_path, write_text

DEFAULT_DRIVE = "kioxia-cd6-r-15.36tb"
"""Of the data-centre drives the one of whose numbers the fewest are assumed."""
POOLS = ("zfs-mirror", "raidz1", "raidz2", "raidz3")
RAID_LEVELS = ("none", "raid0", "raid1", "raid10", "raid5", "raid6", *POOLS)
COMMENTS = {
    "server.stack": "nvmesim catalog list: stacks",
    "server.sockets.cpu": "or { cores = 16, threads_per_core = 2, ghz = 2.9, lanes = 64 }",
    "drives.profile": "catalog name, or the file that calibrate -o wrote",
    "drives.socket": "where they are attached, counted from 0",
    "volume.raid": "raid0 raid1 raid10 raid5 raid6, ZFS: raidz1 raidz2 raidz3 zfs-mirror",
    "volume.engine": "who does the RAID; nvmesim catalog list",
    "volume.degraded": "[0]: a drive has failed; rebuild = true: it is being rebuilt",
    "workload.block_size": 'or a mix: { "4 KiB" = 0.7, "64 KiB" = 0.3 }',
    "workload.read": "fraction of requests that read",
    "workload.threads": "per volume (or per drive without one)",
    "workload.outstanding": "per thread, as fio iodepth and DiskSpd -o",
    "workload.slo": "the goal: latency that requests should not exceed",
}


@click.command(epilog="Example: nvmesim init --drive intel-p4610-1.6tb --count 8 --raid raid5 "
               "--load oltp -o server.toml")  # fmt: skip
@click.option("--platform", metavar="NAME", help="A server of the catalog, such as dell-r760.")
@click.option("--drive", metavar="NAME", help="Catalog name of the drive, or a profile's file.")
@click.option("--count", type=click.IntRange(1, 1024), help="How many of them.")
@click.option("--cpu", metavar="NAME", help="Catalog name of the CPU.")
@click.option("--raid", type=click.Choice(RAID_LEVELS), help="RAID level, or none.")
@click.option("--load", metavar="NAME", help="oltp, vm-farm, log-writer, scan or backup.")
@output_path("The scenario to write; default: print it.", "-o", "--output")
def init(
    platform: str | None, drive: str | None, count: int | None, cpu: str | None, raid: str | None,
    load: str | None, output: Path | None,
) -> int:  # fmt: skip
    """Write a first scenario, with comments.

    On a terminal it asks for what no option states; elsewhere it takes a usual value.
    """
    from nvmesim.catalog import load as catalog
    from nvmesim.errors import InputError
    from nvmesim.scenario.load import scenario_from_dict
    from nvmesim.scenario.presets import PRESETS, preset
    from nvmesim.scenario.writing import to_text

    check_writable(output)
    if output is not None and output.exists():
        raise InputError(f"{output}: is there already; name another file, or move it away")
    server = catalog.get("platform", platform) if platform else None
    if server is not None and server.drives and drive is None:
        drive = server.name
        count = count or server.drives[0]["count"]
    drive = drive or _asked("Drive", DEFAULT_DRIVE, catalog.names("drive"))
    count = count or int(_asked("How many", "8", None, kind=click.IntRange(1, 1024)))
    if server is None:
        cpu = cpu or _asked("CPU", "xeon-gold-6130", catalog.names("cpu"))
    raid = raid or _asked("RAID level", "raid5" if count > 2 else "none", RAID_LEVELS)
    load = load or _asked("Load", "oltp", list(PRESETS))
    tables = scenario_tables(drive, count, cpu, raid, load, platform)
    scenario_from_dict(tables, output.parent if output else Path())
    head = (
        f"# {preset(load).says}.\n# Written by nvmesim init; predict it with: nvmesim run "
        f"{output.name if output else 'server.toml'}\n"
    )
    text = head + to_text(tables, COMMENTS)
    if output is None:
        click.echo(text, nl=False)
        return 0
    write_text(output, text)
    click.echo(f"nvmesim: wrote {output}; next: nvmesim run {output}", err=True)
    return 0


def scenario_tables(
    drive: str, count: int, cpu: str | None, raid: str, load: str, platform: str | None = None
) -> dict[str, Any]:
    """Return the tables of a server with one kind of drive and one load.

    A *platform* of the catalog brings its sockets, and the drives if they are those of an instance;
    drives of one's own are spread over its sockets.

    >>> scenario_tables("hdd-7200", 2, "xeon-gold-6130", "raid1", "scan")["volume"]["raid"]
    'raid1'
    """
    from nvmesim.catalog import load as catalog
    from nvmesim.scenario.presets import preset, workload

    server: dict[str, Any] = {"stack": "linux-io_uring"}
    sockets = 1
    if platform:
        server["platform"] = platform
        sockets = len(catalog.get("platform", platform).server["sockets"])
    if cpu:
        server["sockets"] = [{"cpu": cpu}] * sockets
    halves = [(socket, len(range(socket, count, sockets))) for socket in range(sockets)]
    drives = [{"profile": drive, "count": n, "socket": socket} for socket, n in halves if n]
    engine = "openzfs" if raid in POOLS else "linux-md"
    volume: dict[str, Any] = {"raid": raid, "engine": engine, "degraded": []}
    return {
        "name": f"{count} x {drive}" + (f", {raid}" if raid != "none" else ""),
        "server": server,
        **({"drives": drives} if drive != platform else {}),
        **({"volume": volume} if raid != "none" else {}),
        "workload": [{"name": preset(load).title, **workload(load), "slo": "1 ms"}],
    }


def _asked(what: str, usual: str, known: Any, kind: Any = None) -> str:
    """Ask on a terminal; *usual* elsewhere."""
    import sys

    if not sys.stdin.isatty():
        return usual
    if known is not None:
        click.echo(f"{what}: {', '.join(known)}", err=True)
    return str(click.prompt(what, default=usual, type=kind, err=True))
