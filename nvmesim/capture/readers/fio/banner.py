"""Fio's output before any result: its version, the jobs' main options, how many it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.readers.fio.options import Options

VERSION_LINE: Final = re.compile(r"^fio[- ]([0-9][^\s;]*)\s*$", re.MULTILINE)
"""fio 1 printed a blank."""
BANNER_JOB: Final = r"^[^\n]+?: \(g=\d{1,9}\): rw=\w+[^\n]*$"
"""A line of a banner, whatever its options are."""
_JOB: Final = re.compile(
    r"^(?:<\S+> )?(?P<name>[^\n]+?): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>\w+)[^,\n]*, "
    r"bs=(?P<bs>[^\n]+?), "
    r"ioengine=(?P<engine>\w+), iodepth=(?P<depth>\d+)",
    re.MULTILINE,
)
_SIZES: Final = re.compile(
    r"\(?([RWT])?\)?\s*([0-9.]{1,24}[A-Za-z]{0,4})-([0-9.]{1,24}[A-Za-z]{0,4})"
)
_STARTING: Final = re.compile(r"^(?:<\S+> )?Starting (\d+) (?:process|thread)", re.MULTILINE)
_OLD_SIZES: Final = re.compile(r"([0-9.]{1,24}[A-Za-z]{0,4})-([0-9.]{1,24}[A-Za-z]{0,4})")
_COMMAND: Final = re.compile(r"^[^\n]*?\bfio\b(?P<options>[^\n]*?\s--[a-z][^\n]*)$", re.MULTILINE)
_COMMAND_OPTION: Final = re.compile(r"(?<!\S)--?([a-z][a-z_]*)(?:\s*=\s*(?:\"([^\"]*)\"|(\S+)))?")
FROM_COMMAND: Final = frozenset(
    {"direct", "buffered", "hipri", "filename", "directory", "thinktime", "rate", "rate_iops"}
    | {"rwmixread", "rwmixwrite", "ramp_time", "percentage_random"}
)
"""Options that a banner does not show; everything else is taken from the banner."""
INTERRUPTED: Final = "terminating on signal"
"""Text that fio prints of Ctrl-C and timeouts from outside."""
_OLD_KB: Final = re.compile(r"(?<=[0-9])([KMG])i?B?$")


@dataclass(frozen=True)
class Banner:
    """Version, options by (group, job name), and the number of threads; each may be missing."""

    version: str | None = None
    options: dict[tuple[int, str], Options] = field(default_factory=dict)
    threads: int | None = None

    def of(self, group: int, name: str, command: Mapping[str, str] | None = None) -> Options:
        """Return what is known of the options of a job, perhaps nothing.

        *command* are options of the command line, which hold for every job of it.
        """
        known = self.options.get((group, name))
        given = {**(command or {}), **(known.given if known else {})}
        return Options(given, complete=False)


def read_banner(text: str) -> Banner:
    r"""Find the banner in *text*.

    >>> b = read_banner("j: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-"
    ...                 "4096B, ioengine=libaio, iodepth=32\nfio-3.33\nStarting 1 process\n")
    >>> b.version, b.of(0, "j").whole("iodepth"), b.of(0, "j").block_sizes("read"), b.threads
    ('3.33', 32, {4096: 1.0}, 1)
    """
    version = VERSION_LINE.search(text)
    starting = _STARTING.search(text)
    options = {}
    for match in _JOB.finditer(text):
        given = {"rw": match["rw"], "ioengine": match["engine"], "iodepth": match["depth"]}
        sizes = _block_sizes(match["bs"])
        if sizes:
            given["bs"] = sizes
        elif sizes is None:
            given["bsrange"] = match["bs"]
        options[int(match["group"]), match["name"]] = Options(given, complete=False)
    return Banner(
        version=version.group(1) if version else None,
        options=options,
        threads=int(starting.group(1)) if starting and len(starting.group(1)) < 8 else None,
    )


def command_options(text: str) -> dict[str, str]:
    """Options of the last fio command in *text* that a banner does not repeat.

    >>> command_options("$ sudo fio --name=a --direct=1 --filename=/dev/sdb --bs=4k")
    {'direct': '1', 'filename': '/dev/sdb'}
    """
    commands = _COMMAND.findall(text)
    found: dict[str, str] = {}
    for key, quoted, plain in _COMMAND_OPTION.findall(commands[-1] if commands else ""):
        if key in FROM_COMMAND:
            found[key] = quoted or plain
    return found


def _block_sizes(text: str) -> str | None:
    """Return ``read,write`` sizes if each is one size, None if one is a range; "" if unknown.

    fio 3 prints ``(R) 4096B-4096B, (W) ...``, fio 2 ``4K-4K/4K-4K/4K-4K``.
    """
    pairs = [(m.group(2), m.group(3)) for m in _SIZES.finditer(text)][:2]
    if "(R)" not in text:
        pairs = [(m.group(1), m.group(2)) for m in _OLD_SIZES.finditer(text)][:2]
    if any(low != high for low, high in pairs):
        return None
    return ",".join(_OLD_KB.sub(r"\1", low) for low, _ in pairs)
