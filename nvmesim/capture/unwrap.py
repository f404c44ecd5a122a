"""Output that another program wrapped: prefixes of log collectors, strings in JSON, mail quotes.

Container logs put a time stamp or a pod's name before every line, Docker and Ansible put lines into
JSON strings. Readers see what was inside.
Source: the CRI log format (Kubernetes), Docker's json-file driver, Ansible's default callback.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Final

_PREFIXES: Final = (
    # CRI: time, stream, full or partial line
    re.compile(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ?"
    ),
    # kubectl logs --prefix, docker compose
    re.compile(r"\[(?:pod|container)/[^\]\n]{1,200}\] ?|[\w.-]{1,60} +\| ?"),
    # kubectl logs --timestamps, journalctl -o short-iso
    re.compile(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) (?:\S+ [\w.-]+\[\d+\]: )?"
    ),
    # syslog, journalctl
    re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,60} [\w./-]{1,60}(?:\[\d+\])?: ?"),
)
_MOST: Final = 0.9
"""Share of lines that must have a prefix: a wrapper has no exceptions but lines that it cut."""
_SAMPLE_LINES: Final = 200
_DOCKER: Final = re.compile(r'\{"log":"')
_STRING_LINE: Final = re.compile(r'^[ \t]*("(?:[^"\\\n]|\\.)*")\s*,?\s*$')
_STRING: Final = re.compile(
    r'"(?:stdout|msg|output|log|content)"\s*:\s*("(?:[^"\\]|\\.)*\\n(?:[^"\\]|\\.)*(?:"|\\?\Z))'
)
"""A text of several lines; the start of a file may cut it."""
MANY_STRINGS: Final = 5
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_PAGE: Final = re.compile(r"\s*<(?:!doctype|html|pre|body)\b", re.I)
_TAG: Final = re.compile(r"</?[a-z!][^<>\n]{0,300}>", re.I)


def strip_prefix(text: str) -> str | None:
    r"""Return *text* without the prefix that a log collector put before its lines, or None.

    >>> strip_prefix("fio_1  | fio-3.33\nfio_1  | Starting 1 process\n")
    'fio-3.33\nStarting 1 process\n'
    """
    lines = text.split("\n")
    sample = [line for line in lines[:_SAMPLE_LINES] if line.strip()]
    for prefix in _PREFIXES:
        hits = sum(prefix.match(line) is not None for line in sample)
        if len(sample) > 1 and hits >= _MOST * len(sample):
            return "\n".join(prefix.sub("", line, count=1) if line else line for line in lines)
    return None


def plain_fio(text: str) -> str | None:
    r"""Return fio's report without colours, tags and an indentation of all lines; None if it is so.

    >>> plain_fio("    fio-3.33\n    j: (groupid=0, jobs=1): err= 0:\n      read: IOPS=1\n")
    'fio-3.33\nj: (groupid=0, jobs=1): err= 0:\n  read: IOPS=1\n'
    """
    if "(groupid=" not in text:
        return None
    plain = _COLOUR.sub("", text)
    if _PAGE.match(plain):
        plain = html.unescape(_TAG.sub("", plain))
    lines = plain.split("\n")
    indents = [len(line) - len(line.lstrip(" \t")) for line in lines if line.strip()]
    depth = min(indents, default=0)
    plain = "\n".join(line[depth:] for line in lines) if depth else plain
    return None if plain == text else plain


def strings_inside(text: str) -> str | None:
    r"""Return the lines that stand as JSON strings in *text*, or None if there are none.

    >>> strings_inside('ok: [a] => {"stdout": "fio-3.33\\nStarting 1 process\\n"}')
    'fio-3.33\nStarting 1 process\n\n'
    """
    if _DOCKER.match(text.lstrip()):
        return "".join(_docker_lines(text))
    found = [_decoded(match[1]) for match in _STRING.finditer(text)]
    if found:
        return "\n".join((*found, ""))
    lines = [match[1] for line in text.split("\n") if (match := _STRING_LINE.match(line))]
    if len(lines) < MANY_STRINGS:
        return None
    return "\n".join((*map(_decoded, lines), ""))


def _docker_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        log = entry.get("log") if isinstance(entry, dict) else None
        if isinstance(log, str):
            yield log


def _decoded(literal: str) -> str:
    if len(literal) < 2 or not literal.endswith('"'):
        literal = literal.rstrip("\\") + '"'
    try:
        return str(json.loads(literal, strict=False))
    except ValueError:
        return ""
