"""A drive of captured latencies: a delay that draws runs of the capture's own samples."""

import numpy as np

from nvmesim.catalog.profile import EmpiricalLatencies
from nvmesim.errors import ScenarioError
from nvmesim.network.builder import Builder, Row, const, ints, op
from nvmesim.network.network import Kind, Op
from nvmesim.scenario.resolved import Drive


class EmpiricalLatency:
    """A delay station for each operation that *table* holds, less *host_ps* of the host's time."""

    def __init__(
        self, b: Builder, drive: Drive, table: EmpiricalLatencies, host_ps: int
    ) -> None:  # fmt: skip
        self._drive = drive
        self._series: dict[bool, tuple[int, int]] = {}
        for write, samples in ((False, table.read_us), (True, table.write_us)):
            if samples:
                ticks = np.maximum(1, np.round(np.asarray(samples) * 1e6) - host_ps)
                name = f"{drive.name} {'write' if write else 'read'}"
                station = b.station(name, Kind.DELAY)
                row = b.add_series(ints(ticks.astype(np.int64)), min(table.block, len(samples)))
                self._series[write] = (station, row)
                b.report(f"{name} latency", "delay", station, drive=drive.index)

    def check(self, write: bool) -> None:
        """Raise ScenarioError where the capture has no such latencies."""
        if write not in self._series:
            raise ScenarioError(
                f"drives: profile {self._drive.profile.name!r} holds no "
                f"{'write' if write else 'read'} latencies; calibrate it on a capture that has them"
            )

    def rows(self, write: bool) -> list[Row]:
        """Operations of one command."""
        (station, row), delay = self._series[write], self._drive.delay_ps
        away = [const(station, delay)] if delay else []
        return [*away, op(Op.VISIT_SERIES, station, row)]
