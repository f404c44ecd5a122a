"""Tables of results in Markdown, as issues and wikis have them, made a table of points.

What a column of words says ("4k QD1 randread", "8k rand 7:3") is told from all words of the row.
"""

import csv
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from nvmesim.capture.readers.points_columns import BANDWIDTH, LATENCY, cleaned, column
from nvmesim.warning import Warning

ONE_THREAD: Final = "one-thread"
"""Code of the warning that a table names a depth and no threads."""
_RULE: Final = re.compile(r"[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+(?:[ \t]*:?-{2,}:?)?[ \t]*")
_NOTHING: Final = re.compile(r"(?:n/?a|none|[-–—?]*)", re.I)
_RESULT: Final = re.compile(r"[0-9.,]+ ?([KM]?) ?IOPS|[0-9.,]+ ?[KMGT]i?B(?:/s|ps)", re.I)
"""A cell that says what it is, in a column of results"""
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}\b)")
_BYTES: Final = re.compile(r"([0-9.]+)\s*([KMGT])(i?)B(?:/s|ps)?", re.I)
_RATE_WORDS: Final = ("bandwidth", "bw", "throughput", "speed", "mibps", "mbps", "gibps", "gbps")
_MS: Final = {
    "average_response_time": "lat_mean_ms", "avg_response_time": "lat_mean_ms",
    "maximum_response_time": "lat_max_ms", "max_response_time": "lat_max_ms",
}  # fmt: skip
"""Columns of Iometer, which counts in ms."""
_DEPTHS: Final = ("i_o_depth", "outstanding", "outstanding_i_o", "outstanding_ios")
_SHARE: Final = re.compile(r"\b(\d{1,3})\s*[:/]\s*(\d{1,3})\b|\b(\d{1,3})\s*% ?read", re.I)
_SIZE: Final = re.compile(r"\b(\d{1,4}(?:\.5)?)\s?([km])(?:i?b)?\b", re.I)
_DEPTH: Final = re.compile(r"\bq(?:d|ueue depth)?\s*[=-]?\s*(\d{1,5})(?=\b|t\d)", re.I)
_THREADS: Final = re.compile(
    r"(?:\b|\d)t\s*=?\s*(\d{1,4})\b|\b(\d{1,4}) (?:threads?|jobs?)\b", re.I
)


class _Column(NamedTuple):
    name: str
    unit: str = ""
    """Of cells that state none"""


def points_of_markdown(text: str) -> tuple[str, Warning | None] | None:
    r"""Return the tables of *text* as a table of points, line for line; None if there are none.

    >>> found = points_of_markdown("|Test|IOPS|MB/s|\n|--|--:|--|\n|**4k QD1 randread**|1,377|-|\n")
    >>> found[0].split() if found else None
    ['name,op,block_size,iodepth,iops,jobs', '4k', 'QD1', 'randread,randread,4k,1,1377,1']
    """
    lines = text.split("\n")
    rows = {n: row for n, row in _rows(lines) if row.keys() & {"iops", "bw_mb_s"}}
    rows = {n: row for n, row in rows.items() if row.keys() & {"op", "iodepth", "block_size"}}
    if not rows:
        return None
    alone = [row for row in rows.values() if "iodepth" in row and "jobs" not in row]
    for row in alone:
        row["jobs"] = "1"
    said = "no column of threads: a queue depth is taken to be of one"
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    for number in range(max(rows) + 1):
        if number == min(rows) - 2:
            table.writerow(names)
        elif number in rows:
            table.writerow([rows[number].get(name, "") for name in names])
        else:
            out.write("\n")
    return out.getvalue(), Warning(ONE_THREAD, said) if alone else None


def _rows(lines: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and cells, by column, of each row of a table."""
    columns: list[_Column | None] = []
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if "|" not in line:
            columns = []
        elif _RULE.fullmatch(below):
            columns = [_column(name) for name in _cells(line)]
        elif columns and not _RULE.fullmatch(line) and len(_cells(line)) == len(columns):
            yield number, _row(columns, _cells(line))


def _cells(line: str) -> list[str]:
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return [re.sub(r"\*\*|[`~≈]|<br ?/?>", "", cell).strip() for cell in cells]


def _column(name: str) -> _Column | None:
    """What a column is called in a table of points, and the unit of its cells; None: words."""
    plain = cleaned(name)
    if plain.split("_")[0] in _RATE_WORDS or (found := column(name)) is None:
        unit = re.search(r"[KMGT]i?B(?=/s|ps|\b)", name, re.I)
        if plain.split("_")[0] in _RATE_WORDS:
            return _Column("bw_mb_s", unit[0] if unit else "")
        plain = "iodepth" if plain in _DEPTHS else _MS.get(plain, "")
        return _Column(plain) if plain else None
    if found.name in BANDWIDTH:
        return _Column("bw_mb_s", found.name[3:-2].replace("_", ""))
    if found.name == "iops":
        return _Column("iops", plain.removesuffix("iops"))
    if found.name in ("op", "name", "note"):
        return None
    if LATENCY.fullmatch(found.name):
        unit = re.search(r"(?<=_)([nmuµ]s|[mu]sec|s)$", plain)
        return _Column(found.name[:-3], unit[0] if unit else "")
    return _Column(found.name)


def _row(columns: list[_Column | None], cells: list[str]) -> dict[str, str]:
    known = [kind or _of_result(cell) for kind, cell in zip(columns, cells, strict=True)]
    words = " ".join(cell for kind, cell in zip(known, cells, strict=True) if kind is None)
    row = {"name": words, **_told(words)} if words else {}
    for kind, cell in zip(known, cells, strict=True):
        if kind is None or _NOTHING.fullmatch(cell):
            continue
        cell = _THOUSANDS.sub("", cell)
        moved = _BYTES.search(cell if _BYTES.search(cell) else f"{cell} {kind.unit}")
        if kind.name == "bw_mb_s":
            digits = len(moved[1].replace(".", "").lstrip("0")) if moved else 0
            # fewer than three digits contradict IOPS by being rounded
            if moved and (digits > 2 or "iops" not in row):
                base = 1024 if moved[3] else 1000
                scale = base ** (" KMGT".index(moved[2].upper()))
                row.setdefault("bw_mb_s", f"{float(moved[1]) * scale / 1e6:.9g}")
        elif kind.name == "iops" or kind.unit:
            cell = re.sub(r" ?IOPS$", "", cell, flags=re.I)
            row.setdefault(kind.name, cell + ("" if cell[-1:].isalpha() else kind.unit))
        else:
            row[kind.name] = cell
    if "iops" in row and len(row.get("bw_mb_s", "").replace(".", "").lstrip("0")) < 3:
        row.pop("bw_mb_s", None)
    return row


def _of_result(cell: str) -> _Column | None:
    """What *cell* is where it says so itself: "~150k IOPS", "71.42 MB/s"; else None."""
    found = _RESULT.fullmatch(cell)
    return found and _Column("bw_mb_s" if found[1] is None else "iops")


def _told(words: str) -> dict[str, str]:
    """Operation, size, threads and depth that *words* name."""
    low, found = words.lower().replace("_", " "), dict[str, str]()
    access = "rand" if re.search(r"rand|rnd", low) else "" if "seq" in low else None
    share = _SHARE.search(low)
    reads, writes = (re.search(rf"{x}|\b{y}\b", low) for x, y in (("read", "rd"), ("write", "wr")))
    if access is not None and share and (share[3] or int(share[1]) + int(share[2]) in (10, 100)):
        read = int(share[3]) if share[3] else 100 * int(share[1]) / (int(share[1]) + int(share[2]))
        found["op"] = f"{access}rw:{read:g}"
    elif access is not None and (reads or writes):
        found["op"] = access + ("rw" if reads and writes else "read" if reads else "write")
    if "iozone" in low:  # a process of it has one request at a time
        found["iodepth"] = "1"
    for name, pattern in (("block_size", _SIZE), ("jobs", _THREADS), ("iodepth", _DEPTH)):
        if match := pattern.search(low):
            found[name] = "".join(filter(None, match.groups()))
    return found
