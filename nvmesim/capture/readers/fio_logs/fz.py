"""fio's logs as ``log_store_compressed`` leaves them: zlib streams of samples, here turned to text.

Each stream holds ``struct io_sample`` in the byte order and version of the fio that wrote it; how
long a sample is, is told from its own flags and from whether what it holds is possible.
Source: fio iolog.h, struct io_sample (3.0 to 3.42), iolog.c, flush_gz_chunks and flush_samples.
"""

from __future__ import annotations

import io
import zlib
from typing import BinaryIO, Final

import numpy as np

from nvmesim.capture.text import Source

OFFSET_BIT: Final = 1 << 31
PRIORITY_BIT: Final = 1 << 30
MAXIMUM_BIT: Final = 1 << 29
ISSUE_BIT: Final = 1 << 28
FLAGS: Final = OFFSET_BIT | PRIORITY_BIT | MAXIMUM_BIT | ISSUE_BIT
PIECE: Final = 1 << 20
"""Bytes inflated at a time."""
MAX_BLOCK: Final = 1 << 40
MAX_TIME_MS: Final = 4 * 10**12
LOOKED_AT: Final = 1000
# Words of 8 bytes before the one with flags and priority: time and one value, or two (3.37 on).
VALUES: Final = (1, 2)


class FzLines(io.RawIOBase):
    """The text of the log in *packed*, as ``fio --inflate-log`` prints it."""

    def __init__(self, packed: BinaryIO, source: Source) -> None:
        self._packed, self._source = packed, source
        self._inflater = zlib.decompressobj()
        self._fed = b""
        self._samples = b""
        self._text = memoryview(b"")
        self._n_values = 0
        self._is_inside = False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill *buffer* with the next lines."""
        while not self._text:
            inflated = self._inflate()
            if not inflated:
                if self._samples:
                    raise zlib.error("ends inside a sample")
                return 0
            self._samples += inflated
            self._text = memoryview(self._lines())
        n = min(len(self._text), len(buffer))
        buffer[:n] = self._text[:n]
        self._text = self._text[n:]
        return n

    def _inflate(self) -> bytes:
        """The next bytes of samples, at most `PIECE`; none at the end."""
        while True:
            if self._inflater.eof:
                self._fed = self._inflater.unused_data
                self._inflater = zlib.decompressobj()
            if not self._fed:
                self._fed = self._packed.read(PIECE)
                if not self._fed:
                    if self._is_inside:
                        raise zlib.error("ends inside a stream")
                    return b""
            out = self._inflater.decompress(self._fed, PIECE)
            self._fed = self._inflater.unconsumed_tail
            self._is_inside = not self._inflater.eof
            if out:
                return out

    def _lines(self) -> bytes:
        """Lines of the whole samples at hand."""
        if not self._n_values and len(self._samples) >= 64:
            self._n_values = self._shape()
        if not self._n_values:
            return b""
        words = np.frombuffer(self._samples, "<u8", len(self._samples) // 8)
        flags = int(words[1 + self._n_values] & 0xFFFFFFFF)
        size = _size(self._n_values, flags)
        n = words.size // size
        table = words[: n * size].reshape(n, size)
        self._samples = self._samples[n * size * 8 :]
        return _text(table, self._n_values, flags)

    def _shape(self) -> int:
        """How many values a sample has: what makes every sample at hand possible."""
        words = np.frombuffer(self._samples, "<u8", len(self._samples) // 8)
        for n_values in VALUES:
            at = 1 + n_values
            flags = int(words[at] & 0xFFFFFFFF)
            size = _size(n_values, flags)
            n = min(words.size // size, LOOKED_AT)
            table = words[: n * size].reshape(n, size)
            kinds = table[:, at] & 0xFFFFFFFF
            possible = (kinds & FLAGS == flags & FLAGS) & (kinds & ~np.uint64(FLAGS) <= 6)
            possible &= (table[:, at + 1] <= MAX_BLOCK) & (table[:, 0] <= MAX_TIME_MS)
            if n and possible.all():
                return n_values
        raise self._source.error(
            "is zlib data, and no log of fio 3 on a little-endian machine",
            "expand it with fio --inflate-log",
        )


def _size(n_values: int, flags: int) -> int:
    """Words of a sample: time, values, flags and priority, block size, what the flags add."""
    return 3 + n_values + bool(flags & OFFSET_BIT) + bool(flags & ISSUE_BIT)


def _text(table: np.ndarray, n_values: int, flags: int) -> bytes:
    at = 1 + n_values
    kinds = table[:, at]
    columns = [table[:, 0], table[:, 1]]
    if flags & MAXIMUM_BIT and n_values > 1:
        columns.append(table[:, 2])
    columns += [kinds & 0xFFFFFFFF & ~np.uint64(FLAGS), table[:, at + 1]]
    extra = list(table[:, at + 2 :].T)
    if flags & OFFSET_BIT:
        columns.append(extra.pop(0))
    lists = [column.tolist() for column in columns]
    priority = ((kinds >> np.uint64(32)) & 0xFFFF).tolist()
    # Without the flag fio prints whether the class is that of real time.
    has_class = flags & PRIORITY_BIT
    lists.append([f"0x{p:04x}" if has_class else str(int(p >> 13 == 1)) for p in priority])
    lists += [column.tolist() for column in extra]
    rows = (", ".join(map(str, row)) for row in zip(*lists, strict=True))
    return "".join(f"{row}\n" for row in rows).encode()
