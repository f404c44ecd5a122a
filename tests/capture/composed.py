# ruff: noqa: E501 - lines are as long as the tools print them
"""Writers of captures with a line or two a request, as each tool prints them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

N = 40
S = 10**9
START = 1000 * S


class Request(NamedTuple):
    """ns, ns, bytes, bytes."""

    issue: int
    took: int
    offset: int
    size: int
    write: bool

    @property
    def end(self) -> int:
        return self.issue + self.took

    @property
    def rwbs(self) -> str:
        return "W" if self.write else "R"

    @property
    def span(self) -> str:
        return f"{self.offset // 512} + {self.size // 512}"


def requests(n: int = N) -> list[Request]:
    """Up to three at a time; offsets tell them apart."""
    return [
        Request(
            START + 100_000 * i,
            80_000 + 1000 * (i * 7 % 200),
            65536 * (i + 1),
            4096 << i % 3,
            i % 3 == 0,
        )
        for i in range(n)
    ]


Line = tuple[int, str]
"""Its place in time and its text."""


@dataclass(frozen=True)
class Form:
    """How a tool prints a request: one line, or one at its issue and one at its completion."""

    lines: Callable[[Request], list[Line]]
    header: str = ""
    says_disorder: bool = True
    """Whether a file whose time steps back is said to."""

    @property
    def has_events(self) -> bool:
        return len(self.lines(requests(1)[0])) > 1

    def text(self, wanted: list[Request]) -> str:
        found = sorted(line for request in wanted for line in self.lines(request))
        return self.header + "".join(f"{text}\n" for _, text in found)


def seconds(ns: int, digits: int = 9) -> str:
    return f"{ns // S}.{ns % S // 10 ** (9 - digits):0{digits}d}"


def _blkparse(r: Request) -> list[Line]:
    tail = f"{r.rwbs:>3} {r.span}"
    return [
        (r.issue, f"259,0    1        7 {seconds(r.issue):>14}   372  D {tail} [fio]"),
        (r.end, f"259,0    1        9 {seconds(r.end):>14}     0  C {tail} [0]"),
    ]


def _tracepoints(head: str, event: str, digits: int) -> Callable[[Request], list[Line]]:
    def lines(r: Request) -> list[Line]:
        issue, end = (f"{head} {seconds(t, digits)}: {event}" for t in (r.issue, r.end))
        return [
            (r.issue, f"{issue}_issue: 259,0 {r.rwbs} {r.size} () {r.span} [fio]"),
            (r.end, f"{end}_complete: 259,0 {r.rwbs} () {r.span} [0]"),
        ]

    return lines


def _bpftrace(r: Request) -> list[Line]:
    tail = f"259,0,{r.offset // 512},{r.size // 512},{r.rwbs}"
    return [(r.issue, f"{r.issue},D,{tail}"), (r.end, f"{r.end},C,{tail}")]


def _biosnoop(r: Request) -> list[Line]:
    text = f"{seconds(r.end, 6):<11} fio            372     nvme0n1   {r.rwbs} {r.offset // 512:<10} {r.size:<7} {r.took / 1e6:7.3f}"
    return [(r.end, text)]


def _msr(r: Request) -> list[Line]:
    ticks = 128166372003061629 + r.issue // 100
    return [
        (
            r.issue,
            f"{ticks},hm,{r.offset >> 16 & 1},{'Write' if r.write else 'Read'},{r.offset},{r.size},{r.took // 100}",
        )
    ]


FORMS = {
    "blkparse": Form(_blkparse),
    "perf-script": Form(_tracepoints("fio   538 [001]", "block:block_rq", 9)),
    "ftrace": Form(_tracepoints("  fio-538  [001] d..1.", "block_rq", 6)),
    "bpftrace-csv": Form(_bpftrace, "ts_ns,ev,dev_major,dev_minor,sector,nr_sector,rwbs\n"),
    "biosnoop": Form(_biosnoop, "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n"),
    "msr-cambridge": Form(_msr),
    "systor17": Form(
        lambda r: [(r.issue, f"{seconds(r.issue)},{seconds(r.took)},{r.rwbs},3,{r.offset},{r.size}")],
        "Timestamp,Response,IOType,LUN,Offset,Size\n",
    ),
    "alibaba": Form(lambda r: [(r.issue, f"7,{r.rwbs},{r.offset},{r.size},{1577808 * S + r.issue // 1000}")]),
    "tencent-cbs": Form(
        lambda r: [(r.issue, f"{1538323200 + r.issue // S},{r.offset // 512},{r.size // 512},{r.write:d},1360")]
    ),
    "k5cloud": Form(lambda r: [(r.issue, f"1157,{seconds(r.issue)},{r.rwbs},{r.offset},{r.size}")]),
    "spc": Form(lambda r: [(r.issue, f"0,{r.offset // 512},{r.size},{r.rwbs},{seconds(r.issue, 6)}{',0x1,more' * (r.offset >> 16 & 1)}")]),
    "fio-log": Form(
        lambda r: [(r.end, f"{r.end // 10**6}, {r.took}, {r.write:d}, {r.size}, {r.offset}, 0")]
    ),
    "fio-iolog": Form(
        lambda r: [(r.issue, f"{r.issue // 1000} /dev/nvme0n1 {'write' if r.write else 'read'} {r.offset} {r.size}")],
        "fio version 3 iolog\n0 /dev/nvme0n1 add\n",
    ),
}  # fmt: skip
