"""One row a request, streamed into a Parquet file: memory stays flat, the file appears whole."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.engine.contract import REQUEST_FIELDS
from nvmesim.files import NAME_KEPT, written
from nvmesim.model.lowered import Lowered
from nvmesim.units import PS_PER_S

ROWS_PER_PART: Final = 1 << 20


class RequestWriter:
    """Collects rows of `Engine.records` in parts beside *path*; `finish` makes the file of them."""

    def __init__(self, path: Path, lowered: Lowered) -> None:
        self._path = Path(path).resolve()
        self._lowered = lowered
        # What is not a regular file (/dev/null, a pipe) is written to, not replaced.
        is_file = self._path.is_file() or not self._path.exists()
        beside = self._path.parent if is_file else None
        self._folder = Path(tempfile.mkdtemp(prefix=f".{self._path.name[:NAME_KEPT]}.", dir=beside))
        self._rows: list[Ints] = []
        self._n_rows = 0
        self._n_parts = 0

    def __enter__(self) -> RequestWriter:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def __call__(self, rows: Ints) -> None:
        """Add int64[n, 7] of `REQUEST_FIELDS`."""
        self._rows.append(rows)
        self._n_rows += len(rows)
        if self._n_rows >= ROWS_PER_PART:
            self._flush()

    def _flush(self) -> None:
        import polars as pl

        if not self._rows:
            return
        table = np.concatenate(self._rows)
        frame = pl.DataFrame({name: table[:, i] for i, name in enumerate(REQUEST_FIELDS)})
        with self._disk_errors():
            frame.write_parquet(self._folder / f"{self._n_parts:06}.parquet")
        self._rows, self._n_rows = [], 0
        self._n_parts += 1

    def finish(self, warmup_ps: float) -> None:
        """Write the file; rows that completed by *warmup_ps* have ``warmup = true``."""
        import polars as pl

        self._flush()
        # Background work (a rebuild, a cache that destages) is nobody's request.
        asked = [(i, f) for i, f in enumerate(self._lowered.flows) if f.group >= 0]
        workload = self._lowered.scenario.workload
        flows = pl.LazyFrame(
            {
                "flow": np.array([i for i, _ in asked], np.int64),
                "workload": [f.group for _, f in asked],
                "target": [workload[f.group].targets[f.target].name for _, f in asked],
                "op": ["write" if f.write else "read" for _, f in asked],
                "bytes": [f.n_bytes for _, f in asked],
            }
        )
        source = (
            pl.scan_parquet(self._folder / "0*.parquet")
            if self._n_parts
            else pl.LazyFrame({name: np.zeros(0, np.int64) for name in REQUEST_FIELDS})
        )
        submit, issue, complete = (pl.col(f"{what}_ps") for what in ("submit", "issue", "complete"))
        rows = source.join(flows, on="flow", how="inner", maintain_order="left").select(
            "request", "workload", "target", "op", "bytes", "user", submit_s=submit / PS_PER_S,
            slat_s=(issue - submit) / PS_PER_S, clat_s=(complete - issue) / PS_PER_S,
            latency_s=(complete - submit) / PS_PER_S, warmup=complete <= warmup_ps,
        )  # fmt: skip
        with self._disk_errors(), written(self._path) as beside:
            rows.sink_parquet(beside)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """A disk that is full is one to Polars only sometimes; else its writer of Parquet fails."""
        import polars as pl

        try:
            yield
        except pl.exceptions.ComputeError as error:
            raise OSError(errno.EIO, f"cannot be written: {error}", str(self._path)) from None
