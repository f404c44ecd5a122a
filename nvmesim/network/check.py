"""Checks of a network before it runs: an engine takes them for granted."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Final

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Ints
from nvmesim.errors import NetworkError
from nvmesim.network.network import (
    GATES,
    HORIZON_PS,
    MAX_CHILDREN,
    N_FIELDS,
    O_CHILD,
    O_CODE,
    O_DELAY,
    O_HANDLER,
    O_PHASE,
    O_PROGRAM,
    O_SERVICE,
    SCALE_ONE,
    THREAD_GATES,
    VISITS,
    Kind,
    Network,
    Op,
)
from nvmesim.rng import TABLE

SERVICE: Final = (O_SERVICE, O_CHILD)
"""Columns of a visit that are times: nothing but their ranges and `dist` depends on them."""
REMEMBERED: Final = 4096
"""Structures that were found in order, kept by their digests."""
_in_order: dict[bytes, None] = {}


def check(net: Network) -> bytes:
    """Raise NetworkError naming the first array or operation that breaks a rule of `Network`.

    Return a digest of all but times: what follows from the structure alone may be kept by it. The
    compiled engine reads out of bounds and wraps silently; this is what prevents it. A fit and
    a sweep run thousands of networks that differ in times alone: of a structure that was in order
    before, only those are looked at.
    """
    _check_arrays(net)
    structure = _structure(net)
    if structure in _in_order:
        _check_times(net)
        return structure
    _check_whole(net)
    while len(_in_order) >= REMEMBERED:
        _in_order.pop(next(iter(_in_order)), None)
    _in_order[structure] = None
    return structure


def _is_visit(ops: Ints) -> npt.NDArray[np.bool_]:
    """bool[n_ops]: codes that are none of `Op` may be among them."""
    return np.asarray((ops[:, O_CODE] >= min(VISITS)) & (ops[:, O_CODE] <= max(VISITS)))


def _structure(net: Network) -> bytes:
    """Digest of all of *net* but its names, the times of its visits and their distributions.

    Of delays behind visits it holds which are alike and which are none.
    """
    digest = hashlib.sha256()  # twice as fast as blake2b where the CPU knows it
    for item in fields(net):
        value = getattr(net, item.name)
        if item.name == "station_names":
            value = len(value)
        elif item.name == "ops":
            value = value.copy()
            visits = _is_visit(value)
            for column in SERVICE:
                value[visits, column] = 0
            plain = value[:, 0] == Op.VISIT
            value[plain, O_DELAY] = _ranks(value[plain, O_DELAY])
        if isinstance(value, np.ndarray):
            digest.update(repr(value.shape).encode())
            value = b"" if item.name == "dist" else value.data
        digest.update(value if not isinstance(value, int) else repr(value).encode())
    return digest.digest()


def _ranks(delays: Ints) -> Ints:
    """int64[n]: place of each of *delays* among the different ones, 0 being one of them."""
    ranks: Ints = np.unique(np.append(delays, 0), return_inverse=True)[1][:-1]
    return ranks


def _check_times(net: Network) -> None:
    """Ranges of what `_structure` leaves out."""
    _check_tables(net)
    service = net.ops[_is_visit(net.ops)]
    _within(service[:, O_SERVICE], 0, _TIME, "service of a visit")
    _within(service[:, O_CHILD], 0, 1 << 40, "service of a visit per child")
    plain = net.ops[:, O_CODE] == Op.VISIT
    _within(net.ops[plain, O_DELAY], 0, _TIME, "delay behind a visit")


def _check_tables(net: Network) -> None:
    _within(net.dist, 0, _TIME, "dist")
    _require(bool((np.diff(net.dist[:, : net.dist.shape[1] // 2]) >= 0).all()), "dist falls")


def _check_whole(net: Network) -> None:
    _check_ranges(net)
    _check_stations(net)
    _check_ops(net)
    _check_plans(net)
    _check_flows(net)
    _check_users(net)
    _check_nesting(net)
    _check_progress(net)


def _require(ok: bool | np.bool_, what: str) -> None:
    if not ok:
        raise NetworkError(f"network: {what}")


def _within(values: Ints, low: int, high: int, what: str) -> None:
    """Require low <= values < high, naming the first that is not."""
    if values.size and (values.min() < low or values.max() >= high):
        bad = np.flatnonzero((values < low) | (values >= high))
        i = int(bad[0])
        found = int(np.ravel(values)[i])
        raise NetworkError(f"network: {what}[{i}] is {found}; expected {low} to {high - 1}")


_ROWS = {
    "station_kind": "station_servers station_scale die_dist die_gate die_suspend_ps"
    " die_backlog die_every die_batch_dist die_slow_dist"
    " round_most round_base_ps round_base_dist round_gathers"
    " limit_saved_ps wake_ps wake_half_ps batch_most batch_ps",
    "alt_program": "alt_member",
    "flow_program": "flow_write flow_bytes flow_order_ptr flow_order_len flow_stream flow_class",
    "group_flow": "group_kinds group_threshold_ptr group_targets group_measured group_open"
    " group_gap_dist group_think_ps group_on_dist group_off_dist group_on_slow group_off_slow",
    "thread_gate": "thread_cpu thread_interval_ps thread_first",
    "user_group": "user_thread user_target user_stream",
    "arrival_ps": "arrival_flow",
}
"""Arrays that have one row a thing, by the first of them."""


_TIME: Final = HORIZON_PS >> 14
"""No single time is longer, ps."""
_RANGES: Final[tuple[tuple[int, int | str, str], ...]] = (
    # least, below (or below the rows of an array), arrays
    (0, len(Kind), "station_kind"),
    (1, 1 << 31, "station_servers batch_most round_most series_block flow_order_len"),
    (0, 1 << 31, "die_backlog user_stream"),
    (-1, 1 << 31, "user_target"),
    (1, 1 << 24, "scale"),
    (0, 2, "round_gathers flow_write group_measured"),
    (0, 3, "group_open"),
    (-1, _TIME, "die_suspend_ps"),
    (0, _TIME, "wake_half_ps round_base_ps series group_think_ps thread_interval_ps"),
    (0, 1 << 40, "wake_ps batch_ps die_every flow_bytes"),
    (0, HORIZON_PS >> 4, "limit_saved_ps"),
    (0, HORIZON_PS, "arrival_ps"),
    (0, 1 << 61, "stream_start"),
    # below, the time that a burst holds would wrap
    (1 << 8, SCALE_ONE + 1, "group_on_slow"),
    (
        -1,
        "dist",
        "die_dist die_batch_dist die_slow_dist round_base_dist group_gap_dist"
        " group_on_dist group_off_dist",
    ),
    (-1, "station_kind", "die_gate"),
    (0, "station_kind", "thread_gate thread_cpu"),
    (0, "ops", "alt_program flow_program"),
    (0, "order", "flow_order_ptr"),
    (0, "flow_program", "group_flow"),
    (0, "threshold", "group_threshold_ptr"),
    (0, "group_flow", "user_group"),
    (0, "thread_gate", "user_thread"),
)


def _check_arrays(net: Network) -> None:
    for item in fields(net):
        value = getattr(net, item.name)
        if isinstance(value, np.ndarray):
            if value.dtype != np.int64:  # a dtype takes long to print: only when it is wrong
                raise NetworkError(f"network: {item.name} is {value.dtype}, not int64")
            _require(value.flags.c_contiguous, f"{item.name} is not contiguous")
            _require(value.ndim == (2 if item.name in ("dist", "ops") else 1), f"{item.name}.ndim")
    _require(len(net.station_names) == net.n_stations, "station_names and station_kind differ")
    for first, others in _ROWS.items():
        n = len(getattr(net, first))
        for name in others.split():
            _require(len(getattr(net, name)) == n, f"{name} has not {n} rows, as {first}")
    _require(net.dist.shape[1] == TABLE, f"dist has {net.dist.shape[1]} columns, not {TABLE}")


def _check_ranges(net: Network) -> None:
    for low, high, names in _RANGES:
        for name in names.split():
            below = len(getattr(net, high)) if isinstance(high, str) else high
            _within(getattr(net, name), low, below, name)
    n_flows = len(net.flow_program)
    _within(net.station_scale, -1, len(net.scale) + 1, "station_scale")
    _within(net.alt_member, 0, max(net.n_members, 1), "alt_member")
    _within(net.order, 0, len(net.plan_phase_ptr) - 1, "order")
    _within(net.flow_class, -1, max(1, net.n_classes), "flow_class")
    _within(net.flow_stream, -1, max(net.n_streams, 1), "flow_stream")
    _within(net.group_kinds, 1, n_flows + 1, "group_kinds")
    _within(net.group_targets, 1, n_flows + 1, "group_targets")
    _check_tables(net)


def _check_stations(net: Network) -> None:
    n_dists = len(net.dist)
    fifo = net.station_kind == Kind.FIFO
    _within(net.station_servers[fifo], 1, 1 << 20, "servers of FIFO")
    kinds = (Kind.DIE, Kind.ROUNDS, Kind.SLEEPER, Kind.BATCHER, Kind.TURN)
    one = bool((net.station_servers[np.isin(net.station_kind, kinds)] == 1).all())
    _require(one, "a die, rounds, a sleeper, a batcher or a turn have one server")
    for s in np.flatnonzero(net.station_scale >= 0):
        _require(net.station_kind[s] == Kind.FIFO, f"station {s} has a scale and is not FIFO")
        end = int(net.station_scale[s] + net.station_servers[s])
        _require(end <= len(net.scale), f"scale of station {s} ends past the table")
    gates = net.die_gate[net.die_gate >= 0]
    _require(bool((net.station_kind[gates] == Kind.GATE).all()), "die_gate names no gate")
    stalls = net.die_every > 0
    _within(net.die_batch_dist[stalls], 0, n_dists, "die_batch_dist of a die with batches")
    _within(net.die_slow_dist[stalls], 0, n_dists, "die_slow_dist of a die with batches")
    # Programs that wait at the start are a die's, and fit the gate that they will release.
    waits = np.flatnonzero(net.die_backlog)
    able = (net.station_kind[waits] == Kind.DIE) & (net.die_dist[waits] >= 0)
    _require(bool(able.all()), "die_backlog of a station without programs")
    held = net.slots_held()
    _require(bool((held <= net.station_servers).all()), "die_backlog exceeds its gate")
    others = net.die_gate[net.station_kind != Kind.DIE]
    _require(bool((others == -1).all()), "die_gate of a station that is not a die")


def _check_ops(net: Network) -> None:
    _require(net.ops.shape[1] == N_FIELDS, "ops has not N_FIELDS columns")
    _within(net.ops[:, O_CODE].copy(), 0, len(Op), "ops.code")
    _require(len(net.ops) > 0 and net.ops[-1, O_CODE] == Op.END, "the last operation is not END")
    _check_columns(net)
    ends = np.flatnonzero(net.ops[:, O_CODE] == Op.END)
    for i, further in jumps(net).items():
        room = int(ends[np.searchsorted(ends, i)]) - i - 1
        fine = all(0 <= n <= room for n in further)
        _require(fine, f"operation {i} goes on behind the end of its program")


def _check_columns(net: Network) -> None:
    """Ranges of the columns a to e of each code, and the kinds of station that a names."""
    code, a, b, c, d, e, _ = net.ops.T
    n, n_ops, many = net.n_stations, len(net.ops), 1 << 40

    def of(*codes: Op) -> npt.NDArray[np.bool_]:
        return np.isin(code, codes)

    drawn = of(Op.VISIT, Op.VISIT_CPU, Op.VISIT_BANK, Op.VISIT_LANE)
    single, visits = of(Op.VISIT, Op.VISIT_SERIES, Op.VISIT_UNORDERED), of(*VISITS)
    banks, slots = of(Op.VISIT_BANK, Op.VISIT_LANE, Op.DESTAGE), of(Op.ACQUIRE, Op.RELEASE)
    turns, threads = of(Op.JOIN, Op.CLOSE, Op.LEAVE), of(Op.ACQUIRE_THREAD)
    forks, splits, destages = of(Op.FORK), of(Op.SPLIT), of(Op.DESTAGE)
    for rows, column, low, high, what in (
        (drawn, b, -1, len(net.dist), "distribution of a visit"),
        (of(Op.VISIT_SERIES), b, 0, len(net.series_block), "series of a visit"),
        (of(Op.VISIT_UNORDERED), b, 0, len(net.dist), "waits of a visit"),
        (visits, c, 0, _TIME, "service of a visit"),
        (visits, e, 0, many, "service of a visit per child"),
        (single, a, 0, n, "station of a visit"), (single, d, 0, _TIME, "delay behind a visit"),
        (banks, a, 0, n, "first of a bank"), (banks, d, 1, n + 1, "stations of a bank"),
        (banks, a + d, 1, n + 1, "end of a bank"),
        (slots, a, 0, n, "gate"), (slots, b, 1, many, "slots of a gate"),
        (turns, a, 0, n, "turn"), (turns, d, 0, _TIME, "tick of a turn"),
        (threads, a, 0, many, "setup"), (threads, b, 0, many, "setup"),
        (threads, c, 0, (1 << 36) + 1, "handler"), (threads, d, 0, _TIME, "half of a setup"),
        (forks, a, 0, n_ops, "phase"), (destages, b, 0, MAX_CHILDREN + 1, "programs at once"),
        (splits, a, 1, MAX_CHILDREN + 1, "units"), (splits, b, 0, n_ops, "program of a unit"),
        (splits, d, 0, n + 1, "lanes of units"),
    ):  # fmt: skip
        _within(column[rows], low, high, what)
    kind = net.station_kind
    _require(not np.isin(kind[a[single]], GATES).any(), "a visit to a gate")
    # who is inside is counted to the end of the delay: it would slow the others down
    slowed = (d[single] > 0) & (net.station_scale[a[single]] >= 0)
    _require(not slowed.any(), "delay behind a scale")
    gathered = kind[a[of(Op.VISIT_UNORDERED)]] == Kind.ROUNDS
    _require(not gathered.any(), "a round takes in order")
    no_program = (kind != Kind.DIE) | (net.die_dist < 0)
    for rows, bad, what in (
        (banks, np.isin(kind, GATES), "a gate is not a bank"),
        (destages, no_program, "not every station is a die with programs"),
    ):
        before = np.concatenate([[0], np.cumsum(bad)])
        _require(bool((before[(a + d)[rows]] == before[a[rows]]).all()), what)
    _require(bool((kind[a[slots]] == Kind.GATE).all()), "slots of what is no gate")
    fits = b[slots] <= net.station_servers[a[slots]]
    _require(bool(fits.all()), "more slots than the gate has")
    _require(bool((kind[a[turns]] == Kind.TURN).all()), "a turn that is none")


def jumps(net: Network) -> dict[int, tuple[int, ...]]:
    """Operation -> how many operations further tokens may go on, where that is not the next."""
    found: dict[int, tuple[int, ...]] = {}
    for i in np.flatnonzero(np.isin(net.ops[:, O_CODE], (Op.JOIN, Op.LEAVE))).tolist():
        code, _, b, c, d, *_ = net.ops[i].tolist()
        found[i] = (b, c) if code == Op.JOIN and d > 0 else (b,)
    return found


def _check_plans(net: Network) -> None:
    for name, pointer, size in (
        ("plan_phase_ptr", net.plan_phase_ptr, len(net.phase_child_ptr) - 1),
        ("phase_child_ptr", net.phase_child_ptr, len(net.child_alt_ptr) - 1),
        ("child_alt_ptr", net.child_alt_ptr, len(net.alt_program)),
        ("series_ptr", net.series_ptr, len(net.series)),
    ):
        ok = len(pointer) >= 1 and pointer[0] == 0 and pointer[-1] == size
        _require(ok and bool((np.diff(pointer) >= 0).all()), f"{name} is not a row pointer")
    _require(bool((np.diff(net.child_alt_ptr) >= 1).all()), "a child has no program")
    n_plans = len(net.plan_phase_ptr) - 1
    children = np.diff(net.phase_child_ptr[net.plan_phase_ptr])
    _within(children, 0, MAX_CHILDREN + 1, "children of plan")
    phases = np.diff(net.plan_phase_ptr)
    needed = int(net.ops[net.ops[:, O_CODE] == Op.FORK, O_PHASE].max(initial=-1)) + 1
    _require(n_plans == 0 or int(phases.min()) >= needed, f"a plan has fewer than {needed} phases")
    _require(bool((np.diff(net.series_ptr) >= net.series_block).all()), "series below its block")


def _check_flows(net: Network) -> None:
    n_flows, n_order, n_thresholds = len(net.flow_program), len(net.order), len(net.threshold)
    _within(net.flow_order_ptr + net.flow_order_len, 1, n_order + 1, "flow_order_ptr")
    last = net.group_flow + net.group_targets * net.group_kinds
    _within(last, 1, n_flows + 1, "group_flow")
    ends = net.group_threshold_ptr + net.group_kinds
    _within(ends, 1, n_thresholds + 1, "threshold")
    for start, end in zip(net.group_threshold_ptr, ends, strict=True):
        levels = net.threshold[start:end]
        ok = levels[0] >= 0 and levels[-1] == 1 << 32 and bool((np.diff(levels) >= 0).all())
        _require(ok, "thresholds do not rise to 1")
    _require(bool((net.group_gap_dist[net.group_open == 1] >= 0).all()), "an open loop has no gaps")
    bursts = net.group_on_dist >= 0
    _within(net.group_off_dist[bursts], 0, len(net.dist), "group_off_dist of a group with bursts")
    silent = net.group_off_slow == 0  # a burst in which nothing arrives never ends
    _within(net.group_off_slow[~silent], SCALE_ONE, 1 << 28, "group_off_slow")
    _require(bool((net.group_open[bursts] == 1).all()), "bursts without gaps to stretch")


def _check_users(net: Network) -> None:
    n_threads = len(net.thread_gate)
    gates = net.station_kind[net.thread_gate]
    _require(bool(np.isin(gates, THREAD_GATES).all()), "thread_gate names no gate")
    cpus = net.station_kind[net.thread_cpu]
    _require(not np.isin(cpus, GATES).any(), "thread_cpu names a gate")
    targets = net.group_targets[net.user_group]
    _require(bool((net.user_target < targets).all()), "a user's target is not in its group")
    shares = bool((net.ops[net.ops[:, O_CODE] == Op.ACQUIRE_THREAD, O_HANDLER] > 0).any())
    most = int(targets.max(initial=1)) if shares else 1
    _within(np.array([net.n_batch_targets]), most, 1 << 31, "n_batch_targets")
    robin = net.user_target < 0
    turns = np.full(n_threads, np.iinfo(np.int64).max)
    np.minimum.at(turns, net.user_thread[robin], targets[robin])
    same = turns[net.user_thread[robin]] == targets[robin]
    _require(bool(same.all()), "users of one round robin have different numbers of targets")
    _require(bool((net.thread_first >= 0).all()), "thread_first is negative")
    _require(bool((net.thread_first < turns).all()), "a round robin starts at no target")
    _check_streams(net)
    _check_arrivals(net)


def _check_streams(net: Network) -> None:
    added = np.zeros(len(net.group_flow), np.int64)
    np.maximum.at(added, net.user_group, net.user_stream)
    for group, first in enumerate(net.group_flow.tolist()):
        n_flows = int(net.group_targets[group] * net.group_kinds[group])
        top = int(net.flow_stream[first : first + n_flows].max(initial=-1))
        top += int(added[group]) if top >= 0 else 0
        _require(top < net.n_streams, f"stream counter {top} is missing")
    _require(len(net.stream_start) == net.n_streams, "stream_start has not n_streams rows")


def _check_arrivals(net: Network) -> None:
    replayed = np.flatnonzero(net.group_open[net.user_group] == 2)
    pointer = net.user_arrival_ptr
    if len(pointer) or replayed.size:
        _require(len(pointer) == len(net.user_group) + 1, "user_arrival_ptr has a row too few")
        _within(pointer, 0, len(net.arrival_ps) + 1, "user_arrival_ptr")
        _require(bool((np.diff(pointer) >= 0).all()), "user_arrival_ptr falls")
    for user in replayed:
        group = net.user_group[user]
        first = net.group_flow[group]
        end = first + net.group_targets[group] * net.group_kinds[group]
        flows = net.arrival_flow[pointer[user] : pointer[user + 1]]
        _within(flows, int(first), int(end), f"arrival_flow of user {user}")


def _counts(net: Network, codes: tuple[Op, ...], starts: Ints) -> Ints:
    """int64[n]: operations among *codes* in the programs that begin at *starts*."""
    ends = np.flatnonzero(net.ops[:, O_CODE] == Op.END)
    ends = ends[np.searchsorted(ends, starts)]
    counted = np.zeros(len(Op), bool)
    counted[list(codes)] = True
    total = np.concatenate([[0], np.cumsum(counted[net.ops[:, O_CODE]])])
    return np.asarray(total[ends] - total[starts], np.int64)


def _check_nesting(net: Network) -> None:
    """Only a request forks, and a unit does not split: orders and keys would not be unique."""
    units = net.ops[net.ops[:, O_CODE] == Op.SPLIT, O_PROGRAM]
    _require(not _counts(net, (Op.FORK,), net.alt_program).any(), "a child forks")
    parts = np.concatenate([net.alt_program, units])
    _require(not _counts(net, (Op.ANSWER,), parts).any(), "a child answers")
    _require(bool((_counts(net, (Op.ANSWER,), net.flow_program) <= 1).all()), "answered twice")
    _require(not _counts(net, (Op.FORK, Op.SPLIT), units).any(), "a unit forks or splits")


def _check_progress(net: Network) -> None:
    """A closed loop without a pause must take time, or its instant would never end."""
    moves = np.isin(net.ops[:, O_CODE], VISITS)
    splits = np.flatnonzero(net.ops[:, O_CODE] == Op.SPLIT)
    units_move = _counts(net, VISITS, net.ops[splits, O_PROGRAM]) > 0
    moves[splits] = units_move
    for i, further in jumps(net).items():
        moves[i + 1 : i + 1 + max(further)] = False
    total = np.concatenate([[0], np.cumsum(moves)])
    ends = np.flatnonzero(net.ops[:, O_CODE] == Op.END)

    def takes_time(starts: Ints) -> npt.NDArray[np.bool_]:
        return np.asarray(total[ends[np.searchsorted(ends, starts)]] > total[starts])

    quick = np.flatnonzero(~takes_time(net.flow_program))
    if not quick.size:
        return
    alternatives = np.concatenate([[0], np.cumsum(takes_time(net.alt_program))])
    n_alts = np.diff(net.child_alt_ptr)
    child = np.diff(alternatives[net.child_alt_ptr]) == n_alts
    phase = np.diff(np.concatenate([[0], np.cumsum(child)])[net.phase_child_ptr]) > 0
    for g in np.flatnonzero((net.group_open == 0) & (net.group_think_ps == 0)):
        first = int(net.group_flow[g])
        end = first + int(net.group_targets[g] * net.group_kinds[g])
        for flow in quick[(quick >= first) & (quick < end)]:
            start = int(net.flow_program[flow])
            ops = net.ops[start : int(ends[np.searchsorted(ends, start)])]
            forks = ops[ops[:, O_CODE] == Op.FORK, O_PHASE]
            at = int(net.flow_order_ptr[flow])
            plans = net.order[at : at + int(net.flow_order_len[flow])]
            slow = phase[net.plan_phase_ptr[plans][:, None] + forks].any(axis=1)
            _require(bool(slow.all()), f"flow {flow} takes no time: its closed loop never advances")
