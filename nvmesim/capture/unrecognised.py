"""Files that no reader takes as they stand: wrapped by another program, or no capture at all.

Of the latter it is said what they are, and what to do instead; among them are those of formats that
nvmesim once read.
"""

import html
import re
from typing import Any, Final, Literal, NamedTuple

from nvmesim.capture.text import Head, shown
from nvmesim.warning import Warning

FORMATS: Final = (
    "fio (JSON, text, terse, logs), DiskSpd, blktrace and blkparse, perf script, ftrace, "
    "biosnoop, biolatency, Iometer, iostat -x, sar -d, vdbench, elbencho, SPDK perf and bdevperf, "
    "CrystalDiskMark, KDiskMark, YABS, ioping, published traces as CSV, tables of points"
)
Kind = Literal["scenario", "goal", "profile", "job", "result", "other"]


class Mistaken(NamedTuple):
    """A file that is not a capture."""

    kind: Kind
    text: str
    """Description that follows its name: "is a scenario"."""
    instead: str
    """Advice: what to do with it."""


class _KnownFile(NamedTuple):
    """How a file is recognised, and what is said of it."""

    pattern: str | bytes
    """Of its text, or of its bytes."""
    text: str
    """``{}`` stands for the pattern's first group."""
    instead: str
    kind: Kind = "other"
    also: str = ""
    """A second pattern that must be found; the empty one always is."""
    most: int = 1 << 30
    """Characters of the largest head of which this is said."""


_MESSAGES: Final = 20_000
"""Characters: a longer file holds more than the messages of a command that failed."""
_IOSTAT: Final = "record drives with iostat -x -t 1"
_FIO: Final = "measure with fio --output-format=json+"
_MEND: Final = "mend the cause and repeat the capture"
_RAN: Final = "give what fio, DiskSpd or a tracer wrote"
_TRACE: Final = (
    "write its rows as Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (100 ns, bytes)"
)
_VSCSI: Final = rb"""(?sx)\A(?:
      (?: .{4} \0... .{4} [\x08\x28\xa8\x88\x0a\x2a\xaa\x8a]\0 .\x01 .{16} ){2,8}    # 1
    | (?: [\x08\x28\xa8\x88\x0a\x2a\xaa\x8a]\0 .\x02 .{4} \0... .{4} .{24} ){2,8}            # 2
    )"""
"""Two requests or more: the version's byte, a SCSI READ or WRITE (SBC-4), a length in sectors."""


def _retired(name: str, pattern: str | bytes, instead: str) -> _KnownFile:
    """A format that is not read any more; may assume that no reader accepts the file."""
    return _KnownFile(
        pattern,
        f"is of {name}, which nvmesim does not read any more",
        f"{instead}, or write a reader (docs/howto/reader.md)",
    )


_KNOWN: Final = (
    _retired("fio's compressed log (log_store_compressed)", rb"\Ax[\x01\x9c\xda]",
        "expand it with fio --inflate-log=FILE"),
    _retired("fio's histogram log (write_hist_log)",
        r"\A\s*\d{1,15}, [0-2], \d{1,13}(?:, \d{1,19}){19}",
        "give the report of the run: fio --output-format=json+ has the histogram"),
    _retired("esxtop -b",
        r'\A"?\(PDH-CSV 4\.0\)[^\n]*\\(?:Physical Disk SCSI Device\(|Physical Cpu)',
        "run fio --output-format=json+ in a guest, or make a table of points of it"),
    _retired("kbench", r"^[ \t]*FIO Benchmark Summary\s*$",
        "run fio --output-format=json+ in the pod"),
    _retired("kubestr", r"^FIO test results:|^[ \t]*JobName: \S+\s+blocksize=\S* filesize=",
        "run its jobs with fio --output-format=json+ (kubestr fio -f names the job file)"),
    _retired("node_exporter",
        r"^node_(?:disk_(?:reads|writes)_completed_total|cpu_seconds_total)\{",
        "record drives with iostat -x -t 1"),
    _retired("rados bench",
        r"^[ \t]*Total (?:writes|reads) made:|^[ \t]*sec Cur ops\s+started\s+finished",
        "measure the drives below the pool with fio --output-format=json+"),
    _retired("xperf -a dumper", r"^[ \t]*Disk(?:Read|Write),\s*TimeStamp\s*,", _TRACE),
    _retired("vSCSI", _VSCSI, _TRACE),
    # Source: 1a1a11a/libCacheSim, generalReader/lcs.h, 0x123456789ABCDEF0
    _retired("LCS of libCacheSim", rb"\A\xf0\xde\xbc\x9a\x78\x56\x34\x12", _TRACE),
    _retired("biolatency as JSON", r"^\{(?:\"type\": \"l?hist\"|[^\n]{0,200}'interval-start')",
        "run biolatency without -j, bpftrace without -f json"),
    _retired("nvme events of ftrace alone",
        r"\d\.\d{6,9}: +(?:nvme:)?nvme_(?:setup_cmd|complete_rq): ",
        "trace block_rq_issue and block_rq_complete"),
    _retired("arrivals of MQSim", r"\A\s*(?:\d+ \d+ \d+ \d+ [01][ \t]*(?:\n|\Z))+", _TRACE),
    _KnownFile(r"^\[+\s*(?:constraints|candidates|objective)\b", "is a goal",
        "give it to nvmesim choose", "goal"),
    _KnownFile(r"^\[+\s*(?:server|drives|workload|volume|adapters)\b", "is a scenario",
        "predict it with nvmesim run", "scenario"),
    _KnownFile(r"^kind\s*=\s*[\"'](drive|cpu|stack|raid-engine|platform)[\"']", "is a {} profile",
        "a scenario names it, as in examples/", "profile"),
    _KnownFile(r"^[ \t]*\[[^\]\n]+\]\s*$", "is a fio job file",
        "run it with fio --output-format=json+, or name it in a scenario: fio = 'FILE'", "job",
        also=r"^[ \t]*(?:rw|readwrite|ioengine|iodepth|bs|blocksize)\s*="),
    _KnownFile(r"\APAR1", "is a Parquet table", _RAN),
    _KnownFile(r'\A\s*\{"log":"', "is Docker's own log: lines as JSON",
        "give what docker logs prints"),
    _KnownFile(r'^\S+: \[[^\]\n]+\] => \{', "is what Ansible printed: lines as JSON",
        "let the program write a file (fio --output=FILE), and fetch that"),
    _KnownFile(r'"nvmesim"\s*:.*"(?:schema|scenario|engine)"\s*:', "is a result of nvmesim", _RAN,
        "result"),
    _KnownFile(r"^=+ (?:All Devices|Device Overhead|Per Process) =+", "is what btt made of a trace",
        "give the trace itself: blkparse's text or its files"),
    _KnownFile(r"<title>Vdbench \S*histogram\.html|^Total response time histogram\.$",
        "is vdbench's page of histograms: no rates", "give flatfile.html of the same folder"),
    _KnownFile(r"\Aname: \w+\nID: \d+\nformat:", "describes a tracepoint",
        "give the events: perf script or the trace file"),
    _KnownFile(r"^[ \t]*(?:\S+: )?\S+\s+tps\s+\S+(?:_read|rtn)/s\s",
        "is plain iostat: without -x it has no waits, no queue", "run iostat -x -t 1"),
    _KnownFile(r"\A\s*<(?i:!doctype html|html)\b", "is a web page",
        "save the file itself, not the page that shows it"),
    _KnownFile(r"^(fio: \S[^\n]{0,80})", "holds messages of fio and no result ({!r})", _MEND,
        most=_MESSAGES),
    _KnownFile(r"^[^\n\"]{1,300}?: \(g=\d+\): rw=|^Jobs: \d+ \(f=\d+\)",
        "ends before fio's report: a banner or progress, no result",
        "give the whole output of fio, or run it to its end"),
    _KnownFile(r"^[ \t]*\"(?:clat_ns|iops_mean|io_kbytes)\"\s*:",
        "is a part of fio's JSON, without its version and jobs",
        "give the whole object that fio wrote"),
    _KnownFile(r"^=+ \S+ =+\n\s*CPU +\d+: +\d+ events,",
        "is what blktrace says at its end: counts of events",
        "give its files (NAME.blktrace.0 and so on) or blkparse's text"),
    _KnownFile(r"\A\s*\d+ +\d+ [a-z]\S* \d+ \d+ \d+ \d+ \d+ \d+ ",
        "is /proc/diskstats: counts since boot, no load", _IOSTAT),
    _KnownFile(r"^Linux \S+ \([^\n]*\n+[\d:]{8}(?: [AP]M)?\s+(?:CPU|IFACE|runq-sz|kbmemfree|tps)\s",
        "is sar or mpstat without the table of devices", "run sar -d, or iostat -x -t 1"),
    _KnownFile(r"^procs -+memory-+", "is vmstat: no device, no latency", _IOSTAT),
    _KnownFile(r"\AAAA,progname,nmon", "is nmon's: no latencies", _IOSTAT),
    _KnownFile(r"^\"(?:pcp-)?dstat ", "is dstat's: no latencies", _IOSTAT),
    _KnownFile(r"^\"\(PDH-CSV 4\.0\)",
        "is Performance Monitor's log: which counters hold rates and waits is up to its author",
        "measure with diskspd -L -Rxml, or make a table of points of it"),
    _KnownFile(
        r"(Timing (?:cached|buffered disk) reads:|^\d+ bytes \([^\n]*copied, |^sysbench \d|"
        r"Iozone: Performance Test of File I/O|^1\.\d\d,1\.\d\d,[^\n]*\+\+\+)",
        "is of a benchmark of bandwidth or of files ({!r}): no requests, no latency", _FIO),
    _KnownFile(r"^[ \t]+(?:Kbytes|kbytes|bytes)\s+: count\s+distribution",
        "is a histogram of sizes: no latency", "run biolatency"),
    _KnownFile(r"^(?:Can't use -\w and|ERROR: |Error opening file:|.*no targets specified)",
        "holds messages of a benchmark and no result", _MEND),
    _KnownFile(r"\A([^\n]*[,;\t] *\"?(?i:iops)\b[^\n]*)\n",
        "is a table whose columns are not those of points ({!r})",
        "name them op,block_size,jobs,iodepth,iops,lat_mean_us,p50_us,p99_us,source"),
    _KnownFile(
        r"^(.*modprobe: FATAL.*|.*[Pp]ermission denied.*|.*[Oo]peration not permitted.*|"
        r"Traceback \(most recent call last\):|.*command not found.*|.*: not found)$",
        "holds a failed command ({!r})", _MEND, most=_MESSAGES),
)  # fmt: skip
"""The first that fits is what the file is."""


def what_else(head: Head) -> Mistaken | None:
    r"""Say what a file that is not a capture is, and what to do with it; None if it is not known.

    >>> text = "[server]\nstack = 'linux-libaio'\n"
    >>> what_else(Head(text.encode(), text, True))
    Mistaken(kind='scenario', text='is a scenario', instead='predict it with nvmesim run')
    """
    for known in _KNOWN:
        content: Any = head.raw if isinstance(known.pattern, bytes) else head.text
        match = re.search(known.pattern, content, re.M)
        if match and len(content) < known.most and re.search(known.also, head.text, re.M):
            found = shown(match[1], 60) if match.re.groups else ""
            return Mistaken(known.kind, known.text.format(found), known.instead)
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
)
_MOST: Final = 0.9
"""Share of lines that must have a prefix: a wrapper has no exceptions but lines that it cut."""
_SAMPLE_LINES: Final = 200
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
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
