"""Numbers and names as text, the same on a terminal, in a page and in a chart."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from nvmesim.files import package_tables
from nvmesim.measure.figures import Distribution, Interval
from nvmesim.units import chance as chance
from nvmesim.units import format_time as format_time
from nvmesim.units import percent as percent

NOTHING_FULL: Final = {
    "unstable": "the backlog grows", "latency-bound": "latency",
}  # fmt: skip
"""Verdicts that name no part of the server."""
LIMITS: Final = {
    "cpu": "the CPU or its threads", "drive": "the drives", "link": "a link",
    "raid-engine": "the RAID engine", "limit": "a stated limit", **NOTHING_FULL,
}  # fmt: skip
"""Verdict -> what limits a load."""
COLUMNS: Final = ("mean", "p50", "p99", "p99.9")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def texts(table: str) -> Mapping[str, str]:
    """Return a table of ``words.toml``: captions of charts, the glossary.

    >>> texts("parts")["total"]
    'all together'
    """
    found: dict[str, str] = package_tables(__package__, "words.toml")[table]
    return found


def one_line(text: str) -> str:
    r"""Return *text* without line breaks and control characters: safe to print.

    >>> one_line("a\nb\x1b[31mc")
    'a b [31mc'
    """
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8")


def kiops(per_s: float) -> str:
    """Requests per second, with k or M.

    >>> kiops(2_719_800.0), kiops(512_340.0), kiops(85_432.0), kiops(679.0), kiops(999_960.0)
    ('2.72M', '512.3k', '85.4k', '679', '1M')
    """
    if per_s < 999.5:
        return f"{per_s:.3g}"
    if per_s < 999_950:
        return f"{per_s / 1e3:.{4 if per_s >= 99_950 else 3}g}k"
    return f"{per_s / 1e6:.4g}M"


def about(per_s: float) -> str:
    """Requests per second, as exact as is worth saying in a sentence.

    >>> about(85_432.0), about(1_671_000.0), about(144_400.0), about(8_543.0), about(0.0)
    ('85k', '1.67M', '144k', '8.5k', '0')
    """
    digits = 2 if per_s < 99_500 else 3
    return kiops(float(f"{per_s:.{digits}g}"))


def span(interval: Interval) -> str:
    """Both ends of an interval of rates; empty if it is not known.

    >>> span(Interval(85e3, 52.4e3, 144e3)), span(Interval(1.0, 0.0, math.inf))
    ('52k to 144k', '')
    """
    if not interval.value or not math.isfinite(interval.high - interval.low):
        return ""
    return f"{about(interval.low)} to {about(interval.high)}"


def microseconds(seconds: float | None) -> str:
    """A latency in us without its unit, three to four digits; "-" if unknown.

    >>> microseconds(78.52e-6), microseconds(1.2345e-3), microseconds(None)
    ('78.5', '1,234', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    us = seconds * 1e6
    if 0 < us < 0.005:
        return "<0.01"
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def time_span(low_s: float, high_s: float) -> str:
    """Both ends of an interval of latencies.

    >>> time_span(520e-6, 1.3e-3), time_span(520e-6, 800e-6)
    ('520 us to 1.3 ms', '520 to 800 us')
    """
    low, high = format_time(low_s), format_time(high_s)
    return f"{low.split()[0] if low[-2:] == high[-2:] else low} to {high}"


def gain(share: float) -> str:
    """A relative change, signed; beyond twice as much a factor.

    >>> gain(0.1234), gain(-0.002), gain(-0.0001), gain(6.143)
    ('+12.3 %', '-0.2 %', '+0.0 %', '7.1 x')
    """
    return f"{1 + share:.2g} x" if share >= 1 else f"{signed(share * 100)} %"


def gain_span(low: float, high: float) -> str:
    """Both ends of the interval of a relative change; factors if one is beyond twice as much.

    >>> gain_span(0.11, 0.13), gain_span(-0.563, 0.36), gain_span(0.2, 2.1)
    ('+11.0 to +13.0 %', '-56 to +36 %', '1.2 to 3.1 x')
    """
    if high >= 1:
        return f"{1 + low:.2g} to {1 + high:.2g} x"
    if high - low > 0.2:
        return f"{100 * low:+.0f} to {100 * high:+.0f} %"
    return f"{signed(100 * low)} to {signed(100 * high)} %"


def half_width(share: float) -> str:
    """How wide an interval is to either side; a factor beyond as much again.

    >>> half_width(0.614), half_width(2.45)
    ('±61 %', 'a factor of 3.5')
    """
    return f"±{100 * share:.0f} %" if share < 1 else f"a factor of {1 + share:.2g}"


def signed(value: float) -> str:
    """One decimal with its sign; what rounds to nothing has a plus.

    >>> signed(-0.04), signed(-0.06), signed(3.0)
    ('+0.0', '-0.1', '+3.0')
    """
    text = f"{value:+.1f}"
    return "+0.0" if text == "-0.0" else text


def gigabytes(bytes_per_s: float) -> str:
    """A bandwidth in GB/s (10**9) without its unit.

    >>> gigabytes(5.97e9), gigabytes(59.3e6)
    ('5.97', '0.0593')
    """
    return f"{bytes_per_s / 1e9:.3g}"


def terabytes(n_bytes: float) -> str:
    """What an array holds in TB (10**12) without its unit.

    >>> terabytes(15_360_000_000_000), terabytes(6.4e12)
    ('15.36', '6.4')
    """
    return f"{n_bytes / 1e12:.4g}"


def latency_at(distribution: Distribution, column: str) -> float | None:
    """The mean ("mean") or a percentile ("p99.9") of *distribution*, s."""
    if column == "mean":
        return distribution.mean
    return distribution.percentiles.get(float(column[1:]))


def small_share(value: float) -> str:
    """A share that may be small.

    >>> small_share(0.00123), small_share(0.25), small_share(0.0), small_share(4e-7)
    ('0.12 %', '25 %', '0 %', '< 0.001 %')
    """
    if 0 < value < 1e-5:
        return "< 0.001 %"
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.4g} %"


def plural(count: int, noun: str) -> str:
    """Return the count with its noun.

    >>> plural(1, "warning"), plural(3, "warning")
    ('1 warning', '3 warnings')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def joined(names: Sequence[str], limit: int = 4) -> str:
    """The first few names, and how many more there are.

    >>> joined(["a", "b", "c", "d", "e"], 2)
    'a, b and 3 more'
    """
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def seconds(time_s: float) -> str:
    """A time that a person waited, with two or three digits and never as a power of ten.

    >>> seconds(0.0312), seconds(1.26), seconds(119.7)
    ('0.031 s', '1.3 s', '120 s')
    """
    return f"{time_s:.2g} s" if time_s < 10 else f"{time_s:,.0f} s"
