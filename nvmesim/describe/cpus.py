"""Readers of ``lscpu`` (text, ``-J``, ``-p``) and ``numactl -H``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nvmesim.capture.text import Head, Source, shown
from nvmesim.describe.facts import Facts, FoundCpu, Nodes

MAX_NODES: Final = 1024
_FIELD: Final = re.compile(r"([^:\n]+):(.*)")
_NAMED_GHZ: Final = re.compile(r"@\s*(\d+(?:\.\d+)?)\s*GHz", re.I)
_AGAIN: Final = "run lscpu (or lscpu -J) again and keep all it prints"


def sniff_lscpu(head: Head) -> bool:
    """True if *head* starts as lscpu prints text."""
    first = _FIELD.match(head.text.lstrip().split("\n", 1)[0])
    return first is not None and first.group(1).strip() == "Architecture"


def sniff_lscpu_json(head: Head) -> bool:
    """True if *head* starts as ``lscpu -J``."""
    return bool(re.match(r'\s*\{\s*"lscpu"\s*:', head.text))


def sniff_lscpu_parsable(head: Head) -> bool:
    """True if *head* starts as ``lscpu -p``."""
    return "# CPU,Core,Socket,Node" in head.text


def sniff_numactl(head: Head) -> bool:
    """True if *head* starts as ``numactl -H``."""
    return bool(re.match(r"\s*available: \d+ nodes?\b", head.text))


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
        if isinstance(children, list):
            todo.extend(reversed(children))


def _facts(source: Source, fields: Mapping[str, str]) -> Facts:
    sockets = _whole(source, fields, "Socket(s)")
    threads = _whole(source, fields, "Thread(s) per core")
    if sockets is None and "Core(s) per cluster" in fields:
        raise source.error("describes clusters, not sockets (an Arm machine)", "write the scenario")
    cores = _whole(source, fields, "Core(s) per socket")
    if sockets is None or cores is None or threads is None:
        raise source.error(
            "is cut, or not in English: sockets, cores or threads per core are "
            "missing", f"{_AGAIN}, with LC_ALL=C in front",
        )  # fmt: skip
    model = fields.get("Model name", "")
    cpu = FoundCpu(
        model=model,
        sockets=sockets,
        cores=cores,
        threads_per_core=threads,
        base_ghz=named_ghz(model),
        bogomips=_decimal(fields.get("BogoMIPS", "")),
        guest="Hypervisor vendor" in fields,
    )
    n_nodes = _whole(source, fields, "NUMA node(s)")
    return Facts(
        system="linux", cpu=cpu, nodes=_even_nodes(n_nodes, cpu.sockets), read=[cpu_text(cpu)]
    )


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


def _whole(source: Source, fields: Mapping[str, str], key: str) -> int | None:
    text = fields.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise source.error(f"{key} is {shown(text)!r}, not a number from 1", _AGAIN)
    return int(text)


def _decimal(text: str) -> float | None:
    match = re.match(r"\d+(?:[.,]\d+)?", text)
    return float(match.group().replace(",", ".")) if match else None


def _even_nodes(n_nodes: int | None, n_sockets: int) -> Nodes | None:
    """Nodes as lscpu counts them: apart from sockets, so which is on which is left open."""
    if not n_nodes or n_nodes > MAX_NODES or n_nodes % n_sockets:
        return None
    every = dict.fromkeys(range(n_nodes))
    return Nodes(memory=every, socket_of=every)


def read_lscpu_parsable(source: Source) -> Facts:
    """Read ``lscpu -p``: which CPU is on which core, socket and node."""
    lines = [line for line in source.text().split("\n") if line and not line.startswith("#")]
    rows = [_parsable_row(source, line) for line in lines]
    if not rows:
        raise source.error("is cut: no CPU is listed", "run lscpu -p again")
    sockets = {socket for _, socket, _ in rows}
    cores = {(socket, core) for core, socket, _ in rows}
    cpu = FoundCpu("", len(sockets), len(cores) // len(sockets), len(rows) // len(cores))
    numbered = {socket: index for index, socket in enumerate(sorted(sockets))}
    socket_of: dict[int, int | None] = {
        node: numbered[socket] for _, socket, node in rows if node is not None
    }
    nodes = Nodes(dict.fromkeys(socket_of), socket_of) if socket_of else None
    return Facts(system="linux", cpu=cpu, nodes=nodes, read=[cpu_text(cpu)])


def _parsable_row(source: Source, line: str) -> tuple[int, int, int | None]:
    parts = line.split(",")
    known = len(parts) >= 4 and all(part.isdigit() for part in parts[:3])
    if not known or not (parts[3].isdigit() or parts[3] == ""):
        raise source.error(f"has the line {shown(line)!r}", "run lscpu -p again, without a list")
    return int(parts[1]), int(parts[2]), int(parts[3]) if parts[3] else None


def read_numactl(source: Source) -> Facts:
    """Read ``numactl -H``: nodes with CPUs, and how much memory each has."""
    text = source.text()
    announced = int(text.split("available:", 1)[1].split()[0][:6])
    sizes = dict(re.findall(r"^node (\d+) size: (\d+) MB$", text, re.M))
    cpus = dict(re.findall(r"^node (\d+) cpus:([ \d]*)$", text, re.M))
    is_whole = len(sizes) == announced and sizes.keys() == cpus.keys()
    if not is_whole or "node distances:" not in text:
        raise source.error(
            f"is cut: {announced} nodes are announced, {len(sizes)} have their size",
            "run numactl -H again and keep all it prints",
        )
    with_cpus = {int(node): int(sizes[node]) * 2**20 for node in sizes if cpus[node].strip()}
    if not with_cpus:
        raise source.error("has no node with CPUs", "run numactl -H on the server itself")
    shares = ", ".join(f"node {n} {size / 2**30:.0f} GiB" for n, size in sorted(with_cpus.items()))
    facts = Facts(system="linux", read=[f"{len(with_cpus)} NUMA nodes with CPUs: {shares}"])
    facts.nodes = Nodes(memory=with_cpus, socket_of=dict.fromkeys(with_cpus))
    bare = sorted(int(node) for node in sizes if int(node) not in with_cpus)
    if bare:
        listed = ", ".join(str(node) for node in bare)
        facts.assumed.append(f"memory without CPUs (node {listed}) is left out")
    return facts
