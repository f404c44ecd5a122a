"""Work beside the load: rebuild and check of an array, and what a write-back cache writes later.

Neither is in the statistics of requests (`Network.group_measured` 0), but both use the stations.

A rebuild is a paced closed loop, as md does it: 128 KiB of each member at a time, the next only
when that is done (md waits so while there is other IO and the rebuild is faster than
``sync_speed_min``), never faster than ``sync_speed_max``. Below the minimum md does not wait: a
second stream with many windows outstanding holds that rate. Source: Linux drivers/md/md.c,
md_do_sync and is_mddev_idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.model.commands import Commands, Planned
from nvmesim.model.host import Host
from nvmesim.model.lowered import RebuildInfo
from nvmesim.model.request_kinds import Access, RequestKind
from nvmesim.model.volume import VolumeTarget
from nvmesim.model.volume_plans import background_table
from nvmesim.network.builder import Row, const, op
from nvmesim.network.network import Op
from nvmesim.raid.map import BLOCK
from nvmesim.scenario.resolved import ResolvedScenario, Volume
from nvmesim.units import PS_PER_S

WINDOW: Final = 128 << 10
"""Bytes of a member that md rebuilds before it looks whether others want the array.
Source: md.c, md_do_sync: window = 32 * (PAGE_SIZE / 512) sectors."""
RESYNC_WINDOW: Final = 2 << 20
"""Bytes of a mirror that its resync has outstanding at most. Source: Linux drivers/md/raid1.c:
RESYNC_DEPTH 32 requests of RESYNC_BLOCK_SIZE."""
FORCED: Final = 16  # windows outstanding in the stream that keeps the least rebuild speed
OWN_PACE: Final = 1024
"""Units that a controller has outstanding at most to keep its least speed. Assumed: as much of its
cache as is needed; none publishes it."""
BATCH_ROWS: Final = 8
"""Rows that md's raid5 thread handles in one go. Source: md raid5.h, MAX_STRIPE_BATCH."""


@dataclass(frozen=True)
class BackgroundFlow:
    """One kind of background request."""

    rows: tuple[Row, ...]
    write: bool
    n_bytes: int
    planned: Planned
    share: float = 1.0


@dataclass(frozen=True)
class BackgroundGroup:
    """Users that do background requests for ever."""

    name: str
    socket: int
    flows: tuple[BackgroundFlow, ...]
    users: tuple[tuple[int, int], ...]
    """(users, ps between two submissions of theirs), a thread each."""
    is_stream: bool
    deferred: bool
    """True if its commands count as those of the measured requests (a write-back cache)."""


def rebuild_group(
    target: VolumeTarget, scenario: ResolvedScenario, commands: Commands, host: Host, counter: int,
    memory: int,
) -> tuple[BackgroundGroup, RebuildInfo]:  # fmt: skip
    """The rebuild (or check) of a volume; *counter* is a delay station that counts its units."""
    volume = target.volume
    table = background_table(volume, scenario.drives)
    first, n_phases = commands.bind(
        table, volume.members, memory, target.on_controller, Access(sequential=True)
    )
    planned = Planned(*commands.plans.add_order(table.order.astype(np.int64) + first), n_phases)
    socket = scenario.drives[volume.members[0]].socket
    unit = table.request_bytes
    cycles, per_child = target.host_cycles()
    work = host.ps(cycles + per_child * len(volume.members), socket)
    rows = [const(counter, 1), op(Op.VISIT_CPU, 0, -1, max(1, work))]
    rows += _restoring(target, unit, memory)
    rows += [op(Op.FORK, 1), op(Op.END)]
    windows = max(1, WINDOW // unit)
    beside = bool(scenario.workload)
    users = rebuild_users(volume, windows, unit) if beside else idle_users(volume, unit)
    number = volume.rebuilding
    group = BackgroundGroup(
        f"{volume.name} rebuild", socket,
        (BackgroundFlow(tuple(rows), number is not None, unit, planned),), tuple(users),
        is_stream=True, deferred=False,
    )  # fmt: skip
    drive = None if number is None else scenario.drives[volume.members[number]].name
    return group, RebuildInfo(volume.name, drive, counter, unit, volume.member_bytes)


def _restoring(target: VolumeTarget, unit: int, memory: int) -> list[Row]:
    """The reads of one unit of a rebuild, and what the engine does with them."""
    volume = target.volume
    if not volume.raid.stripe_cache:
        return [*target.serial_rows(1), op(Op.FORK, 0)]
    moved = unit * (len(volume.members) - 1)
    if target.stripe_rows is not None:
        work = target.stripe_rows.restore_rows(unit // BLOCK, target.xor_ps(moved))
        return [op(Op.FORK, 0), *work, *target.parity_memory(moved, memory)]
    batches = -(-unit // (BATCH_ROWS * BLOCK))
    return [*target.serial_rows(batches), op(Op.FORK, 0), *target.parity_rows(moved, memory)]


def rebuild_users(volume: Volume, windows: int, unit: int) -> list[tuple[int, int]]:
    """(users, ps between submissions): the stream at the least speed, and the one that waits."""
    users = []
    waiting = volume.sync_speed_max
    if volume.rebuild_pace != "waiting":
        forced = FORCED * windows if volume.engine.rebuild is None else OWN_PACE
        users.append((forced, round(unit * PS_PER_S / volume.sync_speed_min)))
        waiting -= volume.sync_speed_min
    if volume.rebuild_pace != "forced" and waiting > 0:
        users.append((windows, round(unit * PS_PER_S / waiting)))
    return users


def idle_users(volume: Volume, unit: int) -> list[tuple[int, int]]:
    """(users, ps between submissions) of an array with no other IO.

    Nothing waits for a window to end then: as much is outstanding as there are rows in the stripe
    cache, or as a mirror's resync allows. Source: md.c, md_do_sync; raid1.c, RESYNC_WINDOW.
    """
    if volume.raid.stripe_cache:
        users = volume.stripe_cache * BLOCK // unit
    else:
        users = RESYNC_WINDOW // unit
    return [(max(1, users), round(unit * PS_PER_S / volume.sync_speed_max))]


def destage_group(
    target: VolumeTarget, written: Sequence[tuple[RequestKind, float]]
) -> BackgroundGroup:
    """What a cache writes later, or reads ahead: the kinds in *written*, each with its share."""
    flows = []
    for kind, share in written:
        later = target.destaged(kind)
        in_order = target.writes_anew or kind.access == "sequential"
        planned = target.member_plan(later, Access(sequential=in_order))
        rows = (*target.destage_rows(later, planned.n_phases), op(Op.END))
        part = share * kind.n_bytes / later.n_bytes
        flows.append(BackgroundFlow(rows, later.write, later.n_bytes, planned, part))
    socket = written[0][0].socket
    sequential = not target.writes_anew and written[0][0].access == "sequential"
    users = ((target.destagers, 0),)
    name = f"{target.volume.name} {'destage' if written[0][0].write else 'read ahead'}"
    return BackgroundGroup(name, socket, tuple(flows), users, is_stream=sequential, deferred=True)
