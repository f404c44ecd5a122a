"""Records that a calibration leaves in a profile beside its numbers.

How they vary together, what was measured, what the fitted model misses of that, what the rows did
not tell, and other explanations of them. A prediction draws from it, and says where it is asked
beyond what was captured.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from nvmesim.catalog.quantity import Frozen


class JointDraws(Frozen):
    """How numbers that were fitted together vary together: draws from what the captures allow."""

    names: tuple[str, ...]
    """Dotted keys of the profile: "read.die"."""
    factors: tuple[tuple[float, ...], ...] = Field(min_length=2)
    """A row a draw: what each of ``names`` is multiplied by."""

    @model_validator(mode="after")
    def _is_a_table(self) -> JointDraws:
        for row in self.factors:
            if len(row) != len(self.names) or not all(0 < f < 1e6 for f in row):
                raise ValueError(f"joint.factors needs rows of {len(self.names)} factors above 0")
        return self


class Residual(Frozen):
    """One captured row, and how far the profile is from it: logarithms of model / measured."""

    read: float = Field(ge=0, le=1)
    """Share of reads."""
    block_size: int = Field(ge=1)
    """Bytes."""
    sequential: bool = False
    threads: int = Field(ge=1)
    """Of the whole load."""
    outstanding: int = Field(ge=1)
    """Of each thread."""
    drives: int = Field(default=1, ge=1)
    drives_per_thread: int = Field(default=1, ge=1)
    iops: float
    mean: float | None = None
    p50: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    cpu: float | None = None
    noise: float | None = Field(default=None, ge=0)
    """Relative standard error of the row's IOPS, by its repeats or its sample; None: not known."""
    held_out: bool = False
    sync: str = ""
    """Flush after each of its writes: fsync, fdatasync or sync; blank: none."""
    raid: str = ""
    """Array of ``drives`` members that was measured, as "raid0:524288"; blank: single drives."""

    @property
    def depth(self) -> float:
        """Requests in flight at each drive, on average."""
        return self.threads * self.outstanding / self.drives


class Captured(Frozen):
    """Conditions that a profile was captured under: a prediction outside of them says so."""

    block_sizes: tuple[int, ...] = ()
    """Bytes, ascending."""
    read_shares: tuple[float, ...] = ()
    sequential: tuple[bool, ...] = ()
    """Which of random (false) and sequential (true) access there was."""
    depths: tuple[int, ...] = ()
    """Requests in flight at each drive, ascending."""
    threads: tuple[int, ...] = ()
    drives: tuple[int, ...] = ()
    kernel: str = ""
    stack: str = ""
    link: str = ""
    tool: str = ""
    datasheet: bool = False
    """True if the rows are a vendor's figures and not measurements."""


class Alternative(Frozen):
    """Another explanation of the same rows, which they cannot tell from the profile's own."""

    name: str
    """The explanation in words, as "read ceiling in the controller"."""
    weight: float = Field(gt=0, le=1)
    """Its probability. The profile's own numbers have what all alternatives leave of 1."""
    values: dict[str, Any]
    """Dotted key -> the number instead of the profile's, written as in the profile; false: none."""
    joint: JointDraws | None = None
    """How the numbers of this explanation vary together; None: as the profile's."""
