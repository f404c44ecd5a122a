"""Mutations of a good file: bytes, numbers, lines, fields, and pieces of other files."""

import random
import re
from collections.abc import Callable, Sequence

NASTY = [
    *(b"", b"-", b"-1", b"0", b"00", b"1", b"1.5", b"1,5", b"1e999", b"-1e308", b"1e-320", b"NaN"),
    *(b"9" * 5000, b"nan", b"inf", b"-Infinity", b"null", b"true", b"9" * 19, b"9" * 40),
    b"9" * 400,
    *(b"9223372036854775807", b"9223372036854775808", b"18446744073709551615", b"-2147483648"),
    *(b"4294967296", b"0x1f", b"1_0", b"\xd9\xa3", b"\xc2\xb2", b"\xef\xbb\xbf", b"\xff\xfe"),
    *(b"\0", b"\0\0\0\0", b"\n", b"\r", b"\r\n", b"\n\n", b"\t", b" ", b",", b";", b":", b'"'),
    *(b"'", b"\\", b"/", b"../", b"%s", b"{}", b"[", b"[" * 300, b"{" * 300, b"]", b"}", b"<"),
    *(b"<!DOCTYPE x>", b"&a;", b"</Results>", b"<Results>", b"|", b"=", b"()", b"(((", b"@", b"#"),
    *(b"\x80", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "é".encode(), "\u2028".encode()),
    *(b"\x1b[31m", b"\x85", b"\x1c", b"A" * 200, b"[bold]", b"None", b"1970-01-01", b"99:99:99"),
]
NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?")
EDGES = [0, 1, 2, 7, 8, 63, 64, 127, 128, 255, 256, 511, 512, 513, 4095, 4096, 2**31 - 1, 2**31]
EDGES += [2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**12, 10**15, 10**18, 10**19]

Step = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _span(rng: random.Random, data: bytearray, longest: int = 16) -> tuple[int, int]:
    at = rng.randrange(len(data) + 1)
    return at, min(len(data), at + rng.randrange(longest))


def _flip(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    for _ in range(rng.randrange(1, 4)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)


def _token(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    first, stop = _span(rng, data)
    data[first:stop] = rng.choice(NASTY)


def _number(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = rng.randrange(len(data) + 1)
    match = NUMBER.search(data, start) or NUMBER.search(data)
    if match is None:
        return
    kind = rng.randrange(4)
    if kind == 0:
        new = rng.choice(NASTY)
    elif kind == 1:
        new = str(rng.choice(EDGES) * rng.choice((1, 1, -1))).encode()
    elif kind == 2:
        new = str(rng.getrandbits(rng.randrange(1, 70))).encode()
    else:
        new = match[0] + rng.choice((b"0", b"9", b".5", b",5", b"e9", b"K", b"%"))
    data[match.start() : match.end()] = new


def _cut(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    first, stop = _span(rng, data, rng.choice((4, 40, 400, 4000)))
    del data[first:stop]


def _truncate(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _lines(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    lines = bytes(data).split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    data[:] = b"\n".join(lines)


def _fields(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    lines = bytes(data).split(b"\n")
    at = rng.randrange(len(lines))
    mark = rng.choice((b",", b" ", b";", b"|", b":", b"\t", b'"'))
    cells = lines[at].split(mark)
    first, other = rng.randrange(len(cells)), rng.randrange(len(cells))
    kind = rng.randrange(4)
    if kind == 0:
        cells[first], cells[other] = cells[other], cells[first]
    elif kind == 1:
        del cells[first]
    elif kind == 2:
        cells.insert(first, cells[other])
    else:
        cells[first] = rng.choice(NASTY)
    lines[at] = mark.join(cells)
    data[:] = b"\n".join(lines)


def _splice(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    first = rng.randrange(len(other) + 1)
    piece = other[first : first + rng.choice((8, 80, 800))]
    at, stop = _span(rng, data, rng.choice((1, 80)))
    data[at:stop] = piece


def _repeat(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    first, stop = _span(rng, data, 40)
    data[first:stop] = bytes(data[first:stop]) * rng.choice((2, 3, 50))


STEPS: tuple[Step, ...] = (
    *(_flip, _token, _token, _number, _number, _number, _cut, _truncate, _lines, _fields),
    *(_fields, _splice, _repeat),
)
LONGEST = 1 << 16
RUNS = [b"a", b"a.", b"1", b"1 ", b"1,", b"1.1 ", b"\n", b"\t", b" ", b" \n", b"/", b"|", b'"']
RUNS += [b"{", b"a: ", b"=", b"-", b"12:00:00 ", b"[1] ", b"% "]
"""A page of one thing: patterns that try every start of it with every end take minutes."""


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of *seeds*, changed in a few places; now and then in another encoding."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        rng.choice(STEPS)(rng, data, seeds)
    if rng.randrange(200) == 0:
        at, run = rng.randrange(len(data) + 1), rng.choice(RUNS)
        data[at:at] = run * (LONGEST // len(run))
    del data[LONGEST:]
    if rng.randrange(40) == 0:
        text = bytes(data).decode("latin-1")
        return text.replace("\n", "\r\n").encode(rng.choice(("utf-16", "utf-8-sig", "utf-16-be")))
    return bytes(data)
