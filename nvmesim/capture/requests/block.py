"""Some requests of a capture as columns: what readers yield, tables keep and tallies count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Block:
    """Some requests. rows: int64[N_OUT, n] as in the pairing kernel; names: device by index.

    `UNKNOWN_TIME` stands for an unknown issue, completion or offset, 0 for an unknown depth and
    2 or more for an unknown operation.
    """

    rows: np.ndarray
    names: list[str]
