"""Checked access to parsed tables: a number is finite, not negative and plausible, or an error.

Every message names the place in the file (``jobs[0].read.clat_ns.mean``) and what was found there.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.capture.text import Source, shown
from nvmesim.errors import CaptureError

MAX_COUNT: Final = 2**63 - 1
"""Counts and bytes go into int64 arrays."""
MAX_LATENCY_S: Final = 1e6
"""11 days; fio and DiskSpd runs are shorter, so a longer latency is a damaged number."""
MAX_RATE: Final = 1e13
"""Requests or bytes per second of one host: ten thousand times the largest published."""
_TAG: Final = re.compile(r"<(/?)[A-Za-z][^<>]*?(/?)>")


@dataclass(frozen=True)
class Fields:
    """A table in *source*, at the place *where*."""

    source: Source
    where: str
    table: Mapping[str, Any]

    def at(self, key: str) -> str:
        """Name the place of *key* for a message."""
        return f"{self.where}.{key}" if self.where else key

    def number(self, key: str, *, most: float = MAX_COUNT) -> float | None:
        """Return the number at *key*, None if there is none; CaptureError if it cannot be true."""
        value = self.table.get(key)
        if value is None:
            return None
        return checked(self.source, self.at(key), value, most=most)

    def count(self, key: str) -> int | None:
        """Return the whole number at *key*, exactly; None if there is none."""
        value = self.table.get(key)
        if type(value) is int and 0 <= value <= MAX_COUNT:
            return value
        number = self.number(key)
        return None if number is None else round(number)

    def text(self, key: str) -> str | None:
        """Return the text at *key*; None if there is none or it is something else."""
        value = self.table.get(key)
        return value if isinstance(value, str) else None

    def fields(self, key: str) -> Fields | None:
        """Return the table at *key*; None if there is none; CaptureError if it is not a table."""
        value = self.table.get(key)
        return None if value is None else self._table(self.at(key), value)

    def rows(self, key: str) -> Iterator[Fields]:
        """Yield the tables of the list at *key*, none if it is missing."""
        rows = self.table.get(key)
        if rows is not None and not isinstance(rows, list):
            raise self._no(self.at(key), rows, "list")
        for index, row in enumerate(rows or ()):
            yield self._table(f"{self.at(key)}[{index}]", row)

    def _table(self, where: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise self._no(where, value, "table")
        return Fields(self.source, where, value)

    def _no(self, where: str, value: object, kind: str) -> CaptureError:
        return self.source.error(
            f"{where} is {shown(value, 30)!r}, not a {kind}", "repeat the capture"
        )


def checked(
    source: Source, where: str, value: object, *, most: float, do: str = "repeat the capture"
) -> float:
    """Return *value* as a float between 0 and *most*; CaptureError names *where* it is otherwise.

    *do* is the advice at the end of the message. Texts that hold a number are accepted: some tools
    write numbers quoted.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
    except ValueError:
        raise source.error(f"{where} is {shown(value, 30)!r}, not a number", do) from None
    except OverflowError:
        number = math.inf
    if 0 <= number <= most:
        return number
    if math.isnan(number):
        raise source.error(f"{where} is NaN", do)
    if number < 0:
        raise source.error(f"{where} is {shown(value, 30)}, negative", do)
    raise source.error(f"{where} is {shown(value, 30)}, more than {most:.3g} and not plausible", do)


def parsed_xml(source: Source, text: str, *, most: int, do: str) -> ET.Element:
    """Return the root of *text*; CaptureError if it is no XML, or nested deeper than *most*."""
    depth = deepest = 0
    for tag in _TAG.finditer(text):
        depth += -1 if tag[1] else 0 if tag[2] else 1
        deepest = max(deepest, depth)
    if deepest > most:
        raise source.error("is nested too deeply", do)
    try:
        return ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise source.error(f"is cut or broken XML ({shown(error)})", do) from None
