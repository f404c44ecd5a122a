"""Pages that are written from the program itself, so that they cannot fall behind it."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import nvmesim
from nvmesim import catalog
from nvmesim.catalog import profile as profiles
from nvmesim.catalog.toml import show_quantity, show_value, what_is
from nvmesim.cli.main import nvmesim as group
from nvmesim.scenario import schema, workload_keys

HERE = Path(__file__).parent
ROOT = HERE.parent
PUBLISHED = ROOT / "calibration" / "published"

SCENARIO_TABLES = {
    # heading in the scenario file: its model
    "[server]": schema.ServerSpec,
    "[[server.sockets]]": schema.SocketSpec,
    "[server.sockets.memory]": schema.MemorySpec,
    "[[server.roots]]": schema.RootSpec,
    "[server.interconnect]": schema.InterconnectSpec,
    "[[adapters]]": schema.AdapterSpec,
    "[[drives]]": schema.DriveSpec,
    "[volume] or [[volume]]": schema.VolumeSpec,
    "[volume.bitmap]": schema.BitmapSpec,
    "[[workload]]": workload_keys.WorkloadSpec,
    "[workload.bursts]": workload_keys.BurstsSpec,
    "[workload.limits]": workload_keys.LimitsSpec,
    "[run]": schema.RunSpec,
}
PROFILE_TABLES = {
    "Drive": profiles.DriveProfile,
    "Drive: `[read]`": profiles.ReadSide,
    "Drive: `[write]`": profiles.WriteSide,
    "Drive: `[latencies]`": profiles.EmpiricalLatencies,
    "CPU": profiles.CpuProfile,
    "Stack": profiles.StackProfile,
    "Stack: `[sections.NAME]`": profiles.FileSection,
    "RAID engine": profiles.RaidEngineProfile,
    "Platform": profiles.PlatformProfile,
}
_WRITTEN = {"time": '"54 us"', "size": '"512 KiB"', "bandwidth": '"3.2 GB/s"', "rate": '"640k/s"'}


def all_pages() -> dict[str, str]:
    """Every generated page: its path below ``generated/``, and its text."""
    return {
        "cli.md": command_page(),
        "scenario.md": scenario_page(),
        "profiles.md": profile_page(),
        "json.md": json_page(),
        "api.md": api_page(),
        "numbers.md": number_page(),
        **published_pages(),
    }


# -- the command line ---------------------------------------------------------------------------


def command_page() -> str:
    """Each command with its ``--help``, as it is printed."""
    parts = [
        "# Command line\n\nThese are the texts of `--help`. Exit codes: 0 done; 1 ran, but the "
        "asked precision or budget was not met, or the load has no steady state; 2 bad input or "
        "usage; 3 infrastructure failed (a scheduler, a disk), what was finished is kept; 130 "
        "interrupted, what was finished is kept."
    ]
    for name, text in commands(group, "nvmesim"):
        parts.append(f"## {name}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def commands(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """(full name, help) of *command* and of all below it."""
    context = click.Context(command, info_name=name, max_content_width=96, terminal_width=96)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, f"{name} {inner}")


# -- scenario and profiles ----------------------------------------------------------------------


def scenario_page() -> str:
    """Every key of a scenario file, as the schema describes it."""
    text = (HERE / "scenario-head.md").read_text("utf-8")
    for heading, model in SCENARIO_TABLES.items():
        rows = [
            (f"`{key}`", written(field), shown_default(field), plain(field.description or ""))
            for key, field in model.model_fields.items()
        ]
        text += f"\n## `{heading}`\n\n" + table(("key", "written", "left out", "meaning"), rows)
    return text


def profile_page() -> str:
    """Every key of a profile, as its docstrings say."""
    text = (HERE / "profiles-head.md").read_text("utf-8")
    for heading, model in PROFILE_TABLES.items():
        rows = [
            (f"`{key}`", written(field), shown_default(field), plain(field.description or ""))
            for key, field in model.model_fields.items()
        ]
        about = inspect.getdoc(model) or ""
        text += f"\n## {heading}\n\n{plain(about)}\n\n"
        text += table(("key", "written", "left out", "meaning"), rows)
    return text


def plain(text: str) -> str:
    """A docstring as one line of Markdown."""
    text = re.sub(r"\s+", " ", text.replace("``", "`")).strip()
    return re.sub(r" ?\(DESIGN \d\)", "", text)


def written(field: FieldInfo) -> str:
    """How a value of *field* is written in TOML."""
    what = what_is(field)
    if what in _WRITTEN:
        return f"`{_WRITTEN[what]}`"
    for mark in field.metadata:
        said = _parser_example(getattr(mark, "func", None))
        if said:
            return f"`{said}`"
    shown = _annotation(field.annotation)
    low = [f"≥ {m.ge:g}" for m in field.metadata if getattr(m, "ge", None) is not None]
    low += [f"> {m.gt:g}" for m in field.metadata if getattr(m, "gt", None) is not None]
    high = [f"≤ {m.le:g}" for m in field.metadata if getattr(m, "le", None) is not None]
    high += [f"< {m.lt:g}" for m in field.metadata if getattr(m, "lt", None) is not None]
    return ", ".join([shown, *low, *high])


def _parser_example(func: Any) -> str | None:
    """The example that a field's parser names in its error."""
    if func is None:
        return None
    cells = inspect.getclosurevars(func).nonlocals
    example = cells.get("example")
    return f'"{example}"' if isinstance(example, str) and example else None


def _annotation(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(a)}`" for a in args)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_annotation(a) for a in args if a is not type(None)))
    if hasattr(kind, "__metadata__"):
        for mark in kind.__metadata__:
            what = getattr(mark, "what", None)
            if what is not None:
                return f"`{_WRITTEN.get(what, '1.5')}`"
            said = _parser_example(getattr(mark, "func", None))
            if said:
                return f"`{said}`"
        return _annotation(args[0])
    if origin is tuple:
        return f"list of {_annotation(args[0])}"
    if origin is dict:
        return f"table of {_annotation(args[1])}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "number or text" if kind.__name__ == "Quantity" else "table"
    names = {str: "text", int: "whole number", float: "number", bool: "`true`, `false`"}
    return names.get(kind, "text or table")


def shown_default(field: FieldInfo) -> str:
    """What holds when the key is left out."""
    if field.is_required():
        return "**needed**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ((), {}, ""):
        return ""
    if isinstance(value, BaseModel):
        number = getattr(value, "value", None)
        return f"{number:g}" if isinstance(number, float) else ""
    return f"`{json.dumps(value)}`"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in lines)
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


def number_page() -> str:
    """Every number of the catalog, with its basis and source."""
    text = (HERE / "numbers-head.md").read_text("utf-8")
    for kind in ("drive", "cpu", "stack", "raid-engine"):
        for name in catalog.names(kind):
            entry = catalog.get(kind, name)
            text += f"\n## {entry.model or name}\n\n`{name}`\n\n"
            text += table(
                ("number", "value", "95 %", "basis", "source"), list(number_rows(entry, entry))
            )
    return text


def number_rows(entry: Any, part: BaseModel, prefix: str = "") -> Iterator[tuple[str, ...]]:
    """The quantities of *part*, and of the tables in it."""
    for key in type(part).model_fields:
        value = getattr(part, key)
        if isinstance(value, profiles.Quantity):
            yield number_row(entry, prefix + key, value)
        elif isinstance(value, dict):
            inner = {f"{prefix}{key}.{k}": v for k, v in value.items()}
            for name, found in inner.items():
                if isinstance(found, profiles.Quantity):
                    yield number_row(entry, name, found)
        elif isinstance(value, BaseModel):
            yield from number_rows(entry, value, f"{prefix}{key}.")


def number_row(entry: Any, name: str, value: profiles.Quantity) -> tuple[str, ...]:
    """One quantity, shown as `nvmesim catalog show` does."""
    spread = ""
    if value.low is not None and value.high is not None:
        ends = (value.model_copy(update={"value": end}) for end in (value.low, value.high))
        spread = " to ".join(shown_as(entry, name, end) for end in ends)
    return f"`{name}`", show_quantity(entry, name), spread, value.basis, plain(value.source)


def shown_as(entry: Any, name: str, value: profiles.Quantity) -> str:
    """*value* in the unit of the number *name* of *entry*."""
    *path, last = name.split(".")
    part = entry
    for key in path:
        part = part[key] if isinstance(part, dict) else getattr(part, key)
    if isinstance(part, dict):
        return f"{value.value:.12g}"
    return show_value(value.value, what_is(type(part).model_fields[last]))


# -- results ------------------------------------------------------------------------------------


def json_page() -> str:
    """The JSON of `run`, of a run that is made here."""
    scenario = nvmesim.Scenario.model_validate(EXAMPLE)
    found = nvmesim.simulate(scenario, requests=20_000).to_json() | {"wall_s": 0.0}
    for key in ("members", "stations"):
        found[key] = found[key][:1]
    found["bottleneck"]["reliefs"] = found["bottleneck"]["reliefs"][:1]
    head = (HERE / "json-head.md").read_text("utf-8")
    return head.replace("@EXAMPLE@", json.dumps(rounded(found), indent=2))


EXAMPLE: dict[str, Any] = {
    "name": "two drives, mirrored",
    "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
    "drives": [{"profile": "intel-p4610-1.6tb", "count": 2}],
    "volume": {"raid": "raid1"},
    "workload": {"threads": 2, "outstanding": 16, "read": 0.9},
}


def rounded(value: Any) -> Any:
    """*value* with four digits to each number."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


# -- the Python names ---------------------------------------------------------------------------


def api_page() -> str:
    """Public names of `nvmesim`, all of them."""
    text = (HERE / "api-head.md").read_text("utf-8")
    for name in nvmesim.__all__:
        value = getattr(nvmesim, name)
        if isinstance(value, types.ModuleType):
            continue
        directive = "autoclass" if isinstance(value, type) else "autofunction"
        members = "   :members:\n" if directive == "autoclass" and name != "Scenario" else ""
        text += f"\n## `{name}`\n\n```{{eval-rst}}\n.. {directive}:: nvmesim.{name}\n{members}```\n"
    return text


# -- predicted against measured -----------------------------------------------------------------


def published_pages() -> dict[str, str]:
    """The scoreboard and the report of each published set, as `nvmesim validate` wrote them."""
    pages = {"published/index.md": (PUBLISHED / "SCOREBOARD.md").read_text("utf-8")}
    for file in sorted(PUBLISHED.glob("*/report.md")):
        pages[f"published/{file.parent.name}/report.md"] = file.read_text("utf-8")
    hidden = "\n```{toctree}\n:hidden:\n:glob:\n\n*/report\n```\n"
    pages["published/index.md"] += hidden
    return pages
