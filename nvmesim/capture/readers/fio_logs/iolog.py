"""fio's iolog (``write_iolog``): what was requested and when, without latencies.

Version 3 stamps every line in us, version 2 has ``wait`` lines between. File names may hold
spaces, so a line is read from its right. Source: fio HOWTO, trace file formats.
"""

from __future__ import annotations

import re
from typing import Final

from nvmesim.capture.capture import Capture
from nvmesim.capture.text import Head, Source

_HEADER: Final = re.compile(r"\s*fio version ([23]) iolog\s*")


def sniff(head: Head) -> bool:
    """True if *head* starts with the header of an iolog."""
    return _HEADER.fullmatch(head.text.split("\n", 1)[0]) is not None


def read(source: Source) -> Capture:
    """Read an iolog: arrivals only; CaptureError if it holds no read and no write."""
    # Sniffing other files must not import Numba.
    from nvmesim.capture.readers.fio_logs.iolog_requests import read_iolog

    header = _HEADER.fullmatch(source.head.text.split("\n", 1)[0])
    return read_iolog(source, int(header[1]) if header else 3)
