"""The finished table of a sweep as a file: Parquet, CSV or JSON, as its name says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from nvmesim.errors import InputError
from nvmesim.files import written

METADATA: Final = "nvmesim"
FORMATS: Final = (".parquet", ".csv", ".json")


def check_format(path: Path) -> None:
    """Raise InputError unless the ending of *path* names a format that is written.

    >>> check_format(Path("points.parquet"))
    >>> check_format(Path("points.xlsx"))
    Traceback (most recent call last):
    ...
    nvmesim.errors.InputError: points.xlsx: ends in '.xlsx'; a table is .parquet, .csv or .json
    """
    if path.suffix.lower() in FORMATS:
        return
    found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
    raise InputError(f"{path}: {found}; a table is .parquet, .csv or .json")


def write_frame(frame: pl.DataFrame, path: Path, head: Mapping[str, Any] | None = None) -> None:
    """Write *frame* beside *path* in the format of its name and rename it; OSError on a full disk.

    *head* says which sweep it is of; Parquet and JSON carry it, CSV has no place for it. What is
    no file (a pipe) is written to.
    """
    suffix = path.suffix.lower()
    with written(path) as beside, beside.open("wb") as file:
        if suffix == ".csv":
            _for_a_spreadsheet(frame).write_csv(file)
        elif suffix == ".json":
            rows = [json.dumps(row, ensure_ascii=False) for row in frame.to_dicts()]
            first = json.dumps(head, ensure_ascii=False)
            text = f'{{"{METADATA}": {first},\n"rows": [\n' + ",\n".join(rows) + "\n]}\n"
            file.write(text.encode())
        else:
            metadata = None if head is None else {METADATA: json.dumps(head)}
            frame.write_parquet(file, metadata=metadata)
        file.flush()
        os.fsync(file.fileno())


def _for_a_spreadsheet(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts that a spreadsheet would take for a formula, behind an apostrophe; numbers stay.

    The first characters are those of OWASP's "CSV Injection".

    >>> _for_a_spreadsheet(pl.DataFrame({"a": ["=1+1", "-5", "x"]}))["a"].to_list()
    ["'=1+1", '-5', 'x']
    """
    text = pl.col(pl.String)
    is_formula = text.str.contains(r"^[=+\-@\t\r]") & text.cast(pl.Float64, strict=False).is_null()
    cells = frame.with_columns(pl.when(is_formula).then("'" + text).otherwise(text).name.keep())
    heads = {n: f"'{n}" for n in cells.columns if n.startswith(("=", "+", "-", "@", "\t", "\r"))}
    return cells.rename(heads)


def read_header(path: Path) -> Any:
    """Return the header in a finished *path*; None if it has none. CSV never has one."""
    try:
        if path.suffix.lower() == ".json":
            found = json.loads(path.read_bytes())
            return found.get(METADATA) if isinstance(found, dict) else None
        text = pl.read_parquet_metadata(path).get(METADATA)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "Parquet"
        raise InputError(f"{path}: is no {kind} file ({' '.join(str(error).split())})") from None
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None


def read_frame(path: Path) -> pl.DataFrame:
    """Return the table that `write_frame` wrote with a header."""
    if path.suffix.lower() == ".json":
        rows = json.loads(path.read_bytes())["rows"]
        return pl.DataFrame(rows, infer_schema_length=None)
    return pl.read_parquet(path)
