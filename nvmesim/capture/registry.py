"""The readers of captures, and reading files with the one whose content it is.

A reader is a module with ``sniff(head) -> bool`` and ``read(source) -> Capture``; it is imported
when a file may be its own. The first reader whose `sniff` accepts wins, and a test holds that no
sample is accepted by two, so the order only saves imports. Readers of installed packages (entry
point `nvmesim.readers`) are asked last: they never change how a known file is read.
"""

import glob
import importlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nvmesim.capture.capture import Capture, Captures
from nvmesim.capture.caveats import plausible
from nvmesim.capture.text import Head, Source, TextSource, natural, shown
from nvmesim.capture.unrecognised import plain_fio, plain_mail, strip_prefix
from nvmesim.errors import CaptureError, nearest
from nvmesim.warning import Warning

PathText = str | PathLike[str]


ENTRY_POINT: Final = "nvmesim.readers"
UNREAD: Final = "not-read"
"""Code of the warning about a file that no reader could read; it names the file."""


@dataclass(frozen=True)
class Reader:
    """A reader whose module is imported when it is first used."""

    name: str
    """Name of the format, as `nvmesim trace` shows it."""
    module: str

    def _load(self) -> Any:
        module = importlib.import_module(f"nvmesim.capture.readers.{self.module}")
        return getattr(module, "REPORTS", {}).get(self.name, module)

    def sniff(self, head: Head) -> bool:
        """True if content that starts with *head* is of this format; never raises."""
        return bool(self._load().sniff(head))

    def read(self, source: Source) -> Capture:
        """Read *source*, or raise CaptureError: one line: file, what was found, what would do."""
        capture: Capture = self._load().read(source)
        return capture

    def parts(self, path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
        """All files of the capture that *path* is one of, the one to read first; often just it."""
        module = self._load()
        found: tuple[Path, ...] = module.parts(path, asked) if hasattr(module, "parts") else (path,)
        return found


@dataclass(frozen=True)
class InstalledReader(Reader):
    """A reader that another package offers by the entry point; what it raises names that package.

    That is a CaptureError, whatever it was.
    """

    package: str = ""

    def _load(self) -> Any:
        with self._blamed("cannot be imported"):
            module = importlib.import_module(self.module)
            attrgetter("FORMAT", "sniff", "read")(module)
        return module

    def sniff(self, head: Head) -> bool:
        """As of any reader, but for what it raises."""
        with self._blamed("failed to look at a file"):
            return super().sniff(head)

    def read(self, source: Source) -> Capture:
        """As of any reader, but for what it returns."""
        with self._blamed("failed", f"{source.path}: "):
            capture = super().read(source)
            if not isinstance(capture, Capture):
                raise TypeError("it returned no Capture")
        return capture

    @contextmanager
    def _blamed(self, what: str, place: str = "") -> Iterator[None]:
        try:
            yield
        except CaptureError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {shown(error, 120)}"
            raise CaptureError(
                f"{place}reader {self.module} of {self.package} {what} ({why}); mend or uninstall "
                f"{self.package}"
            ) from error


@cache
def installed_readers() -> tuple[Reader, ...]:
    """Return the readers of installed packages, in the order of their names."""
    return tuple(
        InstalledReader(e.name, e.value, e.dist.name if e.dist else "an unnamed package")
        for e in sorted(metadata.entry_points(group=ENTRY_POINT), key=lambda entry: entry.name)
    )


READERS: Final[tuple[Reader, ...]] = (
    # name of the format, module of nvmesim.capture.readers
    Reader("fio-json", "fio.fio_json"),
    Reader("fio-terse", "fio.terse_lines"),
    Reader("t-io-uring", "fio.t_io_uring"),
    Reader("fio-text", "fio.normal_output"),
    Reader("fio-log", "fio.fio_log"),
    Reader("fio-iolog", "fio.log_rows"),
    Reader("points", "points_table"),
    Reader("diskspd-xml", "diskspd_xml"),
    Reader("diskspd-text", "diskspd_text"),
    Reader("biosnoop", "public_traces"),
    Reader("biolatency", "biolatency"),
    Reader("public-trace", "public_traces"),
    Reader("iometer", "iometer"),
    Reader("iostat", "iostat"),
    Reader("sar", "iostat"),
    Reader("vdbench", "generators"),
    Reader("yabs", "printed"),
    Reader("crystaldiskmark", "printed"),
    Reader("elbencho", "generators"),
    Reader("ezfio", "generators"),
    Reader("spdk", "printed"),
    Reader("ioping", "printed"),
    Reader("blkparse", "blkparse"),
    Reader("blktrace", "blktrace_binary"),
    Reader("tracepoints", "blkparse"),
)


def _accepting(head: Head) -> Reader | None:
    found = next((reader for reader in READERS if reader.sniff(head)), None)
    return found or next((reader for reader in installed_readers() if reader.sniff(head)), None)


def unwrapped(source: Source) -> Source:
    """Return what is inside *source* if another program wrapped a capture, else *source*.

    What mail programs did is undone first. A prefix of a log collector is taken off next, for a
    reader may take it for a name.
    """
    if plain_mail(source.head.text)[1] is not None:
        letter, warning = plain_mail(source.text())
        source = TextSource(source, letter, (*source.warnings, *filter(None, [warning])))
    head = source.head
    for unwrap in (strip_prefix, plain_fio):
        text = unwrap(head.text)
        if text and _accepting(Head(text.encode("utf-8", "replace"), text, head.whole)):
            return TextSource(source, unwrap(source.text()) or "")
    if "|" in head.text and _accepting(head) is None:
        from nvmesim.capture.markdown import points_of_markdown

        if (found := points_of_markdown(source.text())) is not None:
            return TextSource(source, found[0], (*source.warnings, *filter(None, found[1:])))
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
    from nvmesim.capture.unrecognised import FORMATS, what_else

    known = what_else(source.head)
    if known is not None:
        raise source.error(known.text, known.instead)
    start = next((line for line in source.head.text.split("\n") if line.strip()), "")
    raise source.error(
        f"is not a capture that nvmesim knows (it starts {shown(start, 40)!r})",
        f"known formats: {FORMATS}",
    )


def read_capture(path: PathText) -> Capture:
    """Read the one file *path*.

    Raises
    ------
    CaptureError
        One line: the file, what was found, what would do.
    """
    source = unwrapped(Source(Path(path)))
    return guarded_read(find_reader(source), source)


def read_captures(
    paths: PathText | Iterable[PathText], *, progress: Callable[[int, int], None] | None = None,
    refused: list[str] | None = None,
) -> Captures:  # fmt: skip
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
    unread: list[Warning] = []
    on_read = None if progress is None else _tells(found, progress)
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
                unread.append(Warning(UNREAD, str(error), path.name))
            elif refused is None:
                raise
            else:
                refused.append(str(error))
    if not captures and not refused:
        raise _nothing(named, unread)
    return Captures(tuple(captures), unread=tuple(unread))


def _tells(paths: Iterable[Path], tell: Callable[[int, int], None]) -> Callable[[Path, int], None]:
    """Return what is told how far a file is read; one that is read again does not set it back."""
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    done = dict.fromkeys(sizes, 0)

    def read(path: Path, position: int) -> None:
        before = done.get(path, 0)
        done[path] = max(before, min(position, sizes.get(path, 0)))
        if done[path] > before:
            tell(sum(done.values()), sum(sizes.values()))

    return read


def _nothing(named: list[PathText], unread: Sequence[str]) -> CaptureError:
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
        path = Path(item)
        if path.is_dir():
            files = _files_in(path)
        elif glob.has_magic(str(item)) and not path.exists():
            matches = sorted(map(Path, glob.glob(str(item), recursive=True)), key=natural)
            files = [f for m in matches for f in (_files_in(m) if m.is_dir() else [m])]
        else:
            files = [path] if path.exists() else []
        problem = "" if files or path.is_dir() else _absence(path)
        if problem and refused is None:
            raise CaptureError(problem)
        if problem and refused is not None:
            refused.append(problem)
        for file in files:
            found[file] = file is path or found.get(file, False)
    return found


def _absence(path: Path) -> str:
    if glob.has_magic(str(path)):
        return f"{path}: no file matches; check the pattern"
    if path.is_symlink():
        return f"{path}: is a link to {path.readlink()}, which is not there"
    folder = path.parent
    if not folder.is_dir():
        return f"{path}: no such file; there is no folder {folder}"
    names = sorted(e.name for e in folder.iterdir() if not e.name.startswith("."))
    hint = nearest(path.name, names)
    if hint.startswith("known"):
        hint = f"{folder} has {len(names)} others, such as {', '.join(names[:3]) or 'none'}"
    return f"{path}: no such file; {shown(hint, 120)}"


def _files_in(folder: Path) -> list[Path]:
    """All files below *folder*, in natural order; hidden ones are left out."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    return sorted(files, key=natural)
