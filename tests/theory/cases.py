"""Systems with a known answer, and how to simulate them.

Every case runs REPLICATIONS independent replications; its allowed error is Student's t times their
standard error, at a false-alarm probability of FALSE_ALARM for the whole table. The quantile tables
differ from the exponential by 3e-5 of its mean, far less than any standard error here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.stats import lognorm, t

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import HIST_BINS, Acc, Batch, bin_index
from nvmesim.network.network import HORIZON_PS, Network
from tests.engines import builder as b
from tests.theory import formulas as f

US = 1_000_000
REPLICATIONS = 30
WARM_UP = 10_000
REQUESTS = 30_000
LONG = 160_000  # requests where the queue's memory is long
FALSE_ALARM = 1e-4

Metric = Callable[[Batch], float]


@dataclass(frozen=True)
class Case:
    """A system: what it is, what theory says (times in us, rates in 1/us), what is measured."""

    name: str
    exact: float
    net: Network
    metric: Metric
    seed: int = 1
    slack: float = 0.0  # relative error of the theory itself, where it is an approximation
    bound: Literal["", "upper", "lower"] = ""  # the theory is a bound, not a value
    requests: int = REQUESTS


@dataclass(frozen=True)
class Outcome:
    """What a case gave."""

    case: Case
    simulated: float
    allowed: float

    @property
    def error(self) -> float:
        return self.simulated - self.case.exact

    @property
    def is_good(self) -> bool:
        """Within the allowed error; of a bound, on its side or so near to it."""
        excess = {"": abs(self.error), "upper": self.error, "lower": -self.error}
        return excess[self.case.bound] <= self.allowed


def outcome(case: Case, n_cases: int) -> Outcome:
    """Simulate *case*, one of *n_cases*."""
    values = []
    for replication in range(REPLICATIONS):
        engine = CompiledEngine(case.net, seed=case.seed, replication=replication)
        engine.advance(WARM_UP, HORIZON_PS)
        values.append(case.metric(engine.advance(case.requests, HORIZON_PS)))
    error = float(np.std(values, ddof=1) / np.sqrt(REPLICATIONS))
    factor = float(t.ppf(1 - FALSE_ALARM / (2 * n_cases), REPLICATIONS - 1))
    return Outcome(case, float(np.mean(values)), factor * error + case.slack * abs(case.exact))


def sojourn(batch: Batch) -> float:
    """Mean latency, us."""
    return float(batch.latency_sum_ps[:, 0].sum()) / batch.completions / US


def throughput(batch: Batch) -> float:
    """Completions per us."""
    return batch.completions / (batch.end_ps - batch.start_ps) * US


def wait_at(station: int) -> Metric:
    return lambda batch: float(
        batch.stations[station, Acc.WAIT] / batch.stations[station, Acc.VISITS] / US
    )


def utilization_of(station: int, servers: int = 1) -> Metric:
    return lambda batch: float(
        batch.stations[station, Acc.SERVICE] / (batch.end_ps - batch.start_ps) / servers
    )


def share_above(bin_edge_us: float) -> Metric:
    """Share of latencies at or above the bin of a latency, so that no bin is divided."""
    first = bin_index(round(bin_edge_us * US))
    return lambda batch: float(
        batch.histogram[:, 0, first:HIST_BINS].sum() / batch.histogram[:, 0].sum()
    )


def bin_edge_us(value_us: float) -> float:
    """Lower edge of the histogram bin of *value_us*."""
    value = round(value_us * US)
    shift = max(0, value.bit_length() - 8)
    return (value >> shift << shift) / US


def of_group(group: int, net: Network) -> Metric:
    """Completions per us of a group with one flow."""
    flow = int(net.group_flow[group])
    return lambda batch: float(batch.flows[flow] / (batch.end_ps - batch.start_ps) * US)


Dist = Callable[[b.NetworkBuilder], int]


def exponential(mean_us: float) -> Dist:
    return lambda net: net.exponential(mean_us * US)


def constant(us: float) -> Dist:
    return lambda net: net.dist(lambda p: np.full_like(p, us * US))


def uniform(low_us: float, high_us: float) -> Dist:
    return lambda net: net.uniform(round(low_us * US), round(high_us * US))


def lognormal(mean_us: float, sigma: float) -> Dist:
    scale = mean_us * US * np.exp(-(sigma**2) / 2)
    return lambda net: net.dist(lambda p: lognorm.ppf(p, sigma, scale=scale))


def moments_us(dist: Dist) -> tuple[float, float]:
    net = b.NetworkBuilder()
    dist(net)
    mean, second = f.moments(net.tables[0])
    return mean / US, second / US**2


def queue(gap: Dist, service: Dist, servers: int = 1) -> Network:
    """G/G/c: station 0."""
    net = b.NetworkBuilder()
    station = net.fifo(servers)
    net.opened(net.program(b.visit(station, dist=service(net))), gap(net))
    return net.build()


def open_queues() -> list[Case]:
    cases = []
    for rho in (0.5, 0.8, 0.9):
        net = queue(exponential(1), exponential(rho))
        mean = f.mm1_sojourn(1, rho)
        edge = bin_edge_us(2 * mean)
        cases += [
            Case(f"M/M/1 {rho}: sojourn", mean, net, sojourn, requests=LONG),
            Case(f"M/M/1 {rho}: P(T > 2 E T)", float(np.exp(-edge / mean)), net,
                 share_above(edge), requests=LONG),
            Case(f"M/M/1 {rho}: utilization", rho, net, utilization_of(0)),
        ]  # fmt: skip
    for c in (2, 4, 16):
        net = queue(exponential(1), exponential(0.8 * c), c)
        wait = f.mmc_wait(c, 1, 0.8 * c)
        cases += [
            Case(f"M/M/{c} 0.8: wait", wait, net, wait_at(0), requests=LONG),
            Case(f"M/M/{c} 0.8: utilization", 0.8, net, utilization_of(0, c)),
        ]
    services = {"D": constant(0.7), "uniform": uniform(0.2, 1.2), "lognormal": lognormal(0.7, 0.8)}
    for name, service in services.items():
        wait = f.mg1_wait(1, *moments_us(service))
        cases.append(
            Case(f"M/{name}/1 0.7: wait", wait, queue(exponential(1), service), wait_at(0))
        )
    return cases


def general_queues() -> list[Case]:
    paced = queue(constant(1), exponential(0.8))
    spread = queue(uniform(0.5, 1.5), exponential(0.8))
    both = queue(uniform(0.5, 1.5), uniform(0.4, 1.2))
    bound = f.kingman(1, 0.8, 1 / 12, 0.8**2 / 12)
    return [
        Case("D/M/1 0.8: sojourn", f.gm1_sojourn(0.8, lambda s: np.exp(-s)), paced, sojourn),
        Case("U/M/1 0.8: sojourn",
             f.gm1_sojourn(0.8, lambda s: np.exp(-s) * np.sinh(s / 2) / (s / 2)), spread, sojourn),
        Case("U/U/1 0.8: wait <= Kingman", bound, both, wait_at(0), bound="upper"),
        *between_bounds(),
    ]  # fmt: skip


def between_bounds() -> list[Case]:
    """G/G/1 between its bounds, which lie a factor of two and a half apart."""
    service = lognormal(0.7, 1.2)
    mean, second = moments_us(service)
    net = queue(uniform(0.5, 1.5), service)
    variance = second - mean**2
    high, low = f.kingman(1, mean, 1 / 12, variance), f.marchal(1, mean, 1 / 12, variance)
    return [
        Case("U/lognormal/1 0.7: wait <= Kingman", high, net, wait_at(0), bound="upper",
             requests=LONG),
        Case("U/lognormal/1 0.7: wait >= lower bound", low, net, wait_at(0), bound="lower",
             requests=LONG),
    ]  # fmt: skip


def tandem_and_gates() -> list[Case]:
    net = b.NetworkBuilder()
    rows = [b.visit(net.fifo(), dist=net.exponential(s * US)) for s in (0.5, 0.7, 0.3)]
    net.opened(net.program(*rows), net.exponential(US))
    sojourns = sum(f.mm1_sojourn(1, s) for s in (0.5, 0.7, 0.3))
    cases = [Case("tandem of three M/M/1: sojourn", sojourns, net.build(), sojourn)]
    for k in (1, 3, 10):
        net = b.NetworkBuilder()
        gate, source, server = net.gate(k), net.fifo(), net.fifo()
        program = net.program(
            b.acquire(gate),
            b.visit(source, dist=net.exponential(US)),
            b.visit(server, dist=net.exponential(0.9 * US)),
            b.release(gate),
        )
        net.closed(program, k + 5)
        exact = f.mm1k_throughput(k, 1, 0.9)
        cases.append(Case(f"M/M/1/{k} 0.9: throughput", exact, net.build(), throughput))
    return cases


def closed_networks() -> list[Case]:
    cases = []
    demands = (1.0, 0.6, 0.3)
    for users in (1, 4, 16, 64, 256, 1000):
        net = b.NetworkBuilder()
        rows = [b.visit(net.fifo(), dist=net.exponential(d * US)) for d in demands]
        rows.append(b.visit(net.delay(), dist=net.exponential(20 * US)))
        net.closed(net.program(*rows), users)
        exact = f.mva_throughput(users, demands, 20)
        cases.append(Case(f"MVA, {users} users: throughput", exact, net.build(), throughput))
    cases += two_classes((8, 5), (0.0, 3.0))
    for machines, repairmen in ((5, 1), (20, 1), (20, 3)):
        exact = f.repairman_throughput(machines, 10, 1, repairmen)
        net = b.NetworkBuilder()
        net.closed(
            net.program(
                b.visit(net.delay(), dist=net.exponential(10 * US)),
                b.visit(net.fifo(repairmen), dist=net.exponential(US)),
            ),
            machines,
        )
        name = f"{machines} machines, {repairmen} repairmen: throughput"
        cases.append(Case(name, exact, net.build(), throughput))
    thinks = {"D": constant(8), "uniform": uniform(0, 16), "lognormal": lognormal(8, 1.0)}
    for name, think in thinks.items():
        net = b.NetworkBuilder()
        net.closed(
            net.program(
                b.visit(net.delay(), dist=think(net)), b.visit(net.fifo(), dist=net.exponential(US))
            ),
            10,
        )
        exact = f.mva_throughput(10, [1.0], moments_us(think)[0])
        cases.append(Case(f"insensitive delay, {name}: throughput", exact, net.build(), throughput))
    return cases


def forked(n: int, dist: Dist, gap: Dist | None, queued: bool, merged: bool = False) -> Network:
    """Fork to *n* stations and join; *merged*: one request at a time."""
    net = b.NetworkBuilder()
    row = dist(net)
    children = []
    for i in range(n):
        station = net.fifo() if queued else net.delay()
        children.append([(net.program(b.visit(station, dist=row)), i)])
    plan = net.plan(children)
    gate = net.gate(1)
    rows = [b.acquire(gate), b.fork(), b.release(gate)] if merged else [b.fork()]
    program = net.program(*rows)
    if gap is None:
        net.closed(program, 1, plan=plan)
    else:
        net.opened(program, gap(net), plan=plan)
    return net.build()


def fork_join() -> list[Case]:
    cases = []
    for n in (2, 8, 32):
        idle = forked(n, exponential(1), None, queued=False)
        cases.append(
            Case(f"largest of {n} exponentials: mean", f.harmonic(n), idle, sojourn, requests=8000)
        )
        flat = forked(n, uniform(0, 1), None, queued=False)
        cases.append(
            Case(f"largest of {n} uniforms: mean", n / (n + 1), flat, sojourn, requests=8000)
        )
    cases += [
        Case(f"fork-join of 2, {rho}: sojourn", f.nelson_tantawi(2, 1, rho),
             forked(2, exponential(rho), exponential(1), queued=True), sojourn)
        for rho in (0.3, 0.7)
    ]  # fmt: skip
    # Nelson and Tantawi state an error of less than 5 % for n <= 32
    cases += [
        Case(f"fork-join of {n}, 0.6: sojourn (approx.)", f.nelson_tantawi(n, 1, 0.6),
             forked(n, exponential(0.6), exponential(1), queued=True), sojourn,
             slack=0.05, requests=15_000)
        for n in (4, 8, 16, 32)
    ]  # fmt: skip
    mean = 0.3
    largest, square = mean * f.harmonic(4), f.squared_max_of_exponentials(4, mean)
    cases.append(
        Case("split-merge of 4: sojourn", f.mg1_wait(1, largest, square) + largest,
             forked(4, exponential(mean), exponential(1), queued=True, merged=True), sojourn)
    )  # fmt: skip
    return cases


HEADER = f"{'system':44} {'simulated':>10} {'exact':>10} {'error':>8} {'allowed':>8}"


def table_row(result: Outcome) -> str:
    """One line of the table that `make theory` prints."""
    exact = result.case.exact
    mark = "" if result.is_good else "  <-- off"
    return (
        f"{result.case.name:44} {result.simulated:10.5f} {exact:10.5f} "
        f"{result.error / exact:8.3%} {result.allowed / exact:8.3%}{mark}"
    )


def all_cases() -> list[Case]:
    """Every case."""
    found = [
        *open_queues(), *general_queues(), *tandem_and_gates(), *closed_networks(),
        *fork_join(), *two_classes((700, 300), (500.0, 900.0), LONG), *banks(), *rounds(),
    ]  # fmt: skip
    return [replace(case, seed=seed) for seed, case in enumerate(found, start=1)]


def two_classes(
    users: tuple[int, int], thinks: tuple[float, float], requests: int = REQUESTS
) -> list[Case]:
    """They share two stations in different proportions (BCMP: one time a station)."""
    net = b.NetworkBuilder()
    one, two = net.fifo(), net.fifo()
    s, u = net.exponential(1.0 * US), net.exponential(0.8 * US)
    once = net.program(b.visit(one, dist=s), b.visit(two, dist=u))
    twice = net.program(b.visit(two, dist=u), b.visit(one, dist=s), b.visit(two, dist=u))
    for program, n, think in zip((once, twice), users, thinks, strict=True):
        net.closed(program, n, round(think * US))
    built = net.build()
    exact = f.mva_two_classes(users, np.array([[1.0, 0.8], [1.0, 1.6]]), thinks)
    return [
        Case(f"MVA, {users[0]} + {users[1]} users, class {k}: throughput", exact[k], built,
             of_group(k, built), requests=requests)
        for k in (0, 1)
    ]  # fmt: skip


def banks() -> list[Case]:
    """A bank drawn by the key of each request: its stations are M/M/1 queues of their own."""
    net = b.NetworkBuilder()
    first = net.fifos([1] * 16)
    rows = b.bank(first, 16, dist=net.exponential(12 * US))
    net.opened(net.program(rows), net.exponential(US))
    exact = f.mm1_sojourn(1 / 16, 12)
    return [Case("bank of 16 M/M/1 0.75: sojourn", exact, net.build(), sojourn, requests=LONG)]


def rounds() -> list[Case]:
    """A server that takes all that wait at once."""
    cases = []
    for most in (1, 4, np.inf):
        net = b.NetworkBuilder()
        station = net.rounds(int(min(most, 1 << 20)), base_dist=net.exponential(0.8 * US))
        net.opened(net.program(b.visit(station)), net.exponential(US))
        name = f"M/M/1 in rounds of {most:g} at most: sojourn"
        exact = f.bulk_wait(1, 0.8, most) + 0.8
        cases.append(Case(name, exact, net.build(), sojourn, requests=LONG))
    for users in (8, 100):
        net = b.NetworkBuilder()
        station = net.rounds(base_dist=net.exponential(46 * US))
        net.closed(net.program(b.visit(station, round(11.7 * US))), users)
        exact = users / (46 + 11.7 * users)  # all users are in every round
        name = f"closed rounds of {users}: throughput"
        cases.append(Case(name, exact, net.build(), throughput))
    return cases
