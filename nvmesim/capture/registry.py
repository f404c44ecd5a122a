"""The readers of captures, and reading files with the one whose content it is.

A reader is a module with ``sniff(head) -> bool`` and ``read(source) -> Capture``; it is imported
when a file may be its own. The first reader whose `sniff` accepts wins, and a test holds that no
sample is accepted by two, so the order only saves imports. Readers of installed packages (entry
point `nvmesim.readers`) are asked last: they never change how a known file is read.
"""

from __future__ import annotations

import glob
import importlib
import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import metadata
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from nvmesim.capture.capture import Capture, Captures
from nvmesim.capture.mail import plain_mail
from nvmesim.capture.plausible import plausible
from nvmesim.capture.text import Head, Source, TextSource, shown
from nvmesim.capture.unwrap import plain_fio, strings_inside, strip_prefix
from nvmesim.errors import CaptureError, nearest

PathText = str | PathLike[str]


class Reader(Protocol):
    """Reader of one format."""

    @property
    def name(self) -> str:
        """Name of the format, as `nvmesim trace` shows it."""

    def sniff(self, head: Head) -> bool:
        """True if content that starts with *head* is of this format; never raises."""

    def read(self, source: Source) -> Capture:
        """Read *source*, or raise CaptureError: one line: file, what was found, what would do."""

    def parts(self, path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
        """All files of the capture that *path* is one of, the one to read first; often just it."""


@dataclass(frozen=True)
class LazyReader:
    """A reader whose module is imported when it is first used."""

    name: str
    module: str

    def _load(self) -> ModuleType:
        return importlib.import_module(f"nvmesim.capture.{self.module}")

    def sniff(self, head: Head) -> bool:
        """True if content that starts with *head* is of this format."""
        return bool(self._load().sniff(head))

    def read(self, source: Source) -> Capture:
        """Read *source* or raise CaptureError."""
        capture: Capture = self._load().read(source)
        return capture

    def parts(self, path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
        """All files of the capture that *path* is one of; a module without `parts` has one."""
        find: Callable[[Path, Collection[Path]], tuple[Path, ...]] | None
        find = getattr(self._load(), "parts", None)
        return find(path, asked) if find else (path,)


ENTRY_POINT: Final = "nvmesim.readers"


@dataclass(frozen=True)
class InstalledReader:
    """A reader that another package offers by the entry point `nvmesim.readers`."""

    entry: metadata.EntryPoint

    @cached_property
    def name(self) -> str:
        """Name of the format: the module's FORMAT."""
        return str(getattr(self._module, "FORMAT", self.entry.name))

    @cached_property
    def _module(self) -> Any:
        try:
            module = self.entry.load()
        except Exception as error:
            raise self._error("cannot be imported", error) from error
        missing = [name for name in ("FORMAT", "sniff", "read") if not hasattr(module, name)]
        if missing:
            raise self._error(f"has no {', '.join(missing)}")
        return module

    def _error(self, found: str, error: Exception | None = None) -> CaptureError:
        package = self.entry.dist.name if self.entry.dist else "an unnamed package"
        why = f" ({type(error).__name__}: {shown(error, 120)})" if error else ""
        return CaptureError(
            f"reader {self.entry.value} of {package} {found}{why}; mend or uninstall {package}"
        )

    def sniff(self, head: Head) -> bool:
        """True if content that starts with *head* is of this format; CaptureError if it fails."""
        try:
            return bool(self._module.sniff(head))
        except CaptureError:
            raise
        except Exception as error:
            raise self._error("failed to look at a file", error) from error

    def read(self, source: Source) -> Capture:
        """Read *source*; whatever the module raises is a CaptureError."""
        try:
            capture = self._module.read(source)
        except CaptureError:
            raise
        except Exception as error:
            raise source.error(str(self._error("failed", error))) from error
        if not isinstance(capture, Capture):
            raise source.error(str(self._error("returned no Capture")))
        return capture

    def parts(self, path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
        """Return *path* alone: a capture of one file."""
        return (path,)


@cache
def installed_readers() -> tuple[InstalledReader, ...]:
    """Return the readers of installed packages, in the order of their names."""
    entries = metadata.entry_points(group=ENTRY_POINT)
    return tuple(InstalledReader(entry) for entry in sorted(entries, key=lambda e: e.name))


READERS: Final[tuple[Reader, ...]] = (
    # name of the format, module of nvmesim.capture
    LazyReader("fio-json", "readers.fio.fio_json"),
    LazyReader("fio-terse", "readers.fio.terse_lines"),
    LazyReader("t-io-uring", "readers.fio.t_io_uring"),
    LazyReader("fio-text", "readers.fio.normal_output"),
    LazyReader("fio-log", "readers.fio_logs.log"),
    LazyReader("fio-iolog", "readers.fio_logs.iolog"),
    LazyReader("points", "readers.tables.points"),
    LazyReader("diskspd-xml", "readers.diskspd.diskspd_xml"),
    LazyReader("diskspd-text", "readers.diskspd.diskspd_text"),
    LazyReader("blkparse", "readers.block.blkparse"),
    LazyReader("blktrace", "readers.block.blktrace_binary"),
    LazyReader("tracepoints", "readers.block.tracepoints"),
    LazyReader("biosnoop", "readers.block.biosnoop"),
    LazyReader("biolatency", "readers.block.biolatency"),
    LazyReader("public-trace", "readers.tables.public_traces"),
    LazyReader("iometer", "readers.reports.iometer"),
    LazyReader("iostat", "readers.reports.iostat"),
    LazyReader("sar", "readers.reports.sar"),
    LazyReader("vdbench", "readers.reports.vdbench"),
    LazyReader("yabs", "readers.reports.yabs"),
    LazyReader("crystaldiskmark", "readers.reports.crystaldiskmark"),
    LazyReader("elbencho", "readers.reports.elbencho"),
    LazyReader("spdk", "readers.reports.spdk"),
    LazyReader("ioping", "readers.reports.ioping"),
)


def _accepting(head: Head) -> Reader | None:
    found: Reader | None = next((reader for reader in READERS if reader.sniff(head)), None)
    return found or next((reader for reader in installed_readers() if reader.sniff(head)), None)


def unwrapped(source: Source) -> Source:
    """Return what is inside *source* if another program wrapped a capture, else *source*.

    What mail programs did is undone first. A prefix of a log collector is taken off next, for a
    reader may take it for a name; strings in JSON are looked into only if no reader knows the file
    as it is.
    """
    if plain_mail(source.head.text)[1] is not None:
        letter, warning = plain_mail(source.text())
        source = TextSource(source, letter, (*source.warnings, *filter(None, [warning])))
    head = source.head
    for unwrap in (strip_prefix, plain_fio):
        text = unwrap(head.text)
        if text and _accepting(Head(text.encode("utf-8", "replace"), text, head.whole)):
            return TextSource(source, unwrap(source.text()) or "")
    text = strings_inside(head.text)
    inside = text and Head(text.encode("utf-8", "replace"), text, head.whole)
    if inside and _accepting(head) is None and _accepting(inside):
        return TextSource(source, strings_inside(source.text()) or "")
    return source


def find_reader(source: Source) -> Reader:
    """Return the reader whose format *source* has, judged by its content alone.

    Raises
    ------
    CaptureError
        If the file cannot be opened, is empty or is of no known format.
    """
    if not source.head.raw.strip():
        raise source.error("is empty", "repeat the capture")
    reader = _accepting(source.head)
    if reader is not None:
        return reader
    from nvmesim.capture.retired import OWN_READER, retired_format
    from nvmesim.capture.unrecognised import FORMATS, what_else

    retired = retired_format(source.head)
    if retired is not None:
        found = f"is of {retired.name}, which nvmesim does not read any more"
        raise source.error(found, f"{retired.instead}, or {OWN_READER}")
    start = next((line for line in source.head.text.split("\n") if line.strip()), "")
    _, found, do = what_else(source.head) or (
        "other",
        f"is not a capture that nvmesim knows (it starts {shown(start, 40)!r})",
        f"known formats: {FORMATS}",
    )
    raise source.error(found, do)


def read_capture(path: PathText) -> Capture:
    """Read the one file *path*.

    Raises
    ------
    CaptureError
        One line: the file, what was found, what would do.
    """
    source = unwrapped(Source(Path(path)))
    reader = find_reader(source)
    return guarded_read(reader, source)


def read_captures(
    paths: PathText | Iterable[PathText],
    *,
    progress: Callable[[int, int], None] | None = None,
    refused: list[str] | None = None,
) -> Captures:
    """Read every capture named by *paths*: files, folders (with what is in them) and globs.

    A file named by itself must be readable, unless *refused* is given to take why it is not. In a
    folder or a glob other files may lie about (job files, notes): those that cannot be read are
    listed in ``unread`` with the reason, never passed over in silence. *progress* is told how
    many bytes are read and how many there are.

    Raises
    ------
    CaptureError
        If a named file cannot be read, or there is no capture at all.
    """
    named = [paths] if isinstance(paths, str | PathLike) else list(paths)
    found = _expand(named, refused)
    done: set[Path] = set()
    captures: list[Capture] = []
    unread: list[str] = []
    on_read = None if progress is None else _Progress(list(found), progress).read
    for path, is_named in found.items():
        if path in done:
            continue
        try:
            source = unwrapped(Source(path, on_read=on_read))
            reader = find_reader(source)
            parts = reader.parts(path, found.keys())
            if not isinstance(source, TextSource):
                source = Source(parts[0], parts, on_read)
            captures.append(guarded_read(reader, source))
            done.update(parts)
        except CaptureError as error:
            if not is_named:
                unread.append(str(error))
            elif refused is None:
                raise
            else:
                refused.append(str(error))
    if not captures and not refused:
        raise _nothing(named, unread)
    return Captures(tuple(captures), unread=tuple(unread))


class _Progress:
    """How far all files are read; a file that is read again does not set it back."""

    def __init__(self, paths: list[Path], tell: Callable[[int, int], None]) -> None:
        self._sizes = {path: path.stat().st_size for path in paths if path.is_file()}
        self._done: dict[Path, int] = {}
        self._sum = 0
        self._total = sum(self._sizes.values())
        self._tell = tell

    def read(self, path: Path, position: int) -> None:
        """Take note that *path* is read up to *position*."""
        further = min(position, self._sizes.get(path, 0)) - self._done.get(path, 0)
        if further > 0:
            self._done[path] = self._done.get(path, 0) + further
            self._sum += further
            self._tell(self._sum, self._total)


def _nothing(named: list[PathText], unread: list[str]) -> CaptureError:
    if len(unread) == 1:
        return CaptureError(unread[0])
    where = ", ".join(str(path) for path in named) or "no path given"
    reason = f"none of {len(unread)} files is a capture, the first: {unread[0]}" if unread else ""
    return CaptureError(f"{where}: {reason or 'holds no file'}; give captures of a drive")


def guarded_read(reader: Reader, source: Source) -> Capture:
    """Read *source* with *reader*; what any hostile file can cause is a CaptureError as well."""
    try:
        capture = reader.read(source)
    except (RecursionError, MemoryError, OverflowError) as error:
        what = {RecursionError: "is nested too deeply", MemoryError: "needs too much memory"}
        found = what.get(type(error), "holds a number out of any range")
        raise source.error(f"{found} for a {reader.name} capture", "repeat the capture") from None
    for m in capture.measurements:
        if not all(math.isfinite(r.iops) and r.iops >= 0 for r in m.ops.values()):
            raise source.error(f"{m.label}: IOPS that are no rate", "repeat the capture")
    if source.warnings:
        capture = replace(capture, warnings=(*source.warnings, *capture.warnings))
    return plausible(source, capture)


def _expand(named: list[PathText], refused: list[str] | None) -> dict[Path, bool]:
    """Map every file to whether it was named itself; order: as given, folders in natural order."""
    found: dict[Path, bool] = {}
    for item in named:
        try:
            files = _files_of(item)
        except CaptureError as error:
            if refused is None:
                raise
            refused.append(str(error))
            continue
        for file, is_named in files:
            found[file] = is_named or found.get(file, False)
    return found


def _files_of(item: PathText) -> list[tuple[Path, bool]]:
    """The files that *item* names, and whether it does so itself."""
    path = Path(item)
    if path.is_dir():
        return [(file, False) for file in _files_in(path)]
    if glob.has_magic(str(item)) and not path.exists():
        matches = sorted(map(Path, glob.glob(str(item), recursive=True)), key=_natural)
        if not matches:
            raise CaptureError(f"{item}: no file matches; check the pattern")
        files = ((_files_in(match) if match.is_dir() else [match]) for match in matches)
        return [(file, False) for some in files for file in some]
    _must_exist(path)
    return [(path, True)]


def _must_exist(path: Path) -> None:
    if path.exists():
        return
    if path.is_symlink():
        raise CaptureError(f"{path}: is a link to {path.readlink()}, which is not there")
    folder = path.parent
    if not folder.is_dir():
        raise CaptureError(f"{path}: no such file; there is no folder {folder}")
    names = sorted(e.name for e in folder.iterdir() if not e.name.startswith("."))
    hint = nearest(path.name, names)
    if hint.startswith("known"):
        hint = f"{folder} has {len(names)} others, such as {', '.join(names[:3]) or 'none'}"
    raise CaptureError(f"{path}: no such file; {shown(hint, 120)}")


def _files_in(folder: Path) -> list[Path]:
    """All files below *folder*, in natural order; hidden ones are left out."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    return sorted(files, key=_natural)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key: digits as numbers, so that qd2 comes before qd16."""
    return [
        (0, int(piece), "") if piece.isdecimal() and len(piece) < 19 else (1, 0, piece)
        for piece in re.split(r"([0-9]+)", str(path))
    ]
