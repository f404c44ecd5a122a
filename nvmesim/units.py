"""Text with units at the edge, integers inside; the only home of 1024 and 10**12.

Inside nvmesim time is int picoseconds, sizes are int bytes, frequencies and bandwidths are int
per second. KiB, MiB, GiB are powers of two; kB, MB, GB are powers of ten (IEC 80000-13).
"""

import math
import re
from fractions import Fraction
from typing import Final

from nvmesim.errors import UnitError

PS_PER_S: Final = 10**12
PS_PER_US: Final = 10**6

TIME_PS: Final = {
    "ps": 1,
    "ns": 10**3,
    "us": 10**6,
    "µs": 10**6,
    "ms": 10**9,
    "s": 10**12,
    "min": 60 * 10**12,
    "h": 3600 * 10**12,
}
SIZE_BYTES: Final = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
FREQUENCY_HZ: Final = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}
TRANSFERS: Final = {"MT/s": 10**6, "GT/s": 10**9}
_SCALE: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

LONGEST_TEXT: Final = 100
"""Characters of a quantity; longer ones take the pattern too long."""
_NUMBER = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*(\S*)\s*$")


def _split(text: str, what: str, example: str) -> tuple[Fraction, str]:
    """Return the number and the unit in *text*, or say what to write."""
    match = _NUMBER.match(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        message = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
        raise UnitError(f"{message!r} is not {what}; write for example {example!r}")
    return Fraction(match.group(1)), match.group(2)


def _scaled(text: str, units: dict[str, int], what: str, example: str) -> int:
    number, unit = _split(text, what, example)
    if unit not in units:
        found = f"has unit {unit!r}, which is not {what}" if unit else "has no unit"
        # fio, DiskSpd and mdadm mean powers of two by these letters
        binary = f"{unit[:1].upper()}iB"
        if unit in (*"kKmMgGtT",) and binary in units:
            example = f"{number} {binary}"
        raise UnitError(
            f"{text!r} {found}; write a number and one of "
            f"{', '.join(units)}, for example {example!r}"
        )
    value = number * units[unit]
    if value < 0:
        raise UnitError(f"{text!r} is negative; {what} is at least 0")
    return round(value)


def parse_time_ps(text: str) -> int:
    """Picoseconds in *text*, rounded to the 1 ps clock.

    >>> parse_time_ps("78.5 us")
    78500000
    """
    return _scaled(text, TIME_PS, "a time", "80 us")


def parse_size(text: str) -> int:
    """Bytes in *text*; a bare ``"0"`` is zero bytes.

    >>> parse_size("512 KiB"), parse_size("1.6 TB"), parse_size("0")
    (524288, 1600000000000, 0)
    """
    return 0 if text.strip() == "0" else _scaled(text, SIZE_BYTES, "a size", "512 KiB")


def parse_bandwidth(text: str) -> int:
    """Bytes per second in *text*.

    >>> parse_bandwidth("3.2 GB/s")
    3200000000
    """
    units = {f"{unit}/s": scale for unit, scale in SIZE_BYTES.items()}
    return _scaled(text, units, "a bandwidth", "3.2 GB/s")


def parse_transfers(text: str) -> int:
    """Transfers per second in *text*, as links are rated.

    >>> parse_transfers("10.4 GT/s")
    10400000000
    """
    return _scaled(text, TRANSFERS, "a transfer rate", "10.4 GT/s")


def parse_rate(text: str) -> float:
    """Requests per second in *text*.

    >>> parse_rate("500k/s"), parse_rate("3M")
    (500000.0, 3000000.0)
    """
    number, unit = _split(text, "a rate", "500k/s")
    unit = unit.removesuffix("/s").removesuffix("IOPS").strip()
    if unit not in _SCALE or number < 0:
        raise UnitError(f"{text!r} is not a rate; write for example '500k/s' or '3M'")
    return float(number * _SCALE[unit])


def parse_fraction(text: str) -> float:
    """The fraction in *text*, ``"1%"`` or ``"0.01"``.

    >>> parse_fraction("1%"), parse_fraction("0.25")
    (0.01, 0.25)
    """
    number, unit = _split(text, "a fraction", "1%")
    if unit not in ("", "%") or number < 0:
        raise UnitError(f"{text!r} is not a fraction; write for example '1%' or '0.01'")
    return float(number / 100 if unit == "%" else number)


def format_size(n_bytes: int) -> str:
    """*n_bytes* with the largest binary unit that divides it.

    >>> format_size(524288), format_size(1500)
    ('512 KiB', '1500 B')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if n_bytes and n_bytes % SIZE_BYTES[unit] == 0:
            return f"{n_bytes // SIZE_BYTES[unit]} {unit}"
    return f"{n_bytes} B"


def format_iops(per_s: float) -> str:
    """*per_s* as the field prints it.

    >>> format_iops(2720000.0), format_iops(14483.0), format_iops(679.0)
    ('2.72M IOPS', '14.5k IOPS', '679 IOPS')
    """
    if per_s >= 1e6:
        return f"{per_s / 1e6:.3g}M IOPS"
    if per_s >= 1e3:
        return f"{per_s / 1e3:.3g}k IOPS"
    return f"{per_s:.3g} IOPS"


def format_bandwidth(bytes_per_s: float) -> str:
    """*bytes_per_s* in GB/s or MB/s (powers of ten).

    >>> format_bandwidth(5.97e9), format_bandwidth(59.3e6)
    ('5.97 GB/s', '59.3 MB/s')
    """
    if bytes_per_s >= 1e9:
        return f"{bytes_per_s / 1e9:.3g} GB/s"
    return f"{bytes_per_s / 1e6:.3g} MB/s"


def format_time(seconds: float) -> str:
    """*seconds* in the unit a person reads: us below 1 ms, then ms, then s.

    >>> format_time(726.4e-6), format_time(1.2345e-3), format_time(2.5)
    ('726 us', '1.23 ms', '2.5 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def chance(p: float) -> str:
    """A probability in percent, never quite 0 or 100.

    >>> chance(0.731), chance(0.9999), chance(0.0)
    ('73 %', '> 99 %', '< 1 %')
    """
    if p >= 0.995:
        return "> 99 %"
    return "< 1 %" if p < 0.005 else f"{100 * p:.0f} %"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.0712), percent(0.934), percent(0.0)
    ('7.1 %', '93 %', '0 %')
    """
    if not math.isfinite(share):
        return "-"
    return f"{share * 100:.1f} %" if 0 < share < 0.1 else f"{share * 100:.0f} %"
