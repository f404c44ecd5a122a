"""A set of the user's own, ready to be filled in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nvmesim.capture.capture import Captures
from nvmesim.catalog.toml import toml_text, toml_value
from nvmesim.errors import InputError
from nvmesim.files import write_text
from nvmesim.scenario.load import to_text
from nvmesim.scenario.schema import Scenario

SET: Final = """\
# Predicted against measured, for a server of your own. `nvmesim validate {name}` runs it.
name = {name}
title = "What this set is about"
source = "who measured it, when, where it is written down"
hardware = "server, CPUs, drives"
method = "tool, its command line, runs, length, what was rounded"
grade = "table"                  # files | table | rounded | words
story = "What one would have expected, what happened, what the simulator says stopped it."
open = []                        # what is not explained, with the best hypothesis
noise = {{ iops = 0.03 }}          # of the measurement itself, 95 %, relative (CPU %: points)
noise_why = "how you know: repeats, rounding"
budget = {{ iops = 0.10, cpu_pct = 5 }}

# Each fit chooses one number so that one input row of rows.csv comes out. Targets are never seen.
[[fit]]
name = "cycles to submit, and as many to complete"
unit = "cycles"
set = ["server.stack.submit={{x}}", "server.stack.complete={{x}}"]
low = 500
high = 40000
config = "one drive"
metric = "cpu_pct"

# What one would say without the inputs: other parts of the catalog, or what it lacks.
# [catalog]
# set = ["drives.0.profile=intel-p4610-6.4tb"]
# lacks = "which drives they are"

[configs]
"one drive" = {{ set = ["drives.0.count=1"] }}
"four drives" = {{ set = ["drives.0.count=4"] }}
"""
ROWS: Final = """\
# role: input (a fit may see it), target (predicted and judged) or shown (predicted, not judged).
# A statement without a number has low and high. IOPS per second, CPU in % of all logical CPUs.
config,metric,measured,low,high,role,reference,note
one drive,cpu_pct,12.0,,,input,,
one drive,iops,640000,,,target,,
four drives,iops,2500000,,,target,,
four drives,cpu_pct,,45,55,target,,
"""
SCENARIO: Final = """\
name = {name}

[server]
stack = "windows-2019"
[[server.sockets]]
cpu = "xeon-gold-6130"
[[server.sockets]]
cpu = "xeon-gold-6130"

[[drives]]
profile = "intel-p4610-1.6tb"    # or the profile that `nvmesim calibrate` wrote

[[workload]]
block_size = "4 KiB"
read = 1.0
threads = 16
outstanding = 16
"""


MEASURED: Final = """\
# A server of one's own: what was measured on it, all of it predicted.
# `nvmesim validate {folder}` runs it.
name = {name}
title = {title}
source = "measured here"
hardware = {title}
method = {method}
grade = "files"
story = "Rows that nvmesim diagnose compares."
open = []
noise = {{ iops = 0.03 }}
noise_why = "assumed: 3 %; state what repeats show"
budget = {{ iops = 0.15 }}

[configs]
{configs}
"""


def new_set(folder: Path) -> list[Path]:
    """Write a set to start from into *folder*, which must be new or empty; return its files."""
    name = _made(folder)
    texts = {
        "set.toml": SET.format(name=toml_text(name)), "rows.csv": ROWS,
        "scenario.toml": SCENARIO.format(name=toml_text(name)),
    }  # fmt: skip
    return _written(folder, texts)


def set_of_rows(folder: Path, scenario: Scenario, captures: Captures) -> list[Path]:
    """Write a set whose targets are the rows of *captures*, measured on the server of *scenario*.

    InputError if no row states its load; rows that do not are left out, and counted in set.toml.
    """
    from nvmesim.scenario.resolve import resolve
    from nvmesim.study.diagnosis.evidence import on_drives, rows_of

    found, left_out = rows_of(captures)
    server = resolve(scenario)
    rows = [on_drives(row, server) for row in found]
    name = _made(folder)
    labels = [f"{number}: {row.label}" for number, row in enumerate(rows, 1)]
    loads = [f"workload=[{toml_value(dict(row.workload))}]" for row in rows]
    configs = "\n".join(
        f"{toml_text(label)} = {{ set = [{toml_text(load)}] }}"
        for label, load in zip(labels, loads, strict=True)
    )
    method = f"{len(rows)} rows of captures" + (f", {len(left_out)} left out" if left_out else "")
    title = scenario.name or name
    lines = ["config,metric,measured,low,high,role,reference,note"]
    lines += [f"{json.dumps(label)},iops,{row.iops:.6g},,,target,,"
              for label, row in zip(labels, rows, strict=True)]  # fmt: skip
    tables = scenario.to_dict()
    for drive in tables["drives"]:
        file = scenario.base / str(drive["profile"])
        if isinstance(drive["profile"], str) and file.suffix == ".toml":
            drive["profile"] = os.path.relpath(file, folder)
    texts = {
        "set.toml": MEASURED.format(
            name=toml_text(name), folder=folder, title=toml_text(title), method=toml_text(method),
            configs=configs,
        ),
        "rows.csv": "\n".join(lines) + "\n",
        "scenario.toml": to_text(tables),
    }  # fmt: skip
    return _written(folder, texts)


def _made(folder: Path) -> str:
    """Make *folder*, which must be new or empty; return its name."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there already; name a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve().name


def _written(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    for file, text in texts.items():
        write_text(folder / file, text)
    return [folder / file for file in texts]
