"""The scanner of tables: eight bytes at once, the quick way and the careful one, any chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from nvmesim.capture import lines
from nvmesim.capture.notes import Notes
from nvmesim.capture.readers.block import blkparse, blkparse_kernel, tracepoints
from nvmesim.capture.readers.block import words_kernel as words
from nvmesim.capture.readers.fio_logs import iolog_requests
from nvmesim.capture.readers.fio_logs import log_rows as fio_log_rows
from nvmesim.capture.readers.tables import table_rows
from nvmesim.capture.readers.tables.table_kernel import (
    INTEGER,
    LETTER,
    NAME,
    OPERATION,
    OPTIONAL,
    SECONDS,
    TWO_NAMES,
    scan_table,
)
from nvmesim.capture.readers.tables.table_rows import Column, Names, Shape
from nvmesim.capture.registry import read_capture
from tests.capture import composed
from tests.fuzz.memory import MemorySource

FEW = settings(max_examples=300, deadline=None, derandomize=True)
NEAR_DIGITS = st.lists(st.sampled_from(b"0123456789/:,. \n\x00\xb0\xff"), min_size=8, max_size=40)
CELLS = st.sampled_from(
    (
        *("0", "7", "00012", "4096", "12345678", "123456789", "1234567890123456", "9" * 18),
        *("9" * 19, "9223372036854775807", "9223372036854775808", "-5", "+5", "1e3", "", " "),
        *("1.5", "0.25", "1456095145.123456789", "3.0000000009", "4000000000.5", "5000000000.5"),
        *(".5", "5.", "R", "W", "Read", "Write", "FWS", "N", "r2", "srv", "a-longer-name", "ab cd"),
        *('"hm"', "\x0b", "é"),
    )
)
SHAPES = {
    "numbers": Shape({"a": Column(0, INTEGER), "b": Column(2, SECONDS)}, 3, 3),
    "words": Shape({"a": Column(0, LETTER), "b": Column(1, NAME), "c": Column(2, OPERATION)}, 3, 3),
    "pairs": Shape({"a": Column(0, TWO_NAMES), "b": Column(2, INTEGER)}, 3, 3),
    "last": Shape({"a": Column(1, TWO_NAMES), "b": Column(0, INTEGER | OPTIONAL)}, 3, 3),
}


def words_at(data: bytes) -> np.ndarray:
    return words.words_of(np.frombuffer(data, np.uint8).copy())


@FEW
@given(NEAR_DIGITS)
def test_digits_of_eight_bytes(text: list[int]) -> None:
    data = bytes(text)[:8]
    count = next((i for i, byte in enumerate(data) if not 48 <= byte <= 57), 8)
    with np.errstate(over="ignore"):
        found = words.digits(words_at(data)[0])
    assert found == (int(data[:count] or b"0"), count)


@FEW
@given(NEAR_DIGITS, st.integers(0, 22))
def test_a_number_is_read_whole_or_not_at_all(text: list[int], digits: int) -> None:
    data = b"9" * digits + bytes(text)
    count = next((i for i, byte in enumerate(data) if not 48 <= byte <= 57), len(data))
    value = int(data[:count] or b"-1")
    with np.errstate(over="ignore"):
        found, behind = words.whole_number(words_at(data + b"," * 8), 0)
    assert found == (value if value < 2**63 and count <= 19 else -1)
    assert behind == count


@FEW
@given(NEAR_DIGITS)
def test_billionths(text: list[int]) -> None:
    data = bytes(text)
    count = next((i for i, byte in enumerate(data) if not 48 <= byte <= 57), len(data))
    padded = np.frombuffer(data + b"," * 8, np.uint8).copy()
    with np.errstate(over="ignore"):
        found, behind = words.billionths(padded, words.words_of(padded), 0)
    assert found == (int(data[:count][:9].ljust(9, b"0")) if count else -1)
    assert behind == count


def test_no_words_in_less_than_eight_bytes() -> None:
    assert words_at(b"1234567").size == 0


def scanned(text: str, shape: Shape) -> tuple[list[tuple[object, ...]], list[bytes]]:
    """The rows with names as text, and the lines that are none."""
    names, notes = Names(), Notes()
    rows: list[tuple[object, ...]] = []
    odd: list[bytes] = []

    def is_expected(line: bytes) -> bool:
        odd.append(line)
        return False

    source = MemorySource(text.encode())
    for batch in table_rows.table_batches(source, shape, names, notes, is_expected):
        known = names.listed(batch.n_names)
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
def test_the_quick_way_reads_what_the_careful_one_reads(
    name: str, lines: list[list[str]], comma: str, end: str
) -> None:
    text = "".join(comma.join(cells) + end for cells in lines)
    quick = scanned(text, SHAPES[name])
    with patch.object(Shape, "slots", lambda shape: np.empty(0, np.int64)):
        careful = scanned(text, SHAPES[name])
    assert quick == careful


def sample(name: str) -> str:
    if name == "bpftrace-csv":
        return "ts_ns,ev,dev_major,dev_minor,sector,nr_sector,rwbs\n" + "".join(
            f"{1700000000000000000 + 900 * i},{letter},259,0,{8 * i},8,{'WS' if i % 2 else 'R'}\n"
            for i in range(4)
            for letter in "DC"
        )
    if name == "fio-log":
        return "".join(f"{i}, {80000 + i}, {i % 2}, 4096, {4096 * i}, 0\n" for i in range(9))
    if name == "iolog":
        return "fio version 3 iolog\n0 /dev/a add\n" + "".join(
            f"{100 * i} /dev/a {'write' if i % 2 else 'read'} {4096 * i} 4096\n" for i in range(7)
        )
    if name == "perf-script":
        return "".join(
            f"fio 9 [001] 57.{900 * i:06d}: block:block_rq_{what}: 259,0 R {n}() {8 * i} + 8 [0]\n"
            for i in range(3)
            for what, n in (("issue", "4096 "), ("complete", ""))
        )
    if name == "blkparse":
        return "".join(
            f"259,0    1 {2 * i:8} {i:5}.{k * 10**8:09d}   372  {letter}   R {8 * i} + 8 {tail}\n"
            for i in range(3)
            for k, (letter, tail) in enumerate((("D", "[fio]"), ("C", "[0]")))
        )
    text: str = getattr(composed, name)(6)
    return text


def table_of(path: Path) -> tuple[pl.DataFrame, int, tuple[str, ...]]:
    capture = read_capture(path)
    assert capture.requests is not None
    return capture.requests.collect(), capture.skipped, capture.warnings


SAMPLES = ["msr", "alibaba", "tencent", "k5cloud", "systor", "spc", "bpftrace-csv", "fio-log"]
SAMPLES += ["iolog", "perf-script", "blkparse", "biosnoop", "xperf"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_chunk_may_end_at_any_byte(name: str, tmp_path: Path, monkeypatch) -> None:
    text = sample(name)
    path = tmp_path / "t"
    path.write_text(text)
    whole = table_of(path)
    assert whole[0].height > 0
    for size in {*range(1, min(len(text), 90)), *range(90, len(text) + 1, len(text) // 40)}:

        def cut(source: MemorySource, _: int = 0, size: int = size) -> Iterator[np.ndarray]:
            return lines._chunks(source, size)

        for module in (blkparse, iolog_requests, fio_log_rows, lines, table_rows, tracepoints):
            monkeypatch.setattr(module, "chunks", cut)
        table, skipped, warnings = table_of(path)
        if name == "xperf":  # its frames are sorted one by one: depths at a border may be lower
            table, other = table.drop("depth"), whole[0].drop("depth")
            assert table.sort(table.columns).equals(other.sort(table.columns))
        else:
            assert table.equals(whole[0])
        assert (skipped, warnings) == whole[1:]


@pytest.mark.parametrize("name", ["msr", "systor", "bpftrace-csv", "fio-log"])
def test_a_thread_ahead_changes_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    """Chunks are scanned on another thread while the ones before them are used."""
    text = sample(name)
    path = tmp_path / "t"
    path.write_text(text + text.split("\n", 1)[1] * 900)
    cut = lines.chunks
    for module in (fio_log_rows, table_rows):
        monkeypatch.setattr(module, "chunks", lambda source: cut(source, 3000))
    threaded = table_of(path)
    for module in (fio_log_rows, table_rows):
        monkeypatch.setattr(module, "ahead", lambda source, items: items)
    alone = table_of(path)
    assert threaded[0].equals(alone[0])
    assert threaded[1:] == alone[1:]


def test_times_of_19_digits_are_read(tmp_path: Path) -> None:
    """bpftrace may print ns since 1970."""
    path = tmp_path / "t"
    path.write_text(sample("bpftrace-csv"))
    table, skipped, _ = table_of(path)
    assert skipped == 0
    assert table["issue_ns"].to_list() == [0, 900, 1800, 2700]


def test_what_is_kept_on_disk_is_of_all_the_files(tmp_path: Path, monkeypatch) -> None:
    """A function whose helpers changed is compiled again: Numba looks at its own file only."""
    copies = [tmp_path / f"{i}.py" for i, _ in enumerate(blkparse_kernel.kernel_files())]
    for copy, path in zip(copies, blkparse_kernel.kernel_files(), strict=True):
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(blkparse_kernel, "kernel_files", lambda: copies)
    sources = blkparse_kernel.sources.__wrapped__
    before = sources()
    assert before == blkparse_kernel.sources()
    for path in copies:
        text = path.read_bytes()
        path.write_bytes(text + b"#\n")
        assert sources() != before, path.name
        path.write_bytes(text)
    if not config.DISABLE_JIT:
        assert scan_table._cache._sources() == before


def test_every_compiled_function_is_in_the_key_of_its_code() -> None:
    """Else code on disk would be used again after a change of what it calls."""
    room = Path(blkparse_kernel.__file__).parents[2]
    using = {p for p in room.rglob("*.py") if "@compiled" in p.read_text("utf-8")}
    assert using
    assert using <= set(blkparse_kernel.kernel_files())
