"""Readers of ``lscpu``, ``nvme list``, ``lsblk``, ``mdadm --detail`` and ``/proc/mdstat``."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nvmesim.capture.checked_numbers import binary_size
from nvmesim.capture.text import Source, shown
from nvmesim.describe.facts import Array, Disk, Facts, FoundCpu, Interface, Nodes, whole_disk
from nvmesim.raid.levels import LEVELS, level_of

MAX_NODES: Final = 1024
_FIELD: Final = re.compile(r"([^:\n]+):(.*)")
_NAMED_GHZ: Final = re.compile(r"@\s*(\d+(?:\.\d+)?)\s*GHz", re.I)
_LSCPU_AGAIN: Final = "run lscpu (or lscpu -J) again and keep all it prints"


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
            raise source.error(f"{key} is {shown(text)!r}, not a number from 1", _LSCPU_AGAIN)
        return None if text is None else int(text)

    sockets, threads = whole("Socket(s)"), whole("Thread(s) per core")
    if sockets is None and "Core(s) per cluster" in fields:
        raise source.error("describes clusters, not sockets (an Arm machine)", "write the scenario")
    cores = whole("Core(s) per socket")
    if sockets is None or cores is None or threads is None:
        raise source.error(
            "is cut, or not in English: sockets, cores or threads per core are missing",
            f"{_LSCPU_AGAIN}, with LC_ALL=C in front",
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


_PARITY: Final = dict(enumerate((
    "left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric", "parity-first",
    "parity-last",
)))  # fmt: skip
"""By md's algorithm number. Source: linux/raid/md_u.h."""
_DETAIL_AGAIN: Final = "run mdadm --detail /dev/md* as root again"


def read_detail(source: Source) -> Facts:
    """Read one or several arrays, their members by role."""
    blocks = re.split(r"^(?=/dev/\S+:$)", source.text().lstrip(), flags=re.M)
    arrays = [_detail(source, block) for block in blocks if block.strip()]
    return Facts(arrays=arrays, read=[_array_text(array) for array in arrays])


def _array_text(array: Array) -> str:
    missing = [str(role) for role, disk in enumerate(array.members) if disk is None]
    parts = (
        f"{array.name}: {array.level} of {len(array.members)}",
        array.layout,
        array.chunk and f"chunk {array.chunk // 1024} KiB",
        missing and f"role {', '.join(missing)} missing",
        array.spares and f"{len(array.spares)} spare",
        array.rebuild and "rebuilding",
    )
    return ", ".join(str(part) for part in parts if part)


def _detail(source: Source, block: str) -> Array:
    name = block.split(":", 1)[0].rsplit("/", 1)[-1]
    fields = {
        key.strip(): value.strip()
        for key, value in re.findall(r"^ +([A-Z][^:\n]*?) : (.*)$", block, re.M)
    }
    if "Raid Level" not in fields or "Raid Devices" not in fields:
        raise source.error(f"is cut: {name} has no level or no number of devices", _DETAIL_AGAIN)
    level = _level(source, name, fields["Raid Level"])
    n_roles = fields["Raid Devices"]
    if not re.fullmatch(r"[1-9]\d{0,3}", n_roles):
        raise source.error(f"{name}: Raid Devices is {shown(n_roles)!r}", _DETAIL_AGAIN)
    members: dict[int, str | None] = {}
    disks: dict[str, list[str]] = {"spare": [], "faulty": [], "replacing": []}
    for role, rest in re.findall(r"^ +(?:\d+|-) +\d+ +\d+ +(\d+|-) +(.+?)$", block, re.M):
        state, _, device = rest.rpartition(" ")
        if not device.startswith("/dev/") or device.endswith("/"):
            state, device = rest, ""
        disk = whole_disk(device)
        kind = "faulty" if "faulty" in state else "spare"
        if role != "-":
            is_there = device and "rebuilding" not in state
            members[int(role)] = disk if is_there else None
            kind = "" if is_there else "replacing"
        if kind and disk:
            disks[kind].append(disk)
    if sorted(members) != list(range(int(n_roles))):
        raise source.error(
            f"is cut: {name} lists {len(members)} of {n_roles} devices", _DETAIL_AGAIN
        )
    state, intent = fields.get("State", ""), fields.get("Intent Bitmap", "").lower()
    has_bitmap = bool(intent) or fields.get("Consistency Policy") == "bitmap"
    is_external = bool(intent) and not intent.startswith("internal")
    return Array(
        name=name,
        level=level,
        members=tuple(members[role] for role in range(int(n_roles))),
        layout=_layout(fields.get("Layout", ""), level),
        chunk=binary_size(fields.get("Chunk Size", "")),
        spares=tuple(disks["spare"]),
        faulty=tuple(disks["faulty"]),
        replacing=tuple(disks["replacing"]),
        rebuild="recovering" in state or "resyncing" in state,
        bitmap="external" if is_external else "internal" if has_bitmap else "none",
    )


def _level(source: Source, name: str, level: str) -> str:
    if level not in LEVELS:
        raise source.error(
            f"{name} is {shown(level)!r}, which nvmesim does not model",
            f"it has {', '.join(LEVELS)}; leave it out to describe the drives alone",
        )
    return level


def _layout(text: str, level: str) -> str | None:
    """Return the layout as a scenario names it: ``near=2`` is near2.

    >>> _layout("near=2", "raid10"), _layout("left-symmetric", "raid5"), _layout("", "raid0")
    ('near2', 'left-symmetric', None)
    """
    if not level_of(level).redundant or not level_of(level).has_chunks or not text:
        return None
    copies = re.match(r"(near|far|offset)=(\d+)", text)
    return f"{copies[1]}{copies[2]}" if copies else text.split()[0]


_ARRAY: Final = re.compile(
    r"^(md\S+) : (active|inactive)(?: \((?:auto-)?read-only\))? (?:(\w+) )?(.*)$"
)
_MEMBER: Final = re.compile(r"(\S{1,200}?)\[(\d+)\]((?:\([A-Z]\))*)")


def read_mdstat(source: Source) -> Facts:
    """Read the arrays; the roles of members are not in this file and are supposed."""
    text, again = source.text(), "copy /proc/mdstat again"
    if "unused devices:" not in text:
        raise source.error("is cut: the line 'unused devices' is missing", again)
    facts = Facts()
    for block in re.split(r"^(?=md\S+ : )", text, flags=re.M)[1:]:
        first, *rest = block.split("\n")
        head = _ARRAY.match(first)
        if head is None:
            raise source.error(f"has the line {shown(first)!r}", again)
        if head[2] == "inactive":
            facts.read.append(f"{head[1]} is inactive and left out")
            continue
        if not _MEMBER.search(head[4]) or " blocks" not in "".join(rest[:1]):
            raise source.error(f"is cut: {head[1]} has no members or no size", again)
        level = _level(source, head[1], head[3] or "")
        array, is_certain = _mdstat_array(head[1], level, head[4], block)
        if not is_certain:
            facts.assume(
                f"{array.name}: /proc/mdstat does not say the roles of its members; mdadm "
                "--detail does",
                unless="mdadm --detail",
                array=array.name,
            )
        facts.arrays.append(array)
        facts.read.append(_array_text(array))
    return facts


def _mdstat_array(name: str, level: str, listed: str, block: str) -> tuple[Array, bool]:
    """Return the array, and whether the roles of its members are certain.

    ``[n]`` is the number of the descriptor: it is the role until a member has been replaced.
    """
    found = _MEMBER.findall(listed)
    devices = [(whole_disk(d), int(n), flags) for d, n, flags in found if not d.endswith("/")]
    shape = block.split("\n")[1]
    up = re.search(r"\[(\d+)/\d+\] \[([U_]+)\]", block)
    roles = up[2] if up else "U" * len(devices)
    members: list[str | None] = [None] * len(roles)
    later = []
    for disk, number, flags in sorted(devices, key=lambda device: device[1]):
        if "(F)" in flags or "(S)" in flags:
            continue
        if number < len(roles) and roles[number] == "U" and members[number] is None:
            members[number] = disk
        else:
            later.append(disk)
    free = [role for role, state in enumerate(roles) if state == "U" and members[role] is None]
    for role, disk in zip(free, later, strict=False):
        members[role] = disk
    chunk = re.search(r"(\d{1,12}[kK]) chunks?", shape)
    if level_of(level).copies == "layout":
        copies = re.search(r"(\d{1,9}) (near|far|offset)-copies", shape)
        layout = f"{copies[2]}{copies[1]}" if copies else None
    else:
        algorithm = re.search(r"algorithm (\d+)", shape)
        layout = _PARITY.get(int(algorithm[1])) if algorithm else None
    array = Array(
        name=name,
        level=level,
        members=tuple(members),
        layout=layout,
        chunk=binary_size(chunk[1]) if chunk else None,
        spares=tuple(disk for disk, _, flags in devices if "(S)" in flags),
        replacing=tuple(later[len(free) :]),
        faulty=tuple(disk for disk, _, flags in devices if "(F)" in flags),
        rebuild=bool(re.search(r"\b(?:recovery|resync) *=", block)),
        bitmap="internal" if re.search(r"^[ \t]+bitmap:", block, re.M) else "none",
    )
    return array, not later
