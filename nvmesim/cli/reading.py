"""`trace` shows captures, `describe` reads a server's dumps, `catalog` lists parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nvmesim.cli import output as out
from nvmesim.cli.output import option, output_path
from nvmesim.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nvmesim.catalog.profile import Frozen, Profile


@click.command(
    epilog="Example: nvmesim trace fio/qd1.json fio/qd32.json   (or a folder, or 'fio/*.json')"
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@out.json_option
@out.verbose_option
def trace(captures: tuple[str, ...], as_json: bool, verbose: bool) -> int:
    """Show what is in a capture.

    Format, conditions, counts, latencies and warnings of each file. CAPTURE is a file, a folder or
    a glob; formats are recognised by content. With --json it prints one object per file, one
    per line. A file that cannot be read is reported on stderr, the others are shown, and the
    exit code is 2.
    """
    from nvmesim.capture.capture import describe_capture
    from nvmesim.capture.registry import read_captures
    from nvmesim.show.blocks import Warnings
    from nvmesim.show.terminal import show
    from nvmesim.show.views.measured import capture_blocks
    from nvmesim.show.words import one_line

    refused: list[str] = []
    with out.bytes_read("reading captures") as progress:
        found = read_captures(captures, progress=progress, refused=refused)
    unread = tuple(f"not read: {reason}" for reason in found.unread)
    for number, capture in enumerate(found.files):
        if as_json:
            click.echo(out.to_text(describe_capture(capture), indent=None))
        else:
            if number:
                click.echo()
            show(capture_blocks(capture), verbose=verbose)
    if unread and not as_json:
        show([Warnings(unread)])
    for reason in (*unread, *refused) if as_json else refused:
        click.echo(f"nvmesim: {one_line(reason)}", err=True)
    return 2 if refused else 0


@click.command(
    epilog="Example: nvmesim describe lscpu.txt lspci-vv.txt nvme-list.json -o server.toml"
)
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@option("--collect", "Print the script to run on the server, as root.", is_flag=True)
@output_path("The scenario to write; default: print it.", "-o", "--output")
@out.json_option
def describe(files: tuple[Path, ...], collect: bool, output: Path | None, as_json: bool) -> int:
    """Write a scenario from a server's own dumps.

    FILE is what `describe --collect` prints a script for, or any of its parts: what lscpu (text or
    -J), lspci -vv, lstopo --of xml, nvme list (text or JSON), lsblk -J, mdadm --detail printed, or
    a copy of /proc/mdstat. Several may stand in one file. Comments say what was read, ignored and
    assumed.
    """
    from nvmesim.describe import collecting_script, description

    out.check_writable(output)
    if collect and files:
        raise click.UsageError("--collect prints a script and reads no FILE")
    if not collect and not files:
        raise click.UsageError(
            "give dumps of a server, or --collect for the script that makes them"
        )
    found = None if collect else description(files)
    text = collecting_script() if found is None else found.text
    if output is not None:
        write_text(output, text)
        what = "check what it assumes, and put your load there"
        if collect:
            what = f"on the server, as root: sh {output.name} > server.txt"
        if collect or not as_json:
            click.echo(f"nvmesim: wrote {output}; {what}")
    if found is not None and as_json:
        out.print_json(found.to_json())
    elif output is None:
        click.echo(text, nl=False)
    elif found is not None:
        for line in (*(f"ignored: {t}" for t in found.ignored),
                     *(f"missing: {t}" for t in found.missing)):  # fmt: skip
            click.echo(line)
    return 0


KINDS = ("drive", "cpu", "stack", "raid-engine", "platform")


@click.group(
    invoke_without_command=True,
    epilog="Example: nvmesim catalog list --kind drive, or nvmesim catalog show linux-md",
)
@out.json_option
@click.pass_context
def catalog(ctx: click.Context, as_json: bool) -> int | None:
    """List the parts a scenario can name.

    Drives, CPUs, stacks, RAID engines and platforms; `show` prints one with its sources.
    """
    if ctx.invoked_subcommand is None:
        return _list(None, as_json)
    ctx.obj = as_json
    return None


@catalog.command("list", epilog="Example: nvmesim catalog list platform")
@click.argument("of_kind", metavar="[KIND]", required=False, type=click.Choice(KINDS))
@option("--kind", "Only entries of this kind.", type=click.Choice(KINDS))
@out.json_option
@click.pass_obj
def list_entries(outer_json: bool, of_kind: str | None, kind: str | None, as_json: bool) -> int:
    """List the entries, or those of one KIND."""
    return _list(of_kind or kind, as_json or outer_json)


@catalog.command("show", epilog="Example: nvmesim catalog show samsung-980pro-1tb")
@click.argument("name", metavar="NAME|FILE.toml")
@out.json_option
@click.pass_obj
def show_entry(outer_json: bool, name: str, as_json: bool) -> int:
    """Show one entry, or your own profile, with sources."""
    from nvmesim.catalog.load import find, read
    from nvmesim.catalog.toml import is_path
    from nvmesim.show.blocks import Block, Bullets, Line, table
    from nvmesim.show.terminal import show

    profile = read(None, Path(name)) if is_path(name) else find(name)
    if as_json or outer_json:
        out.print_json(profile.model_dump(mode="json", exclude_none=True))
        return 0
    what = ": ".join(text for text in (profile.kind, profile.model) if text)
    facts = _facts(profile)
    if profile.kind == "platform":
        facts += [*_flat("server", profile.server), *_flat("adapters", profile.adapters),
                  *_flat("controllers", profile.controllers)]  # fmt: skip
    headings = ("key", "<value", "<95 % interval", "<basis", "<source")
    rows: list[tuple[str, ...]] = [(key, text, "", "", "") for key, text in facts]
    rows += [*_numbers(profile), *_variants(profile)]
    blocks: list[Block] = [Line(profile.name, "title"), Line(what, "soft")]
    blocks.append(table("Numbers", headings, rows))
    notes = tuple(line for line in profile.notes.splitlines() if line)
    sources = tuple(getattr(profile, "sources", ()))
    blocks += [Bullets(lines, title) for title, lines in (("notes", notes), ("sources", sources))
               if lines]  # fmt: skip
    show(blocks)
    return 0


def _list(kind: str | None, as_json: bool) -> int:
    from nvmesim.catalog.load import MODELS, get, names, quantities

    wanted = [k for k in MODELS if kind in (None, k)]
    entries = [get(k, name) for k in wanted for name in names(k)]
    numbers = [[q for _, q in quantities(entry) if q.value] for entry in entries]
    assumed = [sum(q.basis == "assumed" for q in stated) for stated in numbers]
    if as_json:
        out.print_json([
            {"kind": e.kind, "name": e.name, "model": e.model, "numbers": len(n), "assumed": k}
            for e, n, k in zip(entries, numbers, assumed, strict=True)
        ])  # fmt: skip
        return 0
    from nvmesim.show.blocks import table
    from nvmesim.show.terminal import show

    rows = [
        (e.kind, e.name, e.model, f"{k} of {len(n)}" if n else "")
        for e, n, k in zip(entries, numbers, assumed, strict=True)
    ]
    show([table("Catalog", ("kind", "<name", "<model", "assumed"), rows)])
    return 0


def _facts(profile: Frozen) -> list[tuple[str, str]]:
    """Entries that are not numbers with a basis."""
    hidden = {"kind", "name", "model", "notes", "sources", "fresh", "latencies"}
    values = {key: getattr(profile, key) for key in type(profile).model_fields if key not in hidden}
    return [
        (key, ("yes" if value else "no") if isinstance(value, bool) else str(value))
        for key, value in values.items()
        if isinstance(value, str | int | float)
    ]


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """A line for each value of tables, addressed as --set does."""
    if isinstance(value, dict | list | tuple):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in inner:
            yield from _flat(f"{key}.{name}", part)
    else:
        yield key, str(value)


def _variants(profile: Profile) -> list[tuple[str, ...]]:
    """The numbers that differ by RAID level or kernel, or while the drive is fresh."""
    from nvmesim.catalog.load import with_level, with_state

    changed: dict[str, tuple[Profile, Mapping[str, Any]]] = {}
    if profile.kind == "raid-engine":
        by_level = profile.by_level.items()
        changed = {level: (with_level(profile, level), table) for level, table in by_level}
    elif profile.kind == "drive" and profile.fresh:
        changed = {"fresh": (with_state(profile, "fresh"), profile.fresh)}
    rows = [
        (f"{name}: {row[0]}", *row[1:])
        for name, (variant, keys) in changed.items()
        for row in [(k, t, "", "", "") for k, t in _facts(variant)] + _numbers(variant)
        if any(f"{row[0]}.".startswith(f"{key}.") for key in keys)
    ]
    for kernel, table in getattr(profile, "until", {}).items():
        for key, number in _leaves("", table):
            low, high = number.get("low"), number.get("high")
            span = "" if low is None else f"{low} .. {high}"
            cells = (str(number["value"]), span, number["basis"], number["source"])
            rows.append((f"before {kernel}: {key}", *cells))
    return rows


def _leaves(key: str, table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Numbers of nested tables, by dotted key."""
    for name, value in table.items():
        here = f"{key}.{name}".strip(".").removeprefix("by_level.")
        if isinstance(value, dict) and "value" in value:
            yield here, value
        elif isinstance(value, dict):
            yield from _leaves(here, value)


def _numbers(profile: Frozen) -> list[tuple[str, ...]]:
    from nvmesim.catalog.load import quantities
    from nvmesim.catalog.toml import quantity_at, show_value

    rows: list[tuple[str, ...]] = []
    for key, number in quantities(profile):
        span, what = "", quantity_at(profile, key)[1]
        if number.low is not None and number.high is not None:
            span = f"{show_value(number.low, what)} .. {show_value(number.high, what)}"
        value = show_value(number.value, what)
        if key == "capacity":  # as it is sold: powers of ten
            size = number.value
            value = f"{size / 1e12:.4g} TB" if size >= 1e12 else f"{size / 1e9:.4g} GB"
        rows.append((key, value, span, number.basis, number.source))
    return rows
