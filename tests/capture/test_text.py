"""Files as they come: compressed, encoded, damaged, hostile, wrapped by other programs; none."""

import base64
import bz2
import gzip
import lzma
import os
import quopri
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from nvmesim.capture import text as text_module
from nvmesim.capture.registry import READERS, read_capture, read_captures
from nvmesim.capture.text import HEAD_BYTES, Source
from nvmesim.capture.unrecognised import MAIL, plain_mail, what_else
from nvmesim.errors import CaptureError
from nvmesim.warning import Warning
from tests.capture.contract import DATA, read_text, refused, written
from tests.fuzz.mutate import RUNS

TEXT = "first line\nsecond µs\nthird\n"
PACKERS = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def source_of(data: bytes, tmp_path: Path) -> Source:
    path = tmp_path / "capture.dat"
    path.write_bytes(data)
    return Source(path)


def test_several_frames_are_one_file(tmp_path: Path) -> None:
    """Logs that were rotated and concatenated hold several members."""
    for pack in PACKERS.values():
        assert source_of(pack(b"a\n") + pack(b"b\n"), tmp_path).text() == "a\nb\n"


@pytest.mark.parametrize("kind", PACKERS)
def test_damaged_compression(kind: str, tmp_path: Path) -> None:
    packed = PACKERS[kind](os.urandom(300_000))
    if kind == "zstd":
        packed = zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(300_000))
        packed = packed[:20] + b"\xff" * 40 + packed[60:]
    else:
        packed = packed[: len(packed) // 2]
    with pytest.raises(CaptureError, match=f"its {kind} data is cut off or damaged"):
        source_of(packed, tmp_path).raw()


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_bounded(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "EXPANDED_FLOOR_BYTES", 1 << 20)
    bomb = source_of(PACKERS[kind](bytes(8 << 20)), tmp_path)
    with pytest.raises(CaptureError, match="expands to more than 100 times its size"):
        bomb.raw()


def test_a_file_of_results_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="is larger than 1 MiB"):
        source_of(b"x" * (2 << 20), tmp_path).text(1 << 20)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-16-be-bom"]
)
def test_encodings(encoding: str, tmp_path: Path) -> None:
    text = TEXT.replace("\n", "\r\n")
    data = b"\xfe\xff" + text.encode("utf-16-be") if "bom" in encoding else text.encode(encoding)
    source = source_of(data, tmp_path)
    assert source.head.text == source.text() == TEXT


def test_old_line_ends_and_bytes_of_no_encoding(tmp_path: Path) -> None:
    assert source_of(b"a\rb\r\nc\n", tmp_path).text() == "a\nb\nc\n"
    assert source_of(b"caf\xe9 1\n", tmp_path).text() == "caf\ufffd 1\n"


def test_what_is_no_capture_file(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"is a zip archive; unpack it"):
        source_of(b"PK\x03\x04" + bytes(40), tmp_path).text()
    with pytest.raises(CaptureError, match="is a folder; give a file"):
        read_capture(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CaptureError, match="is not a regular file"):
        read_capture(tmp_path / "pipe")
    with pytest.raises(CaptureError, match="cannot be read"):
        read_capture(tmp_path / "absent")
    with pytest.raises(CaptureError, match="is empty; repeat the capture"):
        read_capture(source_of(b"\r\n \n", tmp_path).path)


def test_folders_without_captures(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="holds no file; give captures of a drive"):
        read_captures(tmp_path)
    (tmp_path / "a.txt").write_text("nothing\n")
    (tmp_path / ".hidden").write_text("nothing\n")
    with pytest.raises(CaptureError, match=r"a\.txt: is not a capture that nvmesim knows"):
        read_captures(tmp_path)
    (tmp_path / "b.txt").write_text("nothing\n")
    with pytest.raises(CaptureError, match="none of 2 files is a capture, the first:"):
        read_captures(tmp_path)


def test_a_file_given_twice_is_read_once() -> None:
    path = DATA / "points" / "datasheet.csv"
    assert len(read_captures([path, path.parent, str(path.parent / "*.csv")]).files) == 1


def test_progress_reaches_the_end_and_never_steps_back() -> None:
    told: list[tuple[int, int]] = []
    read_captures(DATA / "runs", progress=lambda done, total: told.append((done, total)))
    sizes = sum(path.stat().st_size for path in (DATA / "runs").iterdir())
    assert told[-1] == (sizes, sizes)
    assert told == sorted(told)


def test_messages_are_one_line_without_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "odd\nname.json"
    path.write_bytes(b"\x1b[31mred\x00\n")
    with pytest.raises(CaptureError) as caught:
        read_capture(path)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def loaded_by_reading(*samples: Path) -> set[str]:
    code = (
        "import sys; from nvmesim.capture.registry import read_capture; "
        "[read_capture(sample) for sample in sys.argv[1:]]; print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, *map(str, samples)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_reading_one_file_imports_its_reader_only() -> None:
    loaded = loaded_by_reading(DATA / "fio-json" / "psync_qd8.json")
    assert "nvmesim.capture.readers.fio.fio_json" in loaded
    others = {f"nvmesim.capture.{reader.module}" for reader in READERS} - {
        "nvmesim.capture.readers.fio.fio_json"
    }
    assert not loaded & {*others, "numba", "scipy"}


def test_results_and_logs_are_read_without_numba() -> None:
    """Its import alone takes longer than reading them."""
    samples = ("fio-log/rr_qd1_clat.1.log.gz", "points/datasheet.csv", "biosnoop/bcc.txt",
               "diskspd-xml/two_targets.xml.gz", "diskspd-text/two_targets.txt",
               "public-trace/k5cloud.csv")  # fmt: skip
    assert "numba" not in loaded_by_reading(*(DATA / sample for sample in samples))


FILES = tomllib.loads((DATA / "unrecognised" / "files.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_it_says_what_the_file_is(name: str, tmp_path: Path) -> None:
    assert re.search(FILES[name]["says"], refused(FILES[name]["text"], tmp_path))


def test_the_list_of_formats_has_every_reader() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "capture.md").read_text()
    rows = [line.split("|")[1] for line in text.split("\n") if line.startswith("| `")]
    assert sorted(re.findall(r"`([a-z-]+)`", "".join(rows))) == sorted(r.name for r in READERS)


# Formats that are not read any more: recognised by their content, refused with what to do


SAMPLES = {
    "hist_clat_hist.1.log": "fio's histogram log (write_hist_log)",
    "rr_gz_clat.1.log.fz": "fio's compressed log (log_store_compressed)",
    "batch.csv": "esxtop -b",
    "jobs.txt": "kubestr",
    "kbench.md": "kbench",
    "two_scrapes.txt": "node_exporter",
    "v1.vscsi": "vSCSI",
    "v2.lcs": "LCS of libCacheSim",
    "v2.vscsi": "vSCSI",
    "write_seq.txt": "rados bench",
    "xperf.csv": "xperf -a dumper",
}
TEXTS = {
    "nvme events of ftrace alone": " fio-543 [000] 163.339048: nvme_setup_cmd: nvme3: qid=1\n",
    "arrivals of MQSim": "".join(f"{1000 * i} 0 {8 * i} 16 {i % 2}\n" for i in range(20)),
}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        *(((DATA / "retired" / sample).read_bytes(), name) for sample, name in SAMPLES.items()),
        *((text.encode(), name) for name, text in TEXTS.items()),
    ],
    ids=[*SAMPLES, *TEXTS],
)
def test_a_retired_format_is_refused_with_what_to_do(
    data: bytes, name: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "capture.dat", data)
    found = what_else(Source(path).head)
    assert found.text.startswith(f"is of {name}, ")
    with pytest.raises(CaptureError) as caught:
        read_capture(path)
    assert found.instead in str(caught.value)
    assert "\n" not in str(caught.value)


LONGEST_S = 3.0
"""CPU time that no reader needs to look at a head: linear patterns take milliseconds, quadratic
ones took 5 to 90 s."""


@pytest.mark.parametrize("before", ["", "1.1 ", "[server]\n[", "block_rq_ nvme_ "])
@pytest.mark.parametrize("run", RUNS, ids=repr)
def test_every_reader_looks_at_it_in_no_time(run: bytes, before: str, tmp_path: Path) -> None:
    """A page of one thing is no capture, and told so at once: no pattern may be quadratic."""
    page = before.encode() + run * (HEAD_BYTES // len(run))
    head = Source(written(tmp_path / "page.txt", page)).head
    for look in (*(reader.sniff for reader in READERS), what_else):
        began = time.process_time()
        look(head)
        assert time.process_time() - began < LONGEST_S, look


JSON = DATA / "fio-json" / "randread_4k_qd4_nj3_group.json"
INSIDE_OTHERS = [
    DATA / "fio-text" / "randread_4k_qd32.normal.txt",
    DATA / "iostat" / "text.txt",
    DATA / "diskspd-text" / "two_targets.txt",
    JSON,
]
HEADERS = "Received: from a by b\nFrom: A <a@b.example>\nSubject: fio\nMessage-ID: <1@b.example>\n"


def lines_with(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{prefix}{line}\n" for line in text.removesuffix("\n").split("\n"))


def encoded(name: str, encode: Callable[[bytes], bytes]) -> Callable[[str], str]:
    head = (
        f"{HEADERS}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {name}\n\n"
    )
    return lambda text: head + encode(text.encode()).decode()


WRAPPERS: dict[str, Callable[[str], str]] = {
    "cri": lines_with("2024-05-01T10:00:00.123456789Z stdout F "),
    "cri with an offset": lines_with("2024-05-01T10:00:00.123456789+02:00 stdout F "),
    "kubectl --prefix": lines_with("[pod/fio-x7k2p/fio] "),
    "kubectl --timestamps": lines_with("2024-05-01T10:00:00.123456789Z "),
    "syslog": lines_with("Mar  5 10:00:00 host1 bench[123]: "),
    "compose": lines_with("fio_1  | "),
}
MAILS: dict[str, Callable[[str], str]] = {
    "quoted once": lines_with("> "),
    "quoted twice": lines_with("> > "),
    "quoted thrice": lines_with(">> > "),
    "quoted without blanks": lines_with(">"),
    "below an answer": lambda text: "On Monday A wrote:\n" + lines_with("> ")(text) + "\nThanks.\n",
    "no-break spaces": lambda text: text.replace("  ", " \u00a0"),
    "headers": lambda text: f"{HEADERS}\n{text}",
    "quoted-printable": encoded("quoted-printable", quopri.encodestring),
    "base64": encoded("base64", base64.encodebytes),
    "signature": lambda text: f"{text}\n-- \nA. B.\nhttp://b.example\n",
    "footer": lambda text: (
        f"{text}\n{'_' * 47}\nLinux-nvme mailing list\nLinux-nvme@lists.example\n"
    ),
}


INSIDE = [(name, path) for name in {**WRAPPERS, **MAILS} for path in INSIDE_OTHERS]
INSIDE.remove(("no-break spaces", JSON))  # in JSON they are no blanks


@pytest.mark.parametrize(("name", "path"), INSIDE)
def test_what_is_inside_is_read(name: str, path: Path, tmp_path: Path) -> None:
    wrapped = tmp_path / path.name
    wrapped.write_text({**WRAPPERS, **MAILS}[name](path.read_text()), encoding="utf-8")
    plain, inside = read_capture(path), read_capture(wrapped)
    assert inside.format == plain.format
    assert inside.measurements == plain.measurements
    assert inside.file == wrapped
    assert read_captures(wrapped).files[0].measurements == plain.measurements
    if name in MAILS and path != JSON:
        assert [w.code for w in inside.warnings if isinstance(w, Warning)].count(MAIL) == 1


@pytest.mark.parametrize(
    "text",
    [
        "1\u00a0234 | 5\u00a0678\n",  # thousands of a French table
        "  IO depths    : 1=0.1%, 32=0.0%,\n>=64=99.9%\n",
        '{"a": "> b"}\n',
        "a > b\n> c\n",
    ],
)
def test_what_no_mail_program_did_stays(text: str) -> None:
    assert plain_mail(text) == (text, None)


@pytest.mark.parametrize(
    "wrap",
    [
        lines_with("    "),
        lambda text: f"<html><body><pre>{text.replace('>', '&gt;')}</pre></body></html>\n",
        lambda text: f"\x1b[0;32m{text}\x1b[0m\n",
        lines_with("# "),
        lambda text: f"^[{text}",
    ],
    ids=["indented", "web page", "colours", "comments", "a pressed key"],
)
def test_reports_of_fio_that_were_formatted(wrap: Callable[[str], str], tmp_path: Path) -> None:
    """Also the banner, whose lines say depth and engine, must be found."""
    inside = read_text(wrap(INSIDE_OTHERS[0].read_text()), tmp_path)
    plain = read_capture(INSIDE_OTHERS[0])
    assert inside.version == plain.version
    assert inside.measurements == plain.measurements
