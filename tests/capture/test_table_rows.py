"""Tables with a line a request: a readable twin, chunks of any size, a thread ahead, memory."""

import re
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvmesim.capture import lines
from nvmesim.capture.lines import (
    INTEGER,
    LETTER,
    NAME,
    OPTIONAL,
    SECONDS,
    TWO_NAMES,
    ColumnNames,
    Notes,
    Shape,
    TableColumn,
)
from nvmesim.capture.registry import read_capture
from nvmesim.capture.requests import UNKNOWN_TIME
from tests.capture.composed import FORMS, requests
from tests.fuzz.memory import MemorySource

FEW = settings(max_examples=100, deadline=None, derandomize=True)
CELLS = st.sampled_from(
    (
        *("0", "7", "00012", "4096", "12345678", "123456789", "1234567890123456", "9" * 18),
        *("9" * 19, "9223372036854775807", "9223372036854775808", "-5", "", " "),
        *("1.5", "0.25", "1456095145.123456789", "3.0000000009", "4000000000.0", "5000000000.5"),
        *("R", "W", "Read", "Write", "FWS", "N", "r2", "srv", "a-longer-name", "ab cd"),
        *('"hm"', "\x0b", "é"),
    )
)
SHAPES = {
    "numbers": Shape({"a": TableColumn(0, INTEGER), "b": TableColumn(2, SECONDS)}, 3, 3),
    "words": Shape(
        {"a": TableColumn(0, LETTER), "b": TableColumn(1, NAME), "c": TableColumn(2, LETTER)}, 3, 3
    ),
    "pairs": Shape({"a": TableColumn(0, TWO_NAMES), "b": TableColumn(2, INTEGER)}, 3, 3),
    "last": Shape({"a": TableColumn(1, TWO_NAMES), "b": TableColumn(0, INTEGER | OPTIONAL)}, 3, 3),
}


def cells_of(line: str, shape: Shape) -> list[str] | None:
    """The cells of a line, None if they are too few or too many."""
    found = [cell.strip() for cell in line.split(",")]
    found = [cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell for cell in found]
    return found if shape.least <= len(found) <= shape.most else None


def meaning(cells: list[str], column: TableColumn) -> object:
    """What a wanted cell means, None if it is no such thing."""
    text, kind = cells[column.at], column.kind & 7
    if column.kind & OPTIONAL and not text:
        return UNKNOWN_TIME
    if kind == INTEGER:
        return int(text) if re.fullmatch(r"[0-9]+", text) and int(text) < 2**63 else None
    if kind == SECONDS:
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or float(text) > 4e9:
            return None
        return int((Decimal(text) * 10**9).to_integral_value(ROUND_HALF_UP))
    if kind in (NAME, TWO_NAMES):
        words = cells[column.at : column.at + 2] if kind == TWO_NAMES else [text]
        return ",".join(words) if all(words) and '"' not in "".join(words) else None
    return ord(text[0].upper()) if re.fullmatch("[A-Za-z]+", text) else None


def scanned(text: str, shape: Shape) -> tuple[list[tuple[object, ...]], list[bytes]]:
    """The rows with names as text, and the lines that are none."""
    names, notes = ColumnNames(), Notes()
    rows: list[tuple[object, ...]] = []
    odd: list[bytes] = []

    def is_expected(line: bytes) -> bool:
        odd.append(line)
        return False

    source = MemorySource(text.encode())
    for batch in lines.table_batches(source, shape, names, notes, is_expected):
        known = names.known
        columns = [
            [known[i] for i in values] if column.kind in (NAME, TWO_NAMES) else values.tolist()
            for values, column in zip(batch.columns.values(), shape.columns.values(), strict=True)
        ]
        rows += zip(*columns, strict=True)
    return rows, odd


@pytest.mark.parametrize("name", SHAPES)
@FEW
@given(
    lines=st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=9),
    comma=st.sampled_from([",", ", "]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_rows_are_what_a_readable_twin_makes_of_them(
    name: str, lines: list[list[str]], comma: str, end: str
) -> None:
    shape = SHAPES[name]
    texts = [comma.join(cells) for cells in lines]
    rows: list[tuple[object, ...]] = []
    odd: list[bytes] = []
    for text in texts:
        cells = cells_of(text, shape)
        row = cells and tuple(meaning(cells, column) for column in shape.columns.values())
        if row and None not in row:
            rows.append(row)
        elif text.strip():
            odd.append(text.encode())
    found, refused = scanned("".join(text + end for text in texts), shape)
    assert found == rows
    assert [line.strip() for line in refused] == [line.strip() for line in odd]


def test_columns_from_the_right_of_words_between_blanks() -> None:
    columns = {
        "t": TableColumn(0, SECONDS),
        "n": TableColumn(-2, NAME),
        "x": TableColumn(-1, INTEGER),
    }
    shape = Shape(columns, 4, commas=False, point=",")
    text = "  0,5 a\tnvme0n1   7 \n1.25 Web Content sda 8\r\n2,0 a b\n3,0 a sdb -9\n"
    rows, odd = scanned(text, shape)
    assert rows == [(500_000_000, "nvme0n1", 7), (1_250_000_000, "sda", 8)]
    assert odd == [b"2,0 a b", b"3,0 a sdb -9"]


def test_names_have_an_end(monkeypatch) -> None:
    monkeypatch.setattr(lines, "MAX_NAMES", 3)
    shape = Shape({"n": TableColumn(0, NAME), "x": TableColumn(1, INTEGER)}, 2, 2)
    notes, names = Notes(), ColumnNames()
    text = "".join(f"d{k % 5},{k}\n" for k in range(10))
    batches = list(lines.table_batches(MemorySource(text.encode()), shape, names, notes, bool))
    assert names.known == ["d0", "d1", "d2"]
    assert sum(batch.columns["x"].size for batch in batches) == 6
    assert notes.warnings == ["4 rows of devices beyond the room for names (left out)"]


def table_of(path: Path) -> tuple[pl.DataFrame, int, tuple[str, ...]]:
    capture = read_capture(path)
    return capture.requests.collect(), capture.skipped, capture.warnings


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FORMS)
def test_a_chunk_may_end_at_any_byte(name: str, step: int, tmp_path: Path, monkeypatch) -> None:
    text = FORMS[name].text(requests(6))
    path = tmp_path / "t"
    path.write_text(text)
    whole = table_of(path)
    assert whole[0].height > 0
    most = range(90, len(text) + 1, step * len(text) // 40)
    for size in {*range(1, min(len(text), 90), step), *most}:
        monkeypatch.setattr(lines, "CHUNK", size)
        table, skipped, warnings = table_of(path)
        assert table.equals(whole[0])
        assert (skipped, warnings) == whole[1:]


@pytest.mark.parametrize("name", ["msr-cambridge", "systor17", "bpftrace-csv", "fio-log"])
def test_a_thread_ahead_changes_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    """Chunks are scanned on another thread while the ones before them are used."""
    text = FORMS[name].text(requests(6))
    path = tmp_path / "t"
    path.write_text(text + text.split("\n", 1)[1] * 900)
    monkeypatch.setattr(lines, "CHUNK", 3000)
    threaded = table_of(path)
    monkeypatch.setattr(lines, "ahead", lambda source, items: items)
    alone = table_of(path)
    assert threaded[0].equals(alone[0])
    assert threaded[1:] == alone[1:]


def test_times_of_19_digits_are_read(tmp_path: Path) -> None:
    """bpftrace may print ns since 1970."""
    late = [r._replace(issue=17 * 10**17 + 900 * i) for i, r in enumerate(requests(4))]
    path = tmp_path / "t"
    path.write_text(FORMS["bpftrace-csv"].text(late))
    table, skipped, _ = table_of(path)
    assert skipped == 0
    assert sorted(table["issue_ns"].to_list()) == [0, 900, 1800, 2700]


READ = """
import resource, sys
from nvmesim.capture.requests import table as request_table
from nvmesim.capture.registry import read_capture
request_table.KEEP_ROWS = 50_000
c = read_capture(sys.argv[1])
print(c.rows, c.skipped, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
GROWTH_MIB = 60
"""Chunks in flight, and what the allocator keeps; twenty times the rows would take 200 MiB."""


def peak_of(path: Path) -> tuple[int, ...]:
    """Rows, lines skipped, and the memory in MiB of a process that reads *path*."""
    code = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alibaba", "msr-cambridge", "biosnoop"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    block = FORMS[name].text(requests(20_000))
    peaks = []
    for times in (10, 200):
        path = tmp_path / f"{name}{times}"
        with path.open("w") as file:
            for _ in range(times):
                file.write(block)
        rows, _, peak = peak_of(path)
        assert rows == 20_000 * times
        peaks.append(peak)
    print(f"{name}: {peaks[0]} MiB, with twenty times the rows {peaks[1]} MiB")
    assert peaks[1] - peaks[0] < GROWTH_MIB


@pytest.mark.slow
def test_a_huge_log_with_one_good_line(tmp_path: Path) -> None:
    """A gibibyte of damage takes no more memory than a chunk of it."""
    path = tmp_path / "fio_clat.1.log"
    with path.open("w") as file:
        file.write("".join(f"{n}, 90000, 0, 4096\n" for n in range(40)))
        junk = "damaged, damaged, damaged, damaged\n" * 30_000
        for _ in range((1 << 30) // len(junk)):
            file.write(junk)
    rows, skipped, peak = peak_of(path)
    assert rows == 40
    assert skipped > 30_000_000
    assert peak < 900
