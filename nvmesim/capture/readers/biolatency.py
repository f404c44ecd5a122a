"""Reader of biolatency histograms, bcc's and bpftrace's: powers of two of ns, us or ms.

Each map is a series of its own, and its name says the unit: ``@usecs``, ``@latency_ssd_ns``. The
bins say how many requests took between their bounds; they do not say which were reads, so
the result is `Measurement.mixed` unless the tool ran with ``-F`` and printed the flags.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nvmesim.capture.capture import (
    Capture,
    Conditions,
    Latency,
    Measurement,
    OpResult,
    percentiles_of_bins,
)
from nvmesim.capture.checked_numbers import results
from nvmesim.capture.text import Head, Source

FORMAT: Final = "biolatency"
LARGEST: Final = 16 << 20
PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
_UNIT: Final = re.compile(
    r"(?:^|_)(?:(?P<n>ns|nsecs?|nanos(?:econds)?)|(?P<u>us|usecs?|micros(?:econds)?)"
    r"|(?P<m>ms|msecs?|millis(?:econds)?)|(?P<s>s|secs?|seconds))(?:_|$)"
)
_UNIT_S: Final = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "s": 1.0}
"""First letter of a unit -> s."""
DOUBLE: Final = 1.9
"""Bins of powers of two are twice as wide as their start, of ``lhist`` narrower."""
LONGEST_S: Final = 3600.0
"""Assumed: no request takes an hour; the kernel gives one up after half a minute (io_timeout)."""
SUFFIX: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

_BPFTRACE = re.compile(
    r"^[ \t]*[\[(](?P<lo>\d{1,12})(?P<lk>[KMGT]?)(?:, (?P<hi>\d{1,12})(?P<hk>[KMGT]?))?[)\]]"
    r"\s+(?P<n>\d{1,15}) \|[@ ]*\|\s*$"
)
_BCC = re.compile(
    r"^[ \t]*(?P<lo>\d{1,18}) -> (?P<hi>\d{1,18})\s+: (?P<n>\d{1,15})\s+\|[* +]*\|\s*$"
)
_BCC_HEADER = re.compile(r"^[ \t]*(nsecs|usecs|msecs|secs)\s+: count\s+distribution\s*$")
_MAP = re.compile(r"^@(\w*)(?:\[(.*)\])?:\s*$")
_LABEL = re.compile(r"^(?:disk|flags|flag) = (.*?)\s*$", re.I)
_SNIFF = re.compile(
    r"^[ \t]*\[\d+[KMGT]?, \d+[KMGT]?\)\s+\d+ \||^[ \t]*[mnu]?secs\s+: count\s+distribution",
    re.M,
)
_CLOCK = re.compile(r"^\d\d:\d\d:\d\d$")
_AVERAGE = re.compile(r"^avg = (\d{1,15}) (nsecs|usecs|msecs|secs), total: ")


@dataclass
class _Histogram:
    label: str
    unit_s: float | None
    """None: its name does not say it."""
    bins: list[tuple[float, float, int]] = field(default_factory=list)
    """Lower bound, upper bound in s, count."""
    mean_s: float | None = None
    """Lines that ``biolatency -e`` prints below."""


def sniff(head: Head) -> bool:
    """True if *head* holds a histogram of biolatency."""
    return bool(_SNIFF.search(head.text))


def read(source: Source) -> Capture:
    """Read histograms, a measurement each; CaptureError if none has a count and a unit."""
    histograms, skipped = _parse(source.text(LARGEST))
    filled = [h for h in histograms if any(n for _, _, n in h.bins)]
    warnings = [problem for h in filled if (problem := _problem(h))]
    found = [_measurement(h) for h in filled if not _problem(h)]
    if not found and warnings:
        raise source.error(warnings[0], "name the map with its unit, such as @usecs")
    if not found:
        raise source.error("is a biolatency histogram without counts", "trace while there is load")
    widths = (high / low for h in filled for low, high, n in h.bins if n and low > 0)
    warnings.append(
        "bins double: percentiles are bounds, good to a factor of two"
        if max(widths, default=1.0) > DOUBLE
        else "percentiles are the middles of bins"
    )
    rows = sum(len(h.bins) for h in histograms)
    return results(source, FORMAT, found, warnings, rows=rows, skipped=skipped)


def _problem(histogram: _Histogram) -> str:
    """Why *histogram* is not a latency that can be told, or nothing."""
    if histogram.unit_s is None:
        return f"left out: @{histogram.label}: its name does not say whether it counts ns or us"
    longest = max(low for low, _, n in histogram.bins if n)
    if longest > LONGEST_S:
        return (
            f"left out: {histogram.label}: a latency of {longest / 86400:.3g} days or more, which "
            "no request takes"
        )
    return ""


def _unit(name: str) -> float | None:
    """Seconds that a map counts in, by its name.

    >>> _unit("latency_5_driver_ssd_ns"), _unit("usecs"), _unit("bytes")
    (1e-09, 1e-06, None)
    """
    match = _UNIT.search(name)
    return _UNIT_S[match.lastgroup] if match and match.lastgroup else None


def _parse(text: str) -> tuple[list[_Histogram], int]:
    found: list[_Histogram] = []
    skipped = 0
    label = clock = ""
    inside = False
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        start, header, named = _MAP.match(line), _BCC_HEADER.match(line), _LABEL.match(line)
        row = _BPFTRACE.match(line) or _BCC.match(line)
        average = _AVERAGE.match(line)
        if start:
            name, key = start[1], start[2] or ""
            says_nothing = not name or _UNIT.fullmatch(name) is not None
            map_label = key or "all" if says_nothing else f"{name} {key}".strip()
            found.append(_Histogram(map_label, _unit(name)))
        elif header:
            name = " ".join(filter(None, (label or "all", clock)))
            found.append(_Histogram(name, _UNIT_S[header[1][0]]))
        elif named:
            label = named[1].strip("'b")
        elif average and found:
            found[-1].mean_s = int(average[1]) * _UNIT_S[average[2][0]]
        elif _CLOCK.match(line):
            clock = line
        elif row and inside and _add(found[-1], row):
            continue
        elif (line.strip() or (line and number == len(lines))) and (inside or row):
            skipped += 1
            continue
        # What other programs print stands around histograms, not in them.
        inside = bool(start or header)
    return found, skipped


def _add(histogram: _Histogram, row: re.Match[str]) -> bool:
    """Add a bin if it follows the ones before; bcc's upper bounds are inclusive."""
    fields = row.groupdict()
    if "lk" in fields:
        low = int(fields["lo"]) << SUFFIX[fields["lk"]]
        high = int(fields["hi"]) << SUFFIX[fields["hk"]] if fields["hi"] else low + 1
    else:
        low, high = int(fields["lo"]), int(fields["hi"]) + 1
    unit = histogram.unit_s or 1.0
    bounds = (low * unit, high * unit)
    if high <= low or (histogram.bins and bounds[0] < histogram.bins[-1][1]):
        return False
    histogram.bins.append((*bounds, int(fields["n"])))
    return True


def _measurement(histogram: _Histogram) -> Measurement:
    bins = [b for b in histogram.bins if b[2]]
    counts = np.array([n for _, _, n in bins], np.int64)
    middles = np.array([(low * high) ** 0.5 or high / 2 for low, high, _ in bins])
    total = int(counts.sum())
    latency = Latency(
        count=total,
        mean_s=histogram.mean_s,
        percentiles_s=percentiles_of_bins(middles, counts, PERCENTILES),
        bin_s=middles,
        bin_count=counts,
    )
    result = OpResult(count=total, bytes=0, iops=0.0, bytes_per_s=0.0, clat=latency)
    label = histogram.label
    reads, writes = "Read" in label and "Ahead" not in label, "Write" in label
    return Measurement(
        label=label,
        conditions=Conditions(),
        ops={"read": result} if reads else {"write": result} if writes else {},
        mixed=None if reads or writes else result,
        warnings=("a histogram alone: no sizes, no rate, no depth",),
    )
