"""A capture file as bytes or text, whatever it was compressed or encoded with; all of it bounded.

gz, zst, xz and bz2 are recognised by their first bytes. Text may be UTF-8 or UTF-16 (PowerShell's
``>``), with or without a byte-order mark, with LF, CRLF or CR line ends: readers see plain LF text.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, cast

from nvmesim.errors import CaptureError
from nvmesim.warning import Warning

HEAD_BYTES: Final = 1 << 16
"""Bytes for a sniffer."""
MAX_TEXT_BYTES: Final = 1 << 28
"""Largest file that is read into memory as a whole; per-request logs are scanned instead."""
EXPANDED_FLOOR_BYTES: Final = 1 << 30
EXPANDED_RATIO: Final = 100
"""A compressed file may expand to floor + ratio x its size: logs reach 20:1, bombs 1000:1."""
ZSTD_WINDOW_BYTES: Final = 1 << 27
"""The zstd tool's own default limit (``--long=27``)."""

_BUFFER_BYTES: Final = 1 << 18
_MAGIC: Final = {
    "gzip": b"\x1f\x8b",
    "zstd": b"\x28\xb5\x2f\xfd",
    "xz": b"\xfd7zXZ\x00",
    "bzip2": b"BZh",
}
_ARCHIVES: Final = {b"PK\x03\x04": "a zip archive", b"7z\xbc\xaf": "a 7z archive"}
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")


def natural(text: object) -> list[int | str]:
    """Sort key that counts: nvme2n1 stands before nvme10n1.

    >>> sorted(["nvme10n1", "nvme2n1"], key=natural)
    ['nvme2n1', 'nvme10n1']
    """
    parts = re.split(r"([0-9]+)", str(text))  # Python converts no number of 5,000 digits
    return [int(part[:4000]) if part.isdecimal() else part for part in parts]


def shown(text: object, limit: int = 60) -> str:
    r"""*text* fit for a one-line message: no control characters, cut to *limit*.

    >>> shown("12,\x00abc\n" * 20, 12)
    '12, abc 12, …'
    """
    clean = _CONTROL.sub(" ", str(text)).strip()
    return clean if len(clean) <= limit else clean[:limit] + "…"


@dataclass(frozen=True)
class Head:
    """The first bytes of an expanded file, and the text they are."""

    raw: bytes
    text: str
    """Decoded, LF line ends, no byte-order mark; undecodable bytes are U+FFFD."""
    whole: bool
    """True if the file ends within the head."""

    @property
    def lines(self) -> list[str]:
        """The complete lines of the head; a last line that the head cuts is left out."""
        lines = self.text.split("\n")
        return lines if self.whole else lines[:-1]


class Source:
    """One file to read; nothing is opened before it is asked for."""

    def __init__(
        self, path: Path, parts: tuple[Path, ...] = (),
        on_read: Callable[[Path, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.on_read = on_read
        """Told how far in the file (bytes, as compressed) reading has come."""
        self.parts = parts or (path,)
        """All files of this capture (the jobs' logs of one fio run), this one among them."""
        self.warnings: tuple[Warning, ...] = ()
        """Changes that were undone before the reader saw the text."""

    def error(self, found: str, do: str = "") -> CaptureError:
        """Return the one-line error for this file: what was *found*, what would *do*."""
        text = f"{self.path}: {found}" + (f"; {do}" if do else "")
        return CaptureError(_CONTROL.sub(" ", text))

    @cached_property
    def compression(self) -> str | None:
        """How the file is compressed (by its first bytes), or None."""
        try:
            mode = self.path.stat().st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
                raise self.error(f"is {kind}", "give a file that holds one capture")
            with self.path.open("rb") as file:
                start = file.read(8)
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror or error})") from None
        for magic, what in _ARCHIVES.items():
            if start.startswith(magic):
                raise self.error(f"is {what}", "unpack it and give the files")
        return next((name for name, magic in _MAGIC.items() if start.startswith(magic)), None)

    def open(self) -> BinaryIO:
        """Open the expanded bytes; reading past the bound on expansion is a CaptureError."""
        kind = self.compression
        try:
            raw: io.RawIOBase = _Watched(self)
            if kind is not None:
                limit = EXPANDED_FLOOR_BYTES + EXPANDED_RATIO * self.path.stat().st_size
                packed = cast(BinaryIO, io.BufferedReader(raw, _BUFFER_BYTES))
                raw = _Expanded(self, packed, _expander(kind, packed, self), limit)
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror or error})") from None
        return cast(BinaryIO, io.BufferedReader(raw, _BUFFER_BYTES))

    @cached_property
    def head(self) -> Head:
        """The first 64 KiB, expanded and decoded."""
        with self.open() as file:
            raw = file.read(HEAD_BYTES + 1)
        whole = len(raw) <= HEAD_BYTES
        raw = raw[:HEAD_BYTES]
        decoder = codecs.getincrementaldecoder(_encoding(raw))("replace")
        return Head(raw, _unix(decoder.decode(raw, final=whole)), whole)

    @cached_property
    def encoding(self) -> str:
        """The Python codec that decodes this file."""
        return _encoding(self.head.raw)

    def raw(self, limit: int = MAX_TEXT_BYTES) -> bytes:
        """All expanded bytes, at most *limit*."""
        if self.head.whole:
            return self.head.raw
        with self.open() as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise self.error(
                f"is larger than {limit >> 20} MiB, too large for a file of results",
                "split it, or give its per-request log",
            )
        return data

    def text(self, limit: int = MAX_TEXT_BYTES) -> str:
        """The whole file as text with LF line ends, at most *limit* bytes of it."""
        if self.head.whole:
            return self.head.text
        return _unix(self.raw(limit).decode(self.encoding, "replace"))


class TextSource(Source):
    """A source whose text was taken out of what another program wrapped it in."""

    def __init__(self, outer: Source, text: str, warnings: tuple[Warning, ...] = ()) -> None:
        super().__init__(outer.path, outer.parts)
        self.warnings = warnings or outer.warnings
        self._data = text.encode("utf-8", "replace")

    @cached_property
    def compression(self) -> str | None:
        """None: the text is plain."""
        return None

    def open(self) -> BinaryIO:
        """Open the bytes of the text."""
        return cast(BinaryIO, io.BytesIO(self._data))


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _encoding(raw: bytes) -> str:
    """Return the codec of *raw*: by its mark, else UTF-16 if every other byte is zero."""
    for bom, name in _BOMS:
        if raw.startswith(bom):
            return name
    even, odd = raw[:4096:2], raw[1:4096:2]
    if odd and 2 * odd.count(0) > len(odd) and not even.count(0):
        return "utf-16-le"
    if even and 2 * even.count(0) > len(even) and not odd.count(0):
        return "utf-16-be"
    return "utf-8"


class _Watched(io.FileIO):
    def __init__(self, source: Source) -> None:
        super().__init__(source.path, "r")
        self._source, self._done = source, 0

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        got = super().readinto(buffer) or 0
        self._done += got
        if self._source.on_read is not None:
            self._source.on_read(self._source.path, self._done)
        return got


class _Expanded(io.RawIOBase):
    """A decompressed stream that stops at a bound and names its file in every error."""

    def __init__(self, source: Source, packed: BinaryIO, inner: BinaryIO, limit: int) -> None:
        self._source, self._packed, self._inner, self._left = source, packed, inner, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._inner.read(len(buffer))
        except Exception as error:
            known = (OSError, EOFError, zlib.error, lzma.LZMAError)
            if not isinstance(error, known) and type(error).__name__ != "ZstdError":
                raise
            kind, why = self._source.compression, shown(error)
            raise self._source.error(
                f"its {kind} data is cut off or damaged ({why})", "copy the file again"
            ) from None
        self._left -= len(data)
        if self._left < 0:
            raise self._source.error(
                f"expands to more than {EXPANDED_RATIO} times its size",
                "expand it yourself if that is right",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        self._packed.close()
        super().close()


def _expander(kind: str, packed: BinaryIO, source: Source) -> BinaryIO:
    if kind == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=packed, mode="rb"))
    if kind == "xz":
        return cast(BinaryIO, lzma.LZMAFile(packed))
    if kind == "bzip2":
        return cast(BinaryIO, bz2.BZ2File(packed))
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    return cast(BinaryIO, decompressor.stream_reader(packed, read_across_frames=True))
