"""Exact results of queueing theory, in the units of their arguments.

Sources: Kleinrock, "Queueing Systems" I (M/M/c, M/G/1, G/M/1, finite populations); Reiser and
Lavenberg, JACM 27 (1980), mean value analysis; Nelson and Tantawi, IEEE ToC 37 (1988), fork-join.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

Floats = npt.NDArray[np.float64]


def mm1_sojourn(rate: float, service: float) -> float:
    return service / (1 - rate * service)


def erlang_c(c: int, load: float) -> float:
    """Probability of waiting in M/M/c at *load* erlangs."""
    terms = [load**k / math.factorial(k) for k in range(c)]
    last = load**c / math.factorial(c) * c / (c - load)
    return last / (sum(terms) + last)


def mmc_wait(c: int, rate: float, service: float) -> float:
    return erlang_c(c, rate * service) * service / (c - rate * service)


def mg1_wait(rate: float, mean: float, second_moment: float) -> float:
    """Pollaczek-Khinchine."""
    return rate * second_moment / (2 * (1 - rate * mean))


def gm1_sojourn(service: float, gap_transform: Callable[[float], float]) -> float:
    """G/M/1: service / (1 - sigma), sigma the root of A*(mu - mu sigma) = sigma below 1."""
    sigma = brentq(lambda x: gap_transform((1 - x) / service) - x, 0, 1 - 1e-7)
    return service / (1 - float(sigma))


def mm1k_throughput(k: int, rate: float, service: float) -> float:
    rho = rate * service
    blocked = (1 - rho) * rho**k / (1 - rho ** (k + 1)) if rho != 1 else 1 / (k + 1)
    return rate * (1 - blocked)


def repairman_throughput(n: int, think: float, service: float, c: int = 1) -> float:
    """M/M/c//n: *n* machines fail after *think*, *c* repairmen take *service* each."""
    p = [1.0]
    for broken in range(1, n + 1):
        p.append(p[-1] * (n - broken + 1) / think * service / min(broken, c))
    busy = sum(min(broken, c) * q for broken, q in enumerate(p)) / sum(p)
    return busy / service


def mva_throughput(n: int, demands: Sequence[float], think: float = 0.0) -> float:
    """Exact mean value analysis, one class, single-server stations."""
    d = np.array(demands)
    queue, x = np.zeros(len(d)), 0.0
    for users in range(1, n + 1):
        residence = d * (1 + queue)
        x = users / (think + float(residence.sum()))
        queue = x * residence
    return x


def harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def squared_max_of_exponentials(n: int, mean: float) -> float:
    """E[max^2] of *n* independent exponentials: variance plus squared mean."""
    variance = sum(1 / k**2 for k in range(1, n + 1))
    return mean**2 * (variance + harmonic(n) ** 2)


def nelson_tantawi(n: int, rate: float, service: float) -> float:
    """Sojourn of a fork-join of *n* M/M/1: exact for n = 2, an approximation beyond."""
    rho = rate * service
    two = (12 - rho) / 8 * mm1_sojourn(rate, service)
    ratio = harmonic(n) / harmonic(2)
    return two * (ratio + 4 / 11 * (1 - ratio) * rho)


def kingman(rate: float, service: float, gap_variance: float, service_variance: float) -> float:
    """Upper bound of the wait in G/G/1."""
    return rate * (gap_variance + service_variance) / (2 * (1 - rate * service))


def marchal(rate: float, service: float, gap_variance: float, service_variance: float) -> float:
    """Lower bound of the wait in G/G/1.

    The wait is E[u^2] / (-2 E[u]) - E[I^2] / (2 E[I]) for u = service - gap and the idle time I,
    which is no longer, in that ratio, than a gap: E[I^2] / E[I] <= E[gap^2] / E[gap].
    """
    rho = rate * service
    spread = rate * (service_variance + rho * gap_variance) / (2 * (1 - rho))
    return spread - rho / (2 * rate)


def mva_two_classes(
    users: tuple[int, int], demands: Floats, think: tuple[float, float]
) -> tuple[float, float]:
    """Exact MVA of two classes, all populations of one size at once: quick for a thousand users."""
    most_one, most_two = users
    shape = (most_one + 1, demands.shape[1])
    queues = np.zeros(shape)  # of the populations (i, size - i), by i
    rates = (0.0, 0.0)
    for size in range(1, most_one + most_two + 1):
        one = np.arange(max(0, size - most_two), min(size, most_one) + 1)
        two = size - one
        fewer_one, fewer_two = queues[np.maximum(one - 1, 0)], queues[one]
        x = []
        found = np.zeros((len(one), shape[1]))
        for k, (n, fewer) in enumerate(((one, fewer_one), (two, fewer_two))):
            residence = demands[k] * (1 + fewer)
            rate = np.where(n > 0, n / (think[k] + residence.sum(axis=1)), 0.0)
            x.append(rate)
            found += rate[:, None] * residence
        queues = np.zeros(shape)
        queues[one] = found
        rates = float(x[0][-1]), float(x[1][-1])
    return rates


def bulk_wait(rate: float, service: float, most: float = math.inf) -> float:
    """Wait in M/M/1 whose server takes all that wait, *most* at once, as one exponential service.

    Requests that wait while it is busy are geometric with ratio r, mu r^(most + 1) -
    (lambda + mu) r + lambda = 0; it is idle with p_0 mu / lambda. Source: Medhi, "Stochastic
    Models in Queueing Theory", general bulk service rule (1, K).
    """
    mu = 1 / service
    r = rate / (rate + mu)
    if math.isfinite(most):
        r = float(brentq(lambda x: mu * x ** (most + 1) - (rate + mu) * x + rate, 0, 1 - 1e-9))
    busy = 1 / (mu / rate + 1 / (1 - r))
    return busy * r / (1 - r) ** 2 / rate


def moments(table: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Mean and second moment of what a quantile table yields: linear between its edges."""
    n = len(table) // 2
    edges = np.concatenate([table[: n - 1], table[n:]]).astype(float)
    weight = np.concatenate([np.full(n - 2, 1 / (n - 1)), [0], np.full(n - 1, (n - 1) ** -2.0)])
    low, high = edges[:-1], edges[1:]
    first = float(weight @ (low + high) / 2)
    return first, float(weight @ (low**2 + low * high + high**2) / 3)
