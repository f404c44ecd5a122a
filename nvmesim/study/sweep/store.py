"""Finished points of a sweep, beside its output: a line of JSON each, kept through kill -9.

``OUT.parquet.partial`` starts with a line that says which sweep it belongs to. Each answer is one
line more, handed to the system at once and forced to the disk every second, so that a killed
process loses nothing finished and a power cut a second. A last line that is torn is cut off on
resume. When the sweep is complete the table takes its place: written beside, then renamed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import polars as pl

from nvmesim.errors import InputError
from nvmesim.study.sweep.content import content_of, fingerprint
from nvmesim.study.sweep.output import write_frame
from nvmesim.study.sweep.point import PointAnswer
from nvmesim.version import __version__

FORMAT: Final = 1
SYNC_S: Final = 1.0


def header(plan: Mapping[str, Any], inputs: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says which sweep a file is of: program, catalog, scenario, points, settings."""
    return {
        "format": FORMAT,
        "nvmesim": __version__,
        "fingerprint": fingerprint(),
        "plan": plan,
        "inputs": inputs,
        "settings": dict(settings),
    }


def check_same(file: Path, found: Any, wanted: Mapping[str, Any]) -> None:
    """Raise InputError unless *found*, the header in *file*, is that of the *wanted* sweep."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{file}: was not written by a sweep of this version; choose another -o")
    if found["nvmesim"] != wanted["nvmesim"]:
        raise InputError(
            f"{file}: was written by nvmesim {found['nvmesim']}, this is {wanted['nvmesim']}: "
            "points of two versions do not mix; choose another -o"
        )
    if found["fingerprint"] != wanted["fingerprint"]:
        raise InputError(
            f"{file}: program or catalog have changed since it was written: old and new points do "
            "not mix; choose another -o"
        )
    for part, what in (
        ("plan", "sweeps over other values"),
        ("inputs", "is of another scenario, or a profile in it has changed"),
        ("settings", "was run with other settings"),
    ):
        if content_of(found[part]) != content_of(wanted[part]):
            raise InputError(
                f"{file}: {what}; repeat the command that wrote it, or choose another -o"
            )


class Store:
    """The finished points of one sweep on their way to *output*."""

    def __init__(self, output: Path, head: Mapping[str, Any], *, resume: bool) -> None:
        self.output = output
        self.partial = output.with_name(f"{output.name}.partial")
        self.answers: dict[int, PointAnswer] = {}
        self._synced = time.monotonic()
        if self.partial.exists() and not resume:
            raise InputError(
                f"{self.partial}: an unfinished sweep is kept there; add --resume to go on with "
                "it, or remove the file"
            )
        self._file = self._open(head)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
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

    def finish(self, frame: pl.DataFrame, head: Mapping[str, Any]) -> None:
        """Write *frame* to the output, whole or not at all; then the partial file goes."""
        write_frame(frame, self.output, head)
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

    def _open(self, head: Mapping[str, Any]) -> IO[bytes]:
        """Open the partial file to append, after what it holds already has been read."""
        file: IO[bytes] = open(self.partial, "a+b", buffering=0)  # noqa: SIM115
        try:
            _lock(file, self.partial)
            self._read(file, head)
            if not file.tell():
                self._file = file
                self._write(json.dumps(head))
        except BaseException:
            file.close()
            raise
        return file

    def _read(self, file: IO[bytes], head: Mapping[str, Any]) -> None:
        file.seek(0)
        data = file.read()
        whole = 0
        for number, line in enumerate(data.splitlines(keepends=True)):
            try:
                found = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                found = None
            if number == 0 and whole == 0 and found is not None:
                check_same(self.partial, found, head)
            elif found is not None:
                answer = PointAnswer.from_text(line.decode())
                self.answers[answer.number] = answer
            else:
                break
            whole += len(line)
        file.truncate(whole)
        file.seek(0, os.SEEK_END)


def _lock(file: IO[bytes], path: Path) -> None:
    """Refuse to write where another sweep writes; where there are no locks, there is no check."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{path}: another sweep is writing it now") from None
    except OSError:
        return  # a file system without locks
