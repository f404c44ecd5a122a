"""Readers of ``lscpu``, ``nvme list`` and ``lsblk``, as JSON and as people paste them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nvmesim.capture.readers.reports.common import binary_size
from nvmesim.capture.text import Source, shown
from nvmesim.describe.facts import Disk, Facts, FoundCpu, Interface, Nodes

MAX_NODES: Final = 1024
_FIELD: Final = re.compile(r"([^:\n]+):(.*)")
_NAMED_GHZ: Final = re.compile(r"@\s*(\d+(?:\.\d+)?)\s*GHz", re.I)
_AGAIN: Final = "run lscpu (or lscpu -J) again and keep all it prints"


def read_lscpu(source: Source) -> Facts:
    """Read the text of lscpu."""
    fields: dict[str, str] = {}
    for line in source.text().split("\n"):
        match = _FIELD.match(line)
        if match:
            fields.setdefault(match.group(1).strip(), match.group(2).strip())
    return _facts(source, fields)


def read_lscpu_json(source: Source) -> Facts:
    """Read ``lscpu -J``, flat or nested."""
    table = load_json(source, "lscpu -J")
    entries = table.get("lscpu") if isinstance(table, dict) else None
    return _facts(source, dict(_flat(entries)))


def load_json(source: Source, what: str) -> Any:
    """Return the JSON in *source*; CaptureError if it is cut, broken or nested too deeply."""
    try:
        return json.loads(source.text())
    except (json.JSONDecodeError, RecursionError) as error:
        raise source.error(f"is cut or broken JSON ({shown(error)})", f"run {what} again") from None


def _flat(entries: Any) -> Iterator[tuple[str, str]]:
    todo = list(reversed(entries)) if isinstance(entries, list) else []
    while todo:
        entry = todo.pop()
        if not isinstance(entry, dict):
            continue
        field = str(entry.get("field", "")).strip().removesuffix(":").rstrip()
        yield field, str(entry.get("data") or "")
        children = entry.get("children")
        todo += reversed(children) if isinstance(children, list) else []


def _facts(source: Source, fields: Mapping[str, str]) -> Facts:
    def whole(key: str) -> int | None:
        text = fields.get(key)
        if text is not None and not re.fullmatch(r"[1-9]\d{0,5}", text):
            raise source.error(f"{key} is {shown(text)!r}, not a number from 1", _AGAIN)
        return None if text is None else int(text)

    sockets, threads = whole("Socket(s)"), whole("Thread(s) per core")
    if sockets is None and "Core(s) per cluster" in fields:
        raise source.error("describes clusters, not sockets (an Arm machine)", "write the scenario")
    cores = whole("Core(s) per socket")
    if sockets is None or cores is None or threads is None:
        raise source.error(
            "is cut, or not in English: sockets, cores or threads per core are missing",
            f"{_AGAIN}, with LC_ALL=C in front",
        )
    model = fields.get("Model name", "")
    bogomips = re.match(r"\d+(?:[.,]\d+)?", fields.get("BogoMIPS", ""))
    cpu = FoundCpu(
        model=model,
        sockets=sockets,
        cores=cores,
        threads_per_core=threads,
        base_ghz=named_ghz(model),
        bogomips=float(bogomips[0].replace(",", ".")) if bogomips else None,
        guest="Hypervisor vendor" in fields,
    )
    n_nodes = whole("NUMA node(s)") or 0
    # They are counted apart from sockets: which is on which is left open.
    every: dict[int, int | None] = dict.fromkeys(range(n_nodes if n_nodes <= MAX_NODES else 0))
    nodes = Nodes(every, every) if every and not n_nodes % sockets else None
    return Facts(cpu=cpu, nodes=nodes, read=[cpu_text(cpu)])


def cpu_text(cpu: FoundCpu) -> str:
    """Say what *cpu* is."""
    guest = ", in a guest" if cpu.guest else ""
    return (
        f"{cpu.sockets} x {shown(cpu.model) or 'CPU without a name'}: {cpu.cores} cores of "
        f"{cpu.threads_per_core} threads each{guest}"
    )


def named_ghz(model: str) -> float | None:
    """Return the base frequency in a model name.

    >>> named_ghz("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz")
    2.1
    """
    match = _NAMED_GHZ.search(model)
    return float(match.group(1)) if match else None


def read_nvme_list(source: Source) -> Facts:
    """Read ``nvme list -o json`` of nvme-cli 1 and 2, with PCI addresses where they are given."""
    table = load_json(source, "nvme list -o json")
    devices = table.get("Devices") if isinstance(table, dict) else None
    if not isinstance(devices, list):
        raise source.error("has no list of devices", "run nvme list -o json again")
    return _disk_facts([disk for device in devices for disk in _namespaces(device)])


def _disk_facts(disks: list[Disk]) -> Facts:
    models = [shown(disk.model) or "unnamed" for disk in disks]
    listed = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    return Facts(disks=disks, read=[f"{len(disks)} drives{': ' if disks else ''}{listed}"])


def _namespaces(device: Any) -> Iterator[Disk]:
    """Yield the namespaces of one entry: flat (nvme-cli 1) or under its controllers (2)."""
    if not isinstance(device, dict):
        return
    if isinstance(device.get("DevicePath"), str):
        yield _namespace(device, device["DevicePath"], device, None)
    for subsystem in _tables(device, "Subsystems"):
        controllers = list(_tables(subsystem, "Controllers"))
        for controller in controllers:
            for space in _tables(controller, "Namespaces"):
                yield _namespace(controller, str(space.get("NameSpace", "")), space, controller)
        if controllers:
            for space in _tables(subsystem, "Namespaces"):
                name = str(space.get("NameSpace", ""))
                yield _namespace(controllers[0], name, space, controllers[0])


def _tables(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = table.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _namespace(
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


_DECIMAL_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) *([kMGTP])B *$")


def read_nvme_table(source: Source) -> Facts:
    """Read the table of ``nvme list``; its sizes are powers of ten."""
    header, rule, *rows = source.text().strip("\n").split("\n")
    spans = [match.span() for match in re.finditer(r"-+", rule)]
    columns = {header[first:last].strip(): slice(first, last) for first, last in spans}
    if not {"Node", "Model"} <= set(columns):
        raise source.error("has a table without Node and Model", "give nvme list -o json")
    disks = []
    for row in rows:
        cells = {name: row[span].strip() for name, span in columns.items()}
        size = _DECIMAL_SIZE.search(cells.get("Usage", ""))
        disks.append(
            Disk(
                name=cells["Node"].rsplit("/", 1)[-1],
                model=cells["Model"],
                size=round(float(size[1]) * 1000 ** (" kMGTP".index(size[2]))) if size else None,
                interface="nvme",
            )
        )
    return _disk_facts(disks)


_TRANSPORTS: Final[Mapping[str, Interface]] = {"nvme": "nvme", "sata": "sata", "sas": "sas"}


def read_lsblk(source: Source) -> Facts:
    """Read ``lsblk -J``: drives by their transport, SATA and SAS ones too.

    A SATA or SAS drive that carries the system is left out, and so is what is no drive (loop,
    zram, virtio).
    """
    table = load_json(source, "lsblk -J")
    disks: list[Disk] = []
    facts = Facts()
    for entry in _tables(table if isinstance(table, dict) else {}, "blockdevices"):
        name = str(entry.get("name", "")).rsplit("/", 1)[-1]
        if entry.get("type") != "disk" or not re.match(r"nvme|[sh]d", name):
            continue
        interface = _TRANSPORTS.get(str(entry.get("tran")))
        if interface is None:
            interface = "nvme" if name.startswith("nvme") else "sata"
            if interface == "sata":
                facts.assume(f"{shown(name)} is taken to be a SATA drive")
        if interface != "nvme" and _carries_the_system(entry):
            facts.read.append(f"{shown(name)} carries the system and is left out")
            continue
        size = binary_size(str(entry.get("size") or "0"))
        model = str(entry.get("model") or "").strip()
        disks.append(Disk(name, model, size, interface, str(entry.get("rota")) in ("True", "1")))
    facts.disks, facts.read = disks, _disk_facts(disks).read + facts.read
    return facts


def _carries_the_system(entry: dict[str, Any]) -> bool:
    """True if *entry* of lsblk or a part of it is mounted where a system is."""
    several = entry.get("mountpoints")
    places = [entry.get("mountpoint"), *(several if isinstance(several, list) else [])]
    return any(place in ("/", "/boot", "/boot/efi", "[SWAP]") for place in places) or any(
        map(_carries_the_system, _tables(entry, "children"))
    )
