"""Readers of ``Get-PhysicalDisk``, ``Get-StoragePool`` and ``Get-VirtualDisk``, however exported.

``| ConvertTo-Json``, ``| Export-Csv``, ``| Format-List *`` and the plain table are all read; the
plain table of disks lacks the bus.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nvmesim.capture.text import Head, Source, shown
from nvmesim.describe.cpus import load_json
from nvmesim.describe.disks import models_text
from nvmesim.describe.facts import Array, Disk, Facts, Interface
from nvmesim.describe.sizes import binary_size

Row = Mapping[str, str]

_KEYS: Final = ("FriendlyName", "MediaType", "ResiliencySettingName", "IsPrimordial")
_TELLING: Final = re.compile(r"\b(?:MediaType|ResiliencySettingName|IsPrimordial)\b")
_BUS: Final[dict[str, Interface]] = {
    **dict.fromkeys(("nvme", "17"), "nvme"),
    **dict.fromkeys(("sata", "11", "ata", "3"), "sata"),
    **dict.fromkeys(("sas", "10"), "sas"),
}
"""Names and numbers of MSFT_PhysicalDisk.BusType."""
_OTHER_BUS: Final = {"7": "USB", "8": "RAID", "16": "Storage Spaces", "9": "iSCSI"}
_ROTATES: Final = ("hdd", "3")
_JSON_AGAIN: Final = "export it with | Select-Object * | ConvertTo-Json"


def sniff_windows(head: Head) -> bool:
    """True if *head* starts as one of the three commands' output in any of the forms."""
    text = head.text
    if not _TELLING.search(text) or "FriendlyName" not in text:
        return False
    return bool(re.match(r'\s*(?:[\[{"#]|[A-Za-z]+\s*[:,;]|(?:[A-Za-z.]+ +)+[A-Za-z.]+ *\n)', text))


def read_windows(source: Source) -> Facts:
    """Read physical disks, pools and virtual disks, whichever are there."""
    facts = Facts(system="windows")
    for row in _rows(source):
        if "ResiliencySettingName" in row:
            _virtual_disk(source, row, facts)
        elif "MediaType" in row:
            _physical_disk(source, row, facts)
        elif "IsPrimordial" in row:
            _pool(row, facts)
    if facts.disks:
        facts.read.append(f"{len(facts.disks)} physical disks: {models_text(facts.disks)}")
    if not facts.disks and not facts.arrays and not facts.read:
        raise source.error("is cut: it lists no disk, pool or virtual disk", _JSON_AGAIN)
    return facts


def _rows(source: Source) -> Iterator[Row]:
    text = source.text()
    start = text.lstrip()[:1]
    if start in ("{", "["):
        yield from _json_rows(load_json(source, "the command | ConvertTo-Json"))
    elif start in ('"', "#") or re.match(r"\s*[A-Za-z]+[,;]", text):
        yield from _csv_rows(source, text)
    elif re.search(r"^ *-+(?: +-+)+ *$", text, re.M):
        yield from _table_rows(source, text)
    else:
        yield from _list_rows(text)


def _json_rows(found: Any) -> Iterator[Row]:
    if isinstance(found, dict) and isinstance(found.get("value"), list):
        found = found["value"]
    for entry in found if isinstance(found, list) else [found]:
        if isinstance(entry, dict):
            yield {str(k): _json_text(v) for k, v in entry.items()}


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return str(value)
    return "" if value is None else json.dumps(value)


def _csv_rows(source: Source, text: str) -> Iterator[Row]:
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#TYPE")]
    header = lines[0] if lines else ""
    delimiter = ";" if header.count(";") > header.count(",") else ","
    try:
        rows = list(csv.DictReader(io.StringIO("\n".join(lines)), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise source.error(f"is cut or broken CSV ({shown(error)})", _JSON_AGAIN) from None
    for row in rows:
        if None in row or None in row.values():
            raise source.error("is cut: a line has other columns than the first", _JSON_AGAIN)
        yield row


def _list_rows(text: str) -> Iterator[Row]:
    """Yield the tables of ``| Format-List *``: ``Name : value``, empty lines between."""
    for block in re.split(r"\n\s*\n", text):
        row = {
            key: value.strip()
            for key, value in re.findall(r"^([A-Za-z]\w*) *: ?(.*)$", block, re.M)
        }
        if row:
            yield row


def _table_rows(source: Source, text: str) -> Iterator[Row]:
    """Yield the lines of the plain table; its last column, the size, is set to the right."""
    lines = text.split("\n")
    rule = next(i for i, line in enumerate(lines) if re.match(r" *-+(?: +-+)+ *$", line))
    starts = [match.start() for match in re.finditer(r"-+", lines[rule])]
    heads = _cells(lines[rule - 1], starts) if rule else []
    if len(heads) != len(starts) or not any(head in _KEYS for head in heads):
        raise source.error("has a table without the names of its columns", _JSON_AGAIN)
    if "..." in "".join(heads):
        raise source.error("is a table cut at the width of the window", _JSON_AGAIN)
    for line in lines[rule + 1 :]:
        if not line.strip():
            continue
        size = re.search(r"(?<!\S)\d[\d.,]* [KMGTP]?B\s*$", line)
        body = line[: size.start()] if size else line
        row = dict(zip(heads, _cells(body, starts), strict=True))
        if size and "Size" in heads:
            row["Size"] = size.group().strip()
        yield row


def _cells(line: str, starts: list[int]) -> list[str]:
    ends = [*starts[1:], max(len(line), starts[-1])]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _size(row: Row) -> int | None:
    text = row.get("Size", "")
    return int(text) if text.isdigit() and len(text) < 19 else binary_size(text)


def _physical_disk(source: Source, row: Row, facts: Facts) -> None:
    model = row.get("Model", "").strip() or row.get("FriendlyName", "").strip()
    name = (
        row.get("DeviceId")
        or row.get("DeviceID")
        or row.get("Number")
        or row.get("SerialNumber")
        or ""
    )
    bus = row.get("BusType", "").strip()
    other = _OTHER_BUS.get(bus, bus if bus.lower() not in _BUS else "")
    if other.lower() in ("usb", "sd", "iscsi", "file backed virtual", "storage spaces"):
        facts.read.append(f"{shown(model)} on {shown(other)} is left out")
        return
    if other:
        facts.assumed.append(f"{shown(model)} is on bus {shown(other)}: how it is attached is open")
    if "BusType" not in row:
        text = "the plain table of Get-PhysicalDisk does not say the bus"
        if text not in facts.assumed:
            facts.assumed.append(text)
    size = _size(row)
    if size == 0:
        raise source.error(f"disk {shown(name)} has the size 0", _JSON_AGAIN)
    facts.disks.append(
        Disk(
            name=f"disk{name}" if name else f"disk-{len(facts.disks)}",
            model=model,
            size=size,
            interface=_BUS.get(bus.lower()),
            rotates=row.get("MediaType", "").strip().lower() in _ROTATES,
            pooled=_pooled(row),
        )
    )


def _pooled(row: Row) -> bool | None:
    """A disk that cannot be pooled is in a pool, or holds the system: only the reason tells."""
    if row.get("CanPool", "").strip().lower() == "true":
        return False
    reason = row.get("CannotPoolReason", "").lower()
    return "in a pool" in reason or bool(re.search(r"\b2\b", reason)) if reason else None


def _pool(row: Row, facts: Facts) -> None:
    if row.get("IsPrimordial", "").strip().lower() == "true":
        return
    setting = row.get("ResiliencySettingNameDefault", "").strip()
    default = f", default {shown(setting)}" if setting else ""
    facts.read.append(f"storage pool {shown(row.get('FriendlyName', ''))!r}{default}")


def _virtual_disk(source: Source, row: Row, facts: Facts) -> None:
    """Turn a virtual disk into an array: its members are the pool's disks."""
    name = row.get("FriendlyName", "").strip() or "virtual-disk"
    setting = row["ResiliencySettingName"].strip().lower()
    failures = row.get("PhysicalDiskRedundancy", "").strip()
    copies = row.get("NumberOfDataCopies", "").strip() or "2"
    columns = row.get("NumberOfColumns", "").strip()
    level, engine = {
        "simple": ("raid0", "none"),
        "mirror": ("raid10", "storage-spaces-mirror"),
        "parity": ("raid6" if failures == "2" else "raid5", "storage-spaces-parity"),
    }.get(setting, ("", ""))
    if not level:
        raise source.error(
            f"virtual disk {shown(name)!r} has the resiliency {shown(setting)!r}",
            "Simple, Mirror and Parity are modelled",
        )
    text = row.get("Interleave", "")
    chunk = int(text) if text.isdigit() and len(text) < 12 else binary_size(text)
    facts.arrays.append(
        Array(
            name=name,
            level=level,
            layout=f"near{copies}" if setting == "mirror" and copies.isdigit() else None,
            chunk=chunk,
            engine=engine,
            columns=int(columns) if columns.isdigit() and len(columns) < 4 else None,
        )
    )
    facts.read.append(f"virtual disk {shown(name)!r}: {setting}, {columns or '?'} columns")
