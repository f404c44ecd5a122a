"""A capture as large arrays of bytes that hold whole lines: what the vectorised readers eat."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO, Final, TypeVar

import numpy as np
import polars as pl

from nvmesim.capture.text import Source
from nvmesim.warning import Warning

CHUNK: Final = 4 << 20
"""Bytes read at a time: some 60,000 events; more is slower, for it leaves the cache."""
NEWLINE: Final = 10

LONGEST_LINE: Final = 64 << 20


OTHER_COMMANDS: Final = "other-commands"
STEPS_BACK: Final = "clock-steps-back"  # codes of warnings


@dataclass
class Notes:
    """Counts and warnings of one file; filled while it is read."""

    skipped: int = 0
    warnings: list[str] = field(default_factory=list)

    def say(self, count: int, code: str, text: str) -> None:
        """Add a warning that starts with *count*, if there is anything to count."""
        if count:
            self.warnings.append(Warning(code, f"{count} {text}"))


def chunks(source: Source, size: int = CHUNK) -> Iterator[np.ndarray]:
    """Yield uint8 arrays of whole lines in UTF-8; only the last may lack its newline.

    Line ends stay as they are (LF or CRLF). A line longer than *size* makes a longer array,
    one longer than 64 MiB a CaptureError. A compressed file is expanded a chunk ahead.
    """
    found = _chunks(source, size)
    return found if source.compression is None else ahead(source, found)


T = TypeVar("T")


def ahead(source: Source, items: Iterator[T]) -> Iterator[T]:
    """Yield *items*, made of *source*; the next one is made on another thread meanwhile."""
    if source.head.whole:  # one item is not worth a thread
        yield from items
        return
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def _chunks(source: Source, size: int) -> Iterator[np.ndarray]:
    with source.open() as file:
        read = _reads_utf8(file, source.encoding)
        carried = np.empty(0, np.uint8)
        while True:
            data = np.empty(carried.size + size, np.uint8)
            data[: carried.size] = carried
            stop = carried.size
            while stop < data.size and (got := read(memoryview(data.data)[stop:])):
                stop += got
            if stop == carried.size:
                break
            cut = whole_lines(data[:stop])
            carried = data[cut:stop]
            if carried.size > LONGEST_LINE:
                raise source.error("has a line longer than 64 MiB", "repeat the capture")
            if cut:
                yield data[:cut]
        if carried.size:
            yield carried


def _reads_utf8(file: BinaryIO, encoding: str) -> Callable[[memoryview], int]:
    """Return what fills a part of its argument from *file*, as UTF-8; 0 bytes at the end."""
    if encoding == "utf-8":
        # typeshed's BinaryIO lacks readinto, which every binary file of io and gzip has.
        return lambda target: file.readinto(target) or 0  # type: ignore[attr-defined]
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    left = memoryview(b"")
    is_over = False

    def read(target: memoryview) -> int:
        nonlocal left, is_over
        while not left and not is_over:
            data = file.read(1 << 20)
            is_over = not data
            left = memoryview(decoder.decode(data, final=is_over).encode("utf-8", "replace"))
        n = min(len(left), len(target))
        target[:n], left = left[:n], left[n:]
        return n

    return read


def whole_lines(data: np.ndarray) -> int:
    """Return the bytes of *data* up to and with its last newline; 0 if there is none."""
    step, stop = 1 << 12, data.size
    while stop > 0:
        first = max(stop - step, 0)
        found = np.flatnonzero(data[first:stop] == NEWLINE)
        if found.size:
            return first + int(found[-1]) + 1
        stop, step = first, step * 2
    return 0


def line_frames(source: Source, notes: Notes) -> Iterator[pl.DataFrame]:
    """Yield the lines as frames with one String column ``line``, without their ends (LF or CRLF).

    A last line without its end may be cut within a number: it counts as skipped in *notes*.
    """
    for data in chunks(source):
        raw = data.tobytes()
        if not raw.endswith(b"\n"):
            raw = raw[: raw.rfind(b"\n") + 1]
            notes.skipped += 1
        if raw:
            text = raw.decode("utf-8", "replace").removesuffix("\n")
            lines = pl.Series("line", [text], dtype=pl.String).str.split("\n").explode()
            yield lines.str.strip_chars_end("\r").to_frame()
