"""DiskSpd's IOPS series (``-D``): what each window of time did, from the Iops table of its XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

import polars as pl

from nvmesim.capture.capture import REQUEST_SCHEMA
from nvmesim.capture.readers.diskspd.common import LARGEST, LONGEST_MS, OPS, S_PER_MS, number

COLUMNS: Final = ("time_s", "op", "kind", "value")
"""As `Capture.series`."""


def iops_series(span: ET.Element) -> pl.DataFrame | None:
    """Requests/s and mean latency of each window of *span*; None if it ran without ``-D``.

    A bucket's counts are requests/s and its SampleMillisecond is where the window ends.
    """
    rows: list[tuple[float, str, str, float]] = []
    for bucket in span.findall("Iops/Bucket"):
        end = number(bucket.get("SampleMillisecond"))
        if end is None or not 0 < end <= LONGEST_MS:
            continue
        for op in OPS:
            name = op.capitalize()
            rate = number(bucket.get(name))
            mean = number(bucket.get(f"{name}AvgLatencyMilliseconds"))
            if rate is not None and 0 <= rate <= LARGEST:
                rows.append((end * S_PER_MS, op, "iops", rate))
            if rate and mean is not None and 0 <= mean <= LONGEST_MS:
                rows.append((end * S_PER_MS, op, "lat", mean * S_PER_MS))
    if not rows:
        return None
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    return table.with_columns(pl.col("op").cast(REQUEST_SCHEMA["op"]))
