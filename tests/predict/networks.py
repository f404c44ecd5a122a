"""Known queueing systems as networks, and runs of them."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.measure.control import Controller, Measured, RunGoal
from nvmesim.measure.steady import Reducer, RunLoad
from nvmesim.network.network import Kind, Network, Op
from nvmesim.rng import table_levels

US = 10**6
MEAN_PS = US


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def exponential(mean_ps: float) -> np.ndarray:
    return np.round(stats.expon(scale=mean_ps).ppf(table_levels())).astype(np.int64)


def network(means_ps: Sequence[float], *, users: int = 1, gap_ps: float | None = None) -> Network:
    """Single servers in a row, exponential service; open with exponential gaps, else closed."""
    n = len(means_ps)
    dists = [exponential(m) for m in means_ps] + ([exponential(gap_ps)] if gap_ps else [])
    rows = [(Op.VISIT, i, i, 0, 0, 0, 16 + 2 * i) for i in range(n)] + [(Op.END, *[0] * 6)]
    none = ints()
    return Network(
        station_names=(*(f"queue{i}" for i in range(n)), "thread", "cpu"),
        station_kind=ints(*[Kind.FIFO] * n, Kind.GATE, Kind.FIFO),
        station_servers=ints(*[1] * (n + 2)), station_scale=ints(*[-1] * (n + 2)), scale=none,
        die_dist=ints(*[-1] * (n + 2)), die_gate=ints(*[-1] * (n + 2)),
        die_suspend_ps=ints(*[-1] * (n + 2)), die_gc=ints(*[-1] * (n + 2)),
        die_backlog=ints(*[0] * (n + 2)), round_most=ints(*[1] * (n + 2)),
        round_base_ps=ints(*[0] * (n + 2)), round_base_dist=ints(*[-1] * (n + 2)),
        round_in_order=ints(*[0] * (n + 2)), round_gathers=ints(*[0] * (n + 2)),
        gc_on_dist=none, gc_off_dist=none, gc_factor=none,
        dist=np.stack(dists), series=none, series_ptr=ints(0), series_block=none,
        ops=np.array(rows, np.int64), plan_phase_ptr=ints(0, 0), phase_child_ptr=ints(0),
        child_alt_ptr=ints(0), alt_program=none, alt_member=none, n_members=0, order=ints(0),
        flow_program=ints(0), flow_write=ints(0), flow_bytes=ints(4096), flow_order_ptr=ints(0),
        flow_order_len=ints(1), flow_stream=ints(-1), group_flow=ints(0), group_kinds=ints(1),
        group_threshold_ptr=ints(0), threshold=ints(1 << 32), group_targets=ints(1),
        group_measured=ints(1), group_open=ints(1 if gap_ps else 0),
        group_gap_dist=ints(n if gap_ps else -1), group_think_ps=ints(0),
        thread_gate=ints(n), thread_cpu=ints(n + 1), thread_interval_ps=ints(0),
        thread_first=ints(0), n_batch_targets=1, user_group=ints(*[0] * users),
        user_thread=ints(*[0] * users), user_target=ints(*[0] * users),
        user_stream=ints(*[0] * users), n_streams=0, stream_start=none,
    )  # fmt: skip


def mm1(load: float) -> Network:
    """M/M/1 with a mean service time of 1 us."""
    return network([MEAN_PS], gap_ps=MEAN_PS / load)


def mm1_exact(load: float) -> dict[str, float]:
    """IOPS, mean and percentiles of the time in M/M/1, s: exponential with mean S / (1 - load)."""
    mean = 1e-6 / (1 - load)
    tail = {f"p{q:g}": -math.log(1 - q / 100) * mean for q in (50.0, 90.0, 99.0, 99.9)}
    return {"iops": load * 1e6, "mean": mean, **tail}


def mva(means_s: Sequence[float], users: int) -> tuple[float, float]:
    """Throughput and mean cycle time of a closed network. Source: Reiser and Lavenberg, 1980."""
    queue = [0.0] * len(means_s)
    throughput = cycle = 0.0
    for n in range(1, users + 1):
        times = [s * (1 + q) for s, q in zip(means_s, queue, strict=True)]
        cycle = sum(times)
        throughput = n / cycle
        queue = [throughput * t for t in times]
    return throughput, cycle


def plain_reducer() -> Reducer:
    return Reducer(np.array([[4096.0], [0.0]]), lambda alternatives: np.zeros((0, 6)))


def measure(
    net: Network, goal: RunGoal, *, is_open: bool, seed: int = 1, users: int = 0
) -> Measured:
    engine = CompiledEngine(net, seed=seed)
    load = RunLoad(is_open=is_open, in_flight=users)
    return Controller(engine, plain_reducer(), goal, load).run()
