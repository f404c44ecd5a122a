"""Notes of a fit on the files it read, and on points that no drive of this model makes."""

import re
from collections.abc import Collection, Sequence
from typing import Final

import polars as pl

from nvmesim.capture.capture import Captures
from nvmesim.capture.caveats import THIN
from nvmesim.capture.readers.fio.log_rows import DRIFTING
from nvmesim.warning import has

LISTED: Final = 4
DRIFT: Final = 0.2
"""Change of a mean from the first quarter to the last, as in logs of single requests."""
LEAST_QUARTER: Final = 5
BECAUSE: Final = (
    " (heat, a disk that fills, or other work): averages of the whole run describe no one state"
)


def named(names: Sequence[str], limit: int = LISTED) -> str:
    """Return *names* once each, the first few of many.

    >>> named(["a", "b", "a", "c"], 2)
    'a, b and 1 more'
    """
    unique = list(dict.fromkeys(names))
    more = len(unique) - limit
    return ", ".join(unique[:limit]) + (f" and {more} more" if more > 0 else "")


def doubts(captures: Captures, used: Collection[str]) -> list[str]:
    """Warnings of the captures named in *used* (file names), each with all its files."""
    said: dict[str, list[str]] = {}
    for capture in captures.files:
        if capture.file.name not in used:
            continue
        texts = [*capture.warnings, *(w for m in capture.measurements for w in m.warnings)]
        for text in dict.fromkeys(texts):
            if not has([text], THIN):  # a fit looks at three percentiles, and says so itself
                said.setdefault(text, []).append(capture.file.name)
    found = [f"{named(files)}: {text}" for text, files in said.items()]
    if captures.unread:
        names = [reason.about for reason in captures.unread]
        found.append(f"no captures, not read: {named(names, 8)}")
    return found


def mixed_devices(captures: Captures) -> list[str]:
    """Say which captures are of other devices than the rest."""
    found: dict[frozenset[str], list[str]] = {}
    for capture in captures.files:
        names = {name for m in capture.measurements for name in m.disk_util_pct}
        if names:
            found.setdefault(frozenset(names), []).append(capture.file.name)
    groups = list(found.items())
    apart = [(a, b) for i, (a, _) in enumerate(groups) for b, _ in groups[i + 1 :] if not a & b]
    if not apart:
        return []
    listed = "; ".join(f"{named(sorted(names))}: {named(files)}" for names, files in groups)
    return [f"captures of different devices ({listed}): a profile fitted to both describes neither"]


NETWORK: Final = re.compile(
    r"\bnvme(?:-?of|[/ -](?:over[ -])?(?:tcp|rdma|fc|fabrics))\b|\biscsi\b", re.IGNORECASE
)


def network_of(captures: Captures) -> str:
    """What the names or sources of rows call the network that they passed; empty: none."""
    named_by = (NETWORK.search(f"{m.label} {m.source}") for m in captures.measurements)
    return next((found[0] for found in named_by if found), "")


def through(network: str) -> list[str]:
    """Say that rows passed a *network*, if they did."""
    if not network:
        return []
    return [
        f"rows passed a network ({network}): its time and ceiling count as the drive's. Several "
        "such drives share it: name an adapter with its bandwidth in the scenario"
    ]


def drifts(captures: Captures, explained: Collection[str] = ()) -> list[str]:
    """Say which series end elsewhere than they began, but for the files in *explained*.

    Logs of single requests say so themselves; here it is of window means.
    """
    said = []
    for capture in captures.files:
        name = capture.file.name
        if name in explained:
            continue
        texts = [w for w in capture.warnings if has([w], DRIFTING)]
        if not texts and capture.series is not None:
            texts = _drifts_of(capture.series)
        said += [f"{name}: {text}{BECAUSE}" for text in texts]
    return said


def _drifts_of(series: pl.DataFrame) -> list[str]:
    texts = []
    for (kind, op), rows in series.group_by("kind", "op", maintain_order=True):
        values = rows.sort("time_s")["value"].to_numpy()
        quarter = len(values) // 4
        if quarter < LEAST_QUARTER or not values[:quarter].mean():
            continue
        change = float(values[-quarter:].mean() / values[:quarter].mean()) - 1
        if abs(change) > DRIFT:
            texts.append(
                f"drift: mean {kind} of {op}s {change:+.0%} from the first quarter to the last"
            )
    return texts


def short_tails(
    rows: Sequence[tuple[str, int]], percents: Sequence[float], least: int
) -> list[str]:
    """Name the *rows*, name and requests, that have less than *least* beyond one of *percents*."""
    few = [f"{name} (p{q:g})" for name, count in rows for q in percents
           if count * (1 - q / 100) < least]  # fmt: skip
    if not few:
        return []
    return [f"fewer than {least} requests beyond a percentile, not fitted: {named(few, 6)}"]
