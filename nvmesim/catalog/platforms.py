"""Servers and cloud instances of the catalog: two tables, a row a platform."""

from __future__ import annotations

import csv
import functools
from importlib import resources
from typing import Any, Final

STACK: Final = "linux-io_uring"
INSTANCE_DRIVE: Final = "samsung-pm9a3-3.84tb"
"""What a provider's drive is taken for, below the limits that the provider states."""


@functools.cache
def tables() -> dict[str, dict[str, Any]]:
    """Return the table of each platform by its name, as a profile's file would hold it.

    >>> tables()["dell-r760"]["bay_link"], len(tables()["aws-i4i-8xlarge"]["drives"])
    ('pcie4 x4', 1)
    """
    found = {row["name"]: _server(row) for row in _rows("servers.csv")}
    return found | {row["name"]: _instance(row) for row in _rows("instances.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    file = resources.files("nvmesim.catalog") / "data" / "platforms" / name
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))


def _server(row: dict[str, str]) -> dict[str, Any]:
    lanes = row["bay_link"].rpartition("x")[2]
    stated = {"bays": "bays_basis", "bay_lanes": "link_basis", "socket_lanes": "lanes_basis"}
    values = {"bays": row["bays"], "bay_lanes": lanes, "socket_lanes": row["socket_lanes"]}
    numbers = {
        key: {"value": float(values[key]), "basis": row[basis]}
        | ({"source": row["source"]} if row[basis] != "assumed" else {})
        for key, basis in stated.items()
    }
    adapters = [  # "NAME KIND LINK SOCKET", the link of one or two words
        {"name": name, "kind": kind, "link": " ".join(link), "socket": int(socket)}
        for name, kind, *link, socket in (t.split() for t in row["adapters"].split(";") if t)
    ]
    return {
        "kind": "platform", "name": row["name"], "model": row["model"], **numbers,
        "bay_link": row["bay_link"],
        "server": {"stack": STACK, "sockets": [{"cpu": row["cpu"]}] * int(row["sockets"])},
        "adapters": adapters, "controllers": tuple(row["controllers"].split()),
        "sources": [row["source"]],
        "notes": f"The CPU is an example of those that it takes.\n{row['notes']}",
    }  # fmt: skip


def _instance(row: dict[str, str]) -> dict[str, Any]:
    """An instance: its vCPUs are threads of cores of *cpu*, its drives obey stated limits."""

    def limit(value: str) -> dict[str, Any]:
        return {"value": value, "basis": row["basis"], "source": row["source"]}

    # The time of a program at which flash is no limit: the stated writes take 0.8 of 64 dies.
    program_us = 0.8 * 64 / float(row["write_iops"]) * 1e6
    drive: dict[str, Any] = {
        "extends": INSTANCE_DRIVE, "name": f"{row['name']}-drive",
        "model": f"{row['model']}, {row['gb']} GB", "capacity": limit(f"{row['gb']} GB"),
        "commands": limit(f"{row['read_iops']}/s"),
        "write": {"commands": limit(f"{row['write_iops']}/s"), "program": {
            "value": f"{program_us:.0f} us", "basis": "assumed",
        }},
        "alternatives": [],
    }  # fmt: skip
    for key in ("read", "write"):
        if row[f"{key}_mbs"]:
            drive[f"{key}_bandwidth"] = limit(f"{row[f'{key}_mbs']} MB/s")
    count = int(row["drives"])
    cores = max(1, int(row["vcpus"]) // 2)
    cpu = {"extends": row["cpu"], "name": f"{row['vcpus']} vCPUs of {row['cpu']}", "cores": cores,
           "lanes": 16 * count}  # fmt: skip
    return {
        "kind": "platform", "name": row["name"], "model": row["model"],
        "bays": {"value": float(count), "basis": row["basis"], "source": row["source"]},
        "server": {"stack": STACK, "sockets": [{"cpu": cpu}]},
        "drives": [{"profile": drive, "count": count, "socket": 0}],
        "sources": [row["source"]],
        "notes": f"The kind of CPU, and what the limits do not say of the drives, is assumed.\n"
                 f"{row['notes']}",
    }  # fmt: skip
