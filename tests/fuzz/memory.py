"""A capture in memory: what a fuzzer can read a thousand times a second without a disk."""

import io
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from nvmesim.capture.text import Source

NOWHERE = Path("/nonexistent/fuzz")


class MemorySource(Source):
    """A source whose expanded bytes are given; its folder does not exist."""

    def __init__(self, data: bytes, name: str = "case") -> None:
        super().__init__(NOWHERE / name)
        self._data = data

    @cached_property
    def compression(self) -> str | None:
        return None

    def open(self) -> BinaryIO:
        return cast(BinaryIO, io.BytesIO(self._data))
