"""Numbers as other tools write them."""

from __future__ import annotations

import math
import re
from typing import Final

from nvmesim.catalog.links import PCIE_ENCODING, PCIE_GT_PER_S, PCIE_LANES

_BINARY: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_SIZE: Final = re.compile(r"^[ \t]*(\d[\d.,]*)\s*([KMGTP]?)(?:iB|B)?\s*$", re.I)


def binary_size(text: str) -> int | None:
    """Bytes in *text*, whose units are powers of two as md, lscpu and Windows mean them.

    >>> binary_size("64K"), binary_size("1.5 TB"), binary_size("1,46 TB"), binary_size("n/a")
    (65536, 1649267441664, 1605286976553, None)
    """
    match = _SIZE.match(text)
    if match is None:
        return None
    digits = match.group(1)
    if digits.count(",") == 1 and "." not in digits and len(digits.split(",")[1]) < 3:
        digits = digits.replace(",", ".")
    try:
        number = float(digits.replace(",", "")) * _BINARY[match.group(2).upper()]
    except ValueError:
        return None
    return round(number) if math.isfinite(number) else None


def pcie_text(gigatransfers: float, lanes: int) -> str | None:
    """Return the link of that speed and width, None if PCIe has none such.

    >>> pcie_text(8, 4), pcie_text(2.5, 1), pcie_text(8, 0), pcie_text(7, 4)
    ('pcie3 x4', 'pcie1 x1', None, None)
    """
    generations = [g for g, rate in PCIE_GT_PER_S.items() if abs(float(rate) - gigatransfers) < 0.1]
    if not generations or lanes not in PCIE_LANES:
        return None
    return f"pcie{generations[0]} x{lanes}"


def pcie_from_bandwidth(gigabytes_per_s: float, widths: tuple[int, ...]) -> str | None:
    """Return the link that carries so much, with the first of *widths* that fits a generation.

    >>> pcie_from_bandwidth(3.938462, (4, 2, 1)), pcie_from_bandwidth(31.507692, (16, 8, 4))
    ('pcie3 x4', 'pcie4 x16')
    """
    for lanes in widths:
        for generation, rate in PCIE_GT_PER_S.items():
            encodings = {float(PCIE_ENCODING[generation]), 128 / 130 if generation > 2 else 0.8}
            for encoding in encodings:
                if abs(float(rate) * encoding * lanes / 8 - gigabytes_per_s) < 0.01 * lanes:
                    return f"pcie{generation} x{lanes}"
    return None


def slower_link(first: str | None, second: str | None) -> str | None:
    """Return the lower generation and width of two PCIe links; an unknown one does not count.

    >>> slower_link("pcie4 x4", "pcie3 x16"), slower_link(None, "pcie3 x4")
    ('pcie3 x4', 'pcie3 x4')
    """
    if first is None or second is None:
        return first or second
    one, other = pcie_parts(first), pcie_parts(second)
    return f"pcie{min(one[0], other[0])} x{min(one[1], other[1])}"


def pcie_parts(link: str) -> tuple[int, int]:
    """Return (generation, lanes) of a text that `pcie_text` made.

    >>> pcie_parts("pcie4 x16")
    (4, 16)
    """
    generation, lanes = link.removeprefix("pcie").split(" x")
    return int(generation), int(lanes)
