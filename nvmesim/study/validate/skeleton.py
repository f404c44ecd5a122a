"""A set of the user's own, ready to be filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nvmesim.catalog.text import toml_text
from nvmesim.errors import InputError
from nvmesim.files import write_text

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


def new_set(folder: Path) -> list[Path]:
    """Write a set to start from into *folder*, which must be new or empty; return its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there already; name a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    name = folder.resolve().name
    made = []
    for file, text in (("set.toml", SET), ("rows.csv", ROWS), ("scenario.toml", SCENARIO)):
        path = folder / file
        write_text(path, text.format(name=toml_text(name)) if "{name}" in text else text)
        made.append(path)
    return made
