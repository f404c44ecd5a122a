"""What a sweep leaves: its table as a file, and until that is whole the points that are finished.

Each answer is a line of ``OUT.parquet.partial``, forced to the disk every second; a last line that
is torn is cut off on resume.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import polars as pl

from nvmesim.errors import InputError
from nvmesim.files import locked, written
from nvmesim.study.sweep.point import PointAnswer, Settings, content_of, fingerprint
from nvmesim.version import __version__

FORMAT: Final = 1
SYNC_S: Final = 1.0
METADATA: Final = "nvmesim"
FORMATS: Final = (".parquet", ".csv")


def check_format(path: Path) -> Path:
    """Return *path*; InputError unless the ending of *path* names a format that is written.

    >>> check_format(Path("points.xlsx"))
    Traceback (most recent call last):
    ...
    nvmesim.errors.InputError: points.xlsx: ends in '.xlsx'; a table is .parquet or .csv
    """
    if path.suffix.lower() not in FORMATS:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise InputError(f"{path}: {found}; a table is .parquet or .csv")
    return path


def write_frame(frame: pl.DataFrame, path: Path, head: Mapping[str, Any] | None = None) -> None:
    """Write *frame* and *head* beside *path* by its ending and rename it, or OSError."""
    suffix = path.suffix.lower()
    with written(path) as beside, beside.open("wb") as file:
        if suffix == ".csv":
            _for_a_spreadsheet(frame).write_csv(file)
        else:
            metadata = None if head is None else {METADATA: json.dumps(head)}
            frame.write_parquet(file, metadata=metadata)
        file.flush()
        os.fsync(file.fileno())


def _for_a_spreadsheet(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts that a spreadsheet would take for a formula (OWASP), behind an apostrophe.

    >>> _for_a_spreadsheet(pl.DataFrame({"a": ["=1+1", "-5", "x"]}))["a"].to_list()
    ["'=1+1", '-5', 'x']
    """
    text = pl.col(pl.String)
    is_formula = text.str.contains(r"^[=+\-@\t\r]") & text.cast(pl.Float64, strict=False).is_null()
    cells = frame.with_columns(pl.when(is_formula).then("'" + text).otherwise(text).name.keep())
    heads = {n: f"'{n}" for n in cells.columns if n.startswith(("=", "+", "-", "@", "\t", "\r"))}
    return cells.rename(heads)


def finished(path: Path, head: Mapping[str, Any]) -> pl.DataFrame | None:
    """Return the finished table in *path*, of the sweep with *head*; a .csv says not which."""
    is_whole = path.is_file() and not path.with_name(f"{path.name}.partial").exists()
    if not is_whole or path.suffix.lower() == ".csv":
        return None
    try:
        found = json.loads(pl.read_parquet_metadata(path).get(METADATA, "null"))
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: is no Parquet file ({' '.join(str(error).split())})") from None
    except ValueError:
        found = None
    check_same(path, found, head)
    return pl.read_parquet(path)


def header(plan: Mapping[str, Any], inputs: str, settings: Settings) -> dict[str, Any]:
    """Return what says which sweep a file is of: program, catalog, scenario, points, settings."""
    return {
        "format": FORMAT, "nvmesim": __version__, "fingerprint": fingerprint(), "plan": plan,
        "inputs": inputs, "settings": settings.plain(),
    }  # fmt: skip


def check_same(file: Path, found: Any, wanted: Mapping[str, Any]) -> None:
    """Raise InputError unless *found*, the header in *file*, is that of the *wanted* sweep."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{file}: was not written by a sweep of this version; choose another -o")
    again = "repeat the command that wrote it, or choose another -o"
    for part, what in (
        ("nvmesim", f"was written by nvmesim {found['nvmesim']}, this is {wanted['nvmesim']}: "
                    "points of two versions do not mix; choose another -o"),
        ("fingerprint", "program or catalog have changed since it was written: old and new points "
                        "do not mix; choose another -o"),
        ("plan", f"sweeps over other values; {again}"),
        ("inputs", f"is of another scenario, or a profile in it has changed; {again}"),
        ("settings", f"was run with other settings; {again}"),
    ):  # fmt: skip
        if content_of(found[part]) != content_of(wanted[part]):
            raise InputError(f"{file}: {what}")


class Store:
    """The finished points of one sweep on their way to *output*."""

    def __init__(self, output: Path, head: Mapping[str, Any], *, resume: bool) -> None:
        self.output, self._head = output, head
        self.partial = output.with_name(f"{output.name}.partial")
        self.answers: dict[int, PointAnswer] = {}
        self._synced = time.monotonic()
        if self.partial.exists() and not resume:
            raise InputError(
                f"{self.partial}: an unfinished sweep is kept there; add --resume to go on with "
                "it, or remove the file"
            )
        self._file: IO[bytes] = open(self.partial, "a+b", buffering=0)  # noqa: SIM115
        try:
            if locked(self._file) is False:
                raise InputError(f"{self.partial}: another sweep is writing it now")
            self._read()
            if not self._file.tell():
                self._write(json.dumps(head))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._file.close()
        except OSError:
            if kind is None:
                raise

    def add(self, answer: PointAnswer) -> None:
        """Keep *answer*; one that is there already stays as it is."""
        if answer.number in self.answers:
            return
        self.answers[answer.number] = answer
        if answer.died:
            return
        self._write(answer.to_text())
        if time.monotonic() - self._synced > SYNC_S:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def finish(self, frame: pl.DataFrame) -> None:
        """Write *frame* to the output, whole or not at all; then the partial file goes."""
        write_frame(frame, self.output, self._head)
        self._file.close()
        self.partial.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        """Append one line, or nothing: a full disk leaves no half of it behind."""
        at = self._file.tell()
        try:
            self._file.write(line.encode() + b"\n")
        except OSError:
            os.truncate(self.partial, at)
            raise

    def _read(self) -> None:
        """Read what is kept, cut off a torn end, and stand behind it."""
        self._file.seek(0)
        whole = 0
        for line in self._file.read().splitlines(keepends=True):
            try:
                found = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                found = None
            if found is None:
                break
            if whole == 0:
                check_same(self.partial, found, self._head)
            else:
                answer = PointAnswer.from_text(line.decode())
                self.answers[answer.number] = answer
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)
