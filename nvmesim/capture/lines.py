"""A capture as large arrays of bytes that hold whole lines: what the vectorised readers eat."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Final, TypeVar

import numpy as np
import polars as pl

from nvmesim.capture.notes import Notes
from nvmesim.capture.text import Source

CHUNK: Final = 4 << 20
"""Bytes read at a time: some 60,000 events; more is slower, for it leaves the cache."""
NEWLINE: Final = 10

LONGEST_LINE: Final = 64 << 20


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
        read = _Recoder(file, source.encoding)
        carried = np.empty(0, np.uint8)
        while True:
            data = np.empty(carried.size + size, np.uint8)
            data[: carried.size] = carried
            got = read.into(memoryview(data.data)[carried.size :])
            stop = carried.size + got
            if got == 0:
                break
            cut = whole_lines(data[:stop])
            carried = data[cut:stop]
            if carried.size > LONGEST_LINE:
                raise source.error("has a line longer than 64 MiB", "repeat the capture")
            if cut:
                yield data[:cut]
        if carried.size:
            yield carried


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


class _Recoder:
    """A file read as UTF-8 without a byte-order mark."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        plain = encoding == "utf-8"
        self._decoder = None if plain else codecs.getincrementaldecoder(encoding)("replace")
        self._left = memoryview(b"")
        self._ended = False

    def into(self, target: memoryview) -> int:
        """Fill *target*, wholly unless the file ends; bytes written."""
        done = 0
        while done < len(target):
            got = self._some(target[done:])
            if got == 0:
                break
            done += got
        return done

    def _some(self, target: memoryview) -> int:
        if self._decoder is None:
            return self._file.readinto(target) or 0  # type: ignore[attr-defined]
        while not self._left and not self._ended:
            data = self._file.read(1 << 20)
            self._ended = not data
            text = self._decoder.decode(data, final=self._ended)
            self._left = memoryview(text.encode("utf-8", "replace"))
        n = min(len(self._left), len(target))
        target[:n] = self._left[:n]
        self._left = self._left[n:]
        return n


def line_frames(source: Source, notes: Notes) -> Iterator[pl.DataFrame]:
    """Yield the lines as frames with one String column ``line``, without their ends.

    A last line without its end may be cut within a number: it counts as skipped in *notes*.
    """
    for data in chunks(source):
        raw = data.tobytes()
        if not raw.endswith(b"\n"):
            raw = raw[: raw.rfind(b"\n") + 1]
            notes.skipped += 1
        if raw:
            yield line_frame(raw)


def line_frame(data: bytes) -> pl.DataFrame:
    r"""The lines of *data* as a frame with one String column ``line``; empty lines are empty.

    >>> line_frame(b"a b\r\n\nc").to_series().to_list()
    ['a b', '', 'c']
    """
    text = data.decode("utf-8", "replace").removesuffix("\n")
    lines = pl.Series("line", [text], dtype=pl.String).str.split("\n").explode()
    return lines.str.strip_chars_end("\r").to_frame()
