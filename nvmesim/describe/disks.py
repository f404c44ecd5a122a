"""Reader of ``nvme list -o json``, nvme-cli 1 and 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nvmesim.capture.text import Head, Source, shown
from nvmesim.describe.cpus import load_json
from nvmesim.describe.facts import Disk, Facts


def sniff_nvme_list(head: Head) -> bool:
    """True if *head* starts as ``nvme list -o json``."""
    return bool(re.match(r'\s*\{\s*"Devices"\s*:', head.text))


def read_nvme_list(source: Source) -> Facts:
    """Read the NVMe namespaces, with their PCI address where ``-v`` or nvme-cli 2 gives it."""
    table = load_json(source, "nvme list -o json")
    devices = table.get("Devices") if isinstance(table, dict) else None
    if not isinstance(devices, list):
        raise source.error("has no list of devices", "run nvme list -o json again")
    disks = [disk for device in devices for disk in _disks(device)]
    if not disks:
        raise source.error("lists no NVMe drive", "run nvme list -o json as root on the server")
    facts = Facts(system="linux", disks=disks)
    facts.read.append(f"{len(disks)} NVMe drives: {models_text(disks)}")
    return facts


def _disks(device: Any) -> Iterator[Disk]:
    """Yield the namespaces of one entry: flat (nvme-cli 1) or under its controllers (2)."""
    if not isinstance(device, dict):
        return
    if isinstance(device.get("DevicePath"), str):
        yield _disk(device, device["DevicePath"], device, None)
    for subsystem in _tables(device, "Subsystems"):
        controllers = list(_tables(subsystem, "Controllers"))
        for controller in controllers:
            for namespace in _tables(controller, "Namespaces"):
                yield _disk(controller, str(namespace.get("NameSpace", "")), namespace, controller)
        if controllers:
            for namespace in _tables(subsystem, "Namespaces"):
                name = str(namespace.get("NameSpace", ""))
                yield _disk(controllers[0], name, namespace, controllers[0])


def _tables(table: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = table.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _disk(
    named: dict[str, Any], path: str, space: dict[str, Any], controller: dict[str, Any] | None
) -> Disk:
    size = space.get("PhysicalSize")
    address = controller.get("Address") if controller else None
    return Disk(
        name=path.rsplit("/", 1)[-1],
        model=str(named.get("ModelNumber", "")).strip(),
        size=size if isinstance(size, int) and size > 0 else None,
        interface="nvme",
        address=address if isinstance(address, str) and address.count(":") == 2 else None,
    )


def models_text(disks: list[Disk]) -> str:
    """Count the models of *disks*.

    >>> models_text([Disk("a", "X"), Disk("b", "X"), Disk("c", "Y")])
    '2 x X, 1 x Y'
    """
    models = [shown(disk.model) or "unnamed" for disk in disks]
    return ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
