"""Files that no reader takes as they stand: wrapped by another program, or no capture at all.

Of the latter ``unrecognised.toml`` says what they are, and what to do instead; among them are those
of formats that nvmesim once read.
"""

import html
import math
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from nvmesim.capture.text import Head, shown
from nvmesim.files import package_tables
from nvmesim.warning import Warning

FORMATS: Final = (
    "fio (JSON, text, terse, logs), DiskSpd, blktrace and blkparse, perf script, ftrace, "
    "biosnoop, biolatency, Iometer, iostat -x, sar -d, vdbench, elbencho, ezFIO, SPDK perf and "
    "bdevperf, CrystalDiskMark, KDiskMark, YABS, ioping, published traces as CSV, tables of points "
    "(CSV, Markdown)"
)
Kind = Literal["scenario", "goal", "profile", "job", "result", "other"]


class Mistaken(NamedTuple):
    """A file that is not a capture."""

    kind: Kind
    text: str
    """Description that follows its name: "is a scenario"."""
    instead: str
    """Advice: what to do with it."""


def _known() -> Iterator[dict[str, Any]]:
    """Yield the tables of ``unrecognised.toml``; the first that fits is what a file is."""
    found = package_tables(__package__, "unrecognised.toml")
    for table in found["retired"]:
        advice = found["shared"].get(table["instead"], table["instead"])
        yield {
            **table,
            "text": f"is of {table['name']}, which nvmesim does not read any more",
            "instead": f"{advice}, or write a reader (docs/howto/reader.md)",
        }
    for table in found["known"]:
        yield {**table, "instead": found["shared"].get(table["instead"], table["instead"])}


def what_else(head: Head) -> Mistaken | None:
    r"""Say what a file that is not a capture is, and what to do with it; None if it is not known.

    >>> text = "[server]\nstack = 'linux-libaio'\n"
    >>> what_else(Head(text.encode(), text, True))
    Mistaken(kind='scenario', text='is a scenario', instead='predict it with nvmesim run')
    """
    for known in _known():
        is_bytes = known.get("bytes", False)
        content: Any = head.raw if is_bytes else head.text
        pattern: Any = known["pattern"].encode() if is_bytes else known["pattern"]
        match = re.search(pattern, content, re.M)
        is_short = len(content) < known.get("most", math.inf)
        if match and is_short and re.search(known.get("also", ""), head.text, re.M):
            found = shown(match[1], 60) if match.re.groups else ""
            kind: Kind = known.get("kind", "other")
            return Mistaken(kind, known["text"].format(found), known["instead"])
    return None


# -- wrapped by another program --------------------------------------------------------------------
#
# Mail programs add headers, transfer encodings, quote marks of any depth, no-break spaces,
# signatures and footers. Container logs put a time stamp or a pod's name before every line. Readers
# see what was inside. Source: RFC 5322, 2045 and 3676, the CRI log format (Kubernetes).

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
    re.compile(r"# ?"),  # kept as the comments of a script
)
_MOST: Final = 0.9
"""Share of lines that must have a prefix: a wrapper has no exceptions but lines that it cut."""
_SAMPLE_LINES: Final = 200
_COLOUR: Final = re.compile(r"(?:\x1b|\^\[)\[[0-9;]{0,20}[A-Za-z]|^\^\[", re.M)
"""An escape, or a key that was pressed as a terminal shows it."""
_PAGE: Final = re.compile(r"\s*<(?:!doctype|html|pre|body)\b", re.I)
_TAG: Final = re.compile(r"</?[a-z!][^<>]{0,300}>", re.I)
MAIL: Final = "mail"
"""Code of the warning that says what was undone."""
_HEADERS: Final = re.compile(
    r"\A(?:From [^\n]*\n)?(?=(?:[A-Za-z][\w-]*:[^\n]*\n(?:[ \t][^\n]*\n){0,99}){3,})"
    r"(?=[\s\S]{0,20000}?^(?:Message-ID|MIME-Version|Received|Subject):)",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED_PRINTABLE: Final = re.compile(r"=3D|=\n|=C2=A0|=20\n")
_QUOTE: Final = re.compile(r"^[ \t]{0,3}(?:>(?!=)[ \t]?)+", re.MULTILINE)
"""``>=64`` begins a wrapped line of fio's depths, and quotes nothing."""
_BLANK: Final = re.compile(r"[\u00a0\u2007\u202f]")
_GROUPED: Final = re.compile(r"\d[\u00a0\u2007\u202f]\d{3}(?![\d.])")
"""A French thousand: 12 345."""
_INVISIBLE: Final = re.compile(r"[\u200b\u200c\u200d\u2060\ufeff]")
_FOOTER: Final = re.compile(
    r"^(?:-- \n(?:[^\n]+(?:\n|\Z)){1,8}|_{20,}\n(?:[^\n]*mailing list[^\n]*(?:\n|\Z))"
    r"(?:[^\n]+(?:\n|\Z)){0,3})(?=\s|\Z)",
    re.MULTILINE,
)


def plain_mail(text: str) -> tuple[str, Warning | None]:
    r"""Return *text* as it was before it was mailed, and a warning that says what was undone.

    The warning is None if there was nothing to undo.

    >>> text, warning = plain_mail("> > fio-3.33\n> > Starting\u00a01 process\n")
    >>> text, warning.code
    ('fio-3.33\nStarting 1 process\n', 'mail')
    """
    if "\0" in text or text.lstrip()[:1] in ("{", "["):
        return text, None
    undone = []
    if _HEADERS.match(text):
        text = _body(text)
        undone.append("headers left out")
    if text.count("=3D") > 2 and len(_QUOTED_PRINTABLE.findall(text)) > 3:
        import quopri

        text = quopri.decodestring(text.encode()).decode("utf-8", "replace")
        undone.append("quoted-printable decoded")
    blanks = len(_BLANK.findall(text))
    if blanks > len(_GROUPED.findall(text)):
        text = _BLANK.sub(" ", text)
        undone.append(f"{blanks} no-break spaces")
    text = _INVISIBLE.sub("", text)
    if not text.lstrip().startswith("<") and len(_QUOTE.findall(text)) > 1:
        text, quoted = _QUOTE.subn("", text)
        undone.append(f"quote marks of {quoted} lines")
    text, footers = _FOOTER.subn("", text)
    if footers:
        undone.append(f"{footers} signatures or footers left out")
    return text, Warning(MAIL, f"read as a mail: {', '.join(undone)}") if undone else None


def _body(text: str) -> str:
    """Return the texts of a mail with headers; of one that has none, those of its pages."""
    import email

    texts: dict[str, list[str]] = {"plain": [], "html": []}
    for part in email.message_from_string(text).walk():
        if part.get_content_maintype() != "text":
            continue
        encoding = str(part.get("content-transfer-encoding", "")).strip().lower()
        is_encoded = encoding in ("base64", "quoted-printable")
        decoded: Any = part.get_payload(decode=True) if is_encoded else part.get_payload()
        if isinstance(decoded, bytes):
            try:
                decoded = decoded.decode(part.get_content_charset() or "utf-8", "replace")
            except LookupError:
                decoded = decoded.decode("utf-8", "replace")
        kind = "html" if part.get_content_subtype() == "html" else "plain"
        texts[kind] += [decoded] if isinstance(decoded, str) else []
    pages = "\n".join(texts["html"])
    return "\n".join(texts["plain"]) if texts["plain"] else html.unescape(_TAG.sub("", pages))


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
