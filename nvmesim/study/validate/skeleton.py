"""A set of the user's own, ready to be filled in; its files are filled from those in `new_set`."""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path
from string import Template

from nvmesim.capture.capture import Captures
from nvmesim.catalog.toml import toml_text, toml_value
from nvmesim.errors import InputError
from nvmesim.files import write_text
from nvmesim.scenario.load import to_text
from nvmesim.scenario.schema import Scenario


def new_set(folder: Path) -> list[Path]:
    """Write a set to start from into *folder*, which must be new or empty; return its files."""
    name = toml_text(_made(folder))
    files = ("set.toml", "rows.csv", "scenario.toml")
    return [_written(folder / file, _filled(file, name=name)) for file in files]


def set_of_rows(folder: Path, scenario: Scenario, captures: Captures) -> list[Path]:
    """Write a set whose targets are the rows of *captures*, measured on the server of *scenario*.

    InputError if no row states its load; rows that do not are left out, and counted in set.toml.
    """
    from nvmesim.scenario.resolve import resolve
    from nvmesim.study.diagnosis.evidence import on_drives, rows_of

    found, left_out = rows_of(captures)
    server = resolve(scenario)
    rows = {f"{n}: {row.label}": on_drives(row, server) for n, row in enumerate(found, 1)}
    name = _made(folder)
    loads = {label: f"workload=[{toml_value(dict(row.workload))}]" for label, row in rows.items()}
    configs = "\n".join(
        f"{toml_text(label)} = {{ set = [{toml_text(load)}] }}" for label, load in loads.items()
    )
    method = f"{len(rows)} rows of captures" + (f", {len(left_out)} left out" if left_out else "")
    head = "config,metric,measured,low,high,role,reference,note"
    targets = [f"{json.dumps(label)},iops,{row.iops:.6g},,,target,," for label, row in rows.items()]
    tables = scenario.to_dict()
    for drive in tables["drives"]:
        file = scenario.base / str(drive["profile"])
        if isinstance(drive["profile"], str) and file.suffix == ".toml":
            drive["profile"] = os.path.relpath(file, folder)
    texts = {
        "set.toml": _filled(
            "measured.toml", name=toml_text(name), folder=str(folder), configs=configs,
            title=toml_text(scenario.name or name), method=toml_text(method),
        ),
        "rows.csv": "\n".join([head, *targets, ""]),
        "scenario.toml": to_text(tables),
    }  # fmt: skip
    return [_written(folder / file, text) for file, text in texts.items()]


def _made(folder: Path) -> str:
    """Make *folder*, which must be new or empty; return its name."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there already; name a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve().name


def _filled(file: str, **values: str) -> str:
    text = (resources.files(__package__) / "new_set" / file).read_text("utf-8")
    return Template(text).safe_substitute(values)


def _written(path: Path, text: str) -> Path:
    write_text(path, text)
    return path
