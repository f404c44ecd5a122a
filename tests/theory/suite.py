"""All systems of the theory suite, each with a seed of its own."""

from dataclasses import replace

import numpy as np

from tests.engines import builder as b
from tests.theory import cases as c
from tests.theory import formulas as f
from tests.theory.cases import US, Case


def all_cases() -> list[Case]:
    """Every case."""
    found = [
        *c.open_queues(), *c.general_queues(), *c.tandem_and_gates(), *c.closed_networks(),
        *c.fork_join(), *thousand_in_two_classes(), *banks(), *rounds(),
    ]  # fmt: skip
    return [replace(case, seed=seed) for seed, case in enumerate(found, start=1)]


def thousand_in_two_classes() -> list[Case]:
    """Two classes, a thousand outstanding; they share two stations in different proportions."""
    net = b.NetworkBuilder()
    one, two = net.fifo(), net.fifo()
    s, u = net.exponential(1.0 * US), net.exponential(0.8 * US)
    net.closed(net.program(b.visit(one, dist=s), b.visit(two, dist=u)), 700, 500 * US)
    twice = net.program(b.visit(two, dist=u), b.visit(one, dist=s), b.visit(two, dist=u))
    net.closed(twice, 300, 900 * US)
    built = net.build()
    demands = np.array([[1.0, 0.8], [1.0, 1.6]])
    exact = f.mva_two_classes((700, 300), demands, (500.0, 900.0))
    return [
        Case(f"MVA, 700 + 300 users, class {k}: throughput", exact[k], built,
             c.of_group(k, built), requests=c.LONG)
        for k in (0, 1)
    ]  # fmt: skip


def banks() -> list[Case]:
    """A bank drawn by the key of each request: its stations are M/M/1 queues of their own."""
    net = b.NetworkBuilder()
    first = net.fifos([1] * 16)
    rows = b.bank(first, 16, dist=net.exponential(12 * US))
    net.opened(net.program(rows), net.exponential(US))
    exact = f.mm1_sojourn(1 / 16, 12)
    return [Case("bank of 16 M/M/1 0.75: sojourn", exact, net.build(), c.sojourn, requests=c.LONG)]


def rounds() -> list[Case]:
    """A server that takes all that wait at once."""
    cases = []
    for most in (1, 4, np.inf):
        net = b.NetworkBuilder()
        station = net.rounds(int(min(most, 1 << 20)), base_dist=net.exponential(0.8 * US))
        net.opened(net.program(b.visit(station)), net.exponential(US))
        name = f"M/M/1 in rounds of {most:g} at most: sojourn"
        exact = f.bulk_wait(1, 0.8, most) + 0.8
        cases.append(Case(name, exact, net.build(), c.sojourn, requests=c.LONG))
    for users in (8, 100):
        net = b.NetworkBuilder()
        station = net.rounds(base_dist=net.exponential(46 * US))
        net.closed(net.program(b.visit(station, round(11.7 * US))), users)
        exact = users / (46 + 11.7 * users)  # all users are in every round
        name = f"closed rounds of {users}: throughput"
        cases.append(Case(name, exact, net.build(), c.throughput))
    return cases
