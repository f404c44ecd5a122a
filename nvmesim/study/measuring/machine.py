"""The machine that measures, here or through ssh: what it is, and what must not be written on."""

import contextlib
import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from nvmesim.errors import InfrastructureError, InputError, nearest
from nvmesim.files import package_tables

QUICK_S: Final = 60.0
"""Time that a look at the machine may take."""
ENDING_S: Final = 10.0
"""Time that fio is given to end its jobs."""
LOST: Final = 255
"""ssh's own exit code: the connection, not the command, has failed."""
LEAST_FILE: Final = 16 << 20
"""Bytes of a file that is measured: requests of 1 MiB need some places to go."""
HERE: Final = "trap '' INT; exec \"$@\""
"""ssh asks at the terminal, so that it stays in its session, where a Ctrl-C would reach it."""
THERE: Final = (
    """trap '' PIPE; exec 3<&0; "$@" 3<&- </dev/null & p=$!; """
    "{ read x <&3; kill $p; } >/dev/null 2>&1 & w=$!; wait $p; c=$?; kill $w; exit $c"
)
"""Ends the command when the connection that feeds its shell ends: fio would go on by itself. Nor
must what it then says, and nobody hears, end it before its jobs."""
THROTTLED: Final = ("thm_temp1_trans_count", "thm_temp2_trans_count", "warning_temp_time",
                    "critical_comp_time")  # fmt: skip
"""Counters of `nvme smart-log` that grow when a drive is slowed down for its temperature. Source:
NVM Express base specification 2.0, SMART / Health Information log page."""


@dataclass(frozen=True)
class Machine:
    """Where commands run."""

    host: str = ""
    """As ssh takes it; empty: this machine."""

    def run(self, words: Sequence[str], timeout: float | None = None) -> str:
        """Return what the command prints; InfrastructureError in one line if it fails.

        A terminal's Ctrl-C does not reach it: its row is finished. It ends with its caller, here
        and there.
        """
        if self.host:
            there = shlex.join(["sh", "-c", THERE, "sh", *words])
            command = ["sh", "-c", HERE, "sh", _program("ssh"), self.host, there]
        else:
            command = [_program(words[0]), *words[1:]]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=not self.host,
        ) as process:  # fmt: skip
            held, process.stdin = process.stdin, None  # open until it ends: see THERE
            try:
                out, said = process.communicate(timeout=timeout)
            except BaseException as failure:
                process.terminate()  # killed, fio would leave its jobs running
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=ENDING_S)
                process.kill()
                if not isinstance(failure, subprocess.TimeoutExpired):
                    raise
                raise InfrastructureError(
                    f"{self._named(words[0])} has not ended after {timeout:.0f} s"
                ) from None
            finally:
                if held is not None:
                    held.close()
        code = process.returncode
        if self.host and code == LOST:
            raise InfrastructureError(f"{self.host}: the connection is lost: {_last(said)}")
        if code:
            raise InfrastructureError(
                f"{self._named(words[0])} ended with code {code}: {_last(said)}"
            )
        return out

    def asked(self, line: str) -> str:
        """Return what the shell *line* prints; empty if it fails."""
        try:
            return self.run(["sh", "-c", line], QUICK_S).strip()
        except InfrastructureError:
            return ""

    def check_fio(self, engine: str) -> str:
        """Return fio's version; InputError if there is none, or it has no such *engine*.

        InfrastructureError if there is no connection.
        """
        if self.host:
            self.run(["true"], QUICK_S)
        found = self.asked("fio --version")
        if not found:
            where = f" on {self.host}" if self.host else ""
            raise InputError(
                f"there is no fio{where}; install it there (apt install fio, dnf install fio), or "
                "measure with the job file that --plan prints"
            )
        engines = [line.strip() for line in self.asked("fio --enghelp").splitlines()[1:]]
        if engines and engine not in engines:
            raise InputError(f"this fio has no ioengine {engine!r}; {nearest(engine, engines)}")
        return found

    def _named(self, program: str) -> str:
        return f"{program} on {self.host}" if self.host else program


def _program(name: str) -> str:
    """Absolute path of a program, so that none of the current folder is run."""
    found = shutil.which(name)
    if found is None:
        raise InfrastructureError(f"there is no {name} on the path; install it")
    return found


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it says nothing"


def conditions(machine: Machine, target: str) -> dict[str, str]:
    """Return what *machine* tells of itself and of the drive *target*."""
    disk = disk_of(machine, target)
    told = {
        name: machine.asked(line.format(disk=shlex.quote(disk)))
        for name, line in package_tables(__package__, "plans", "conditions.toml").items()
        if disk or "{disk}" not in line
    }
    return {name: text for name, text in told.items() if text}


def disk_of(machine: Machine, target: str) -> str:
    """Return the kernel's name of the one disk that holds *target*; empty if several do."""
    quoted, folder = shlex.quote(target), shlex.quote(str(PurePosixPath(target).parent))
    text = machine.asked(
        f'd=$(readlink -f {quoted}); [ -b "$d" ] || d=$(df --output=source {folder} | tail -n 1);'
        ' lsblk -nrso NAME,TYPE "$d"'
    )
    rows = [line.split() for line in text.splitlines()]
    disks = {name for name, kind in rows if kind in ("disk", "loop")}
    return disks.pop() if len(disks) == 1 else ""


def has_throttled(before: str, after: str) -> bool:
    """Return True if the drive was slowed down between two JSON texts of its smart-log.

    >>> has_throttled('{"warning_temp_time": 3}', '{"warning_temp_time": 4}')
    True
    >>> has_throttled("", "")
    False
    """
    if not before or not after:
        return False
    first, last = json.loads(before), json.loads(after)
    return any(last.get(name, 0) > first.get(name, 0) for name in THROTTLED)


def link_below(found: Mapping[str, str]) -> str | None:
    """Return what is wrong with the drive's link, if it runs below what the drive can.

    >>> link_below({"link_width": "2", "link_width_most": "4"})
    'the link is x2, the drive can x4'
    >>> link_below({"link_width": "4", "link_width_most": "4"})
    """
    width, most = found.get("link_width"), found.get("link_width_most")
    speed, fastest = found.get("link_speed"), found.get("link_speed_most")
    if width and most and width != most:
        return f"the link is x{width}, the drive can x{most}"
    if speed and fastest and speed != fastest:
        return f"the link runs at {speed}, the drive can {fastest}"
    return None


def refuse_unless_free(machine: Machine, device: str) -> str:
    """Return the serial number of *device*; InputError if anything on it could be lost.

    Refused: a device that is mounted, has partitions or holders (md, LVM, device mapper), or a
    signature that lsblk or blkid knows.
    """
    text = machine.run(
        ["lsblk", "-J", "-o", "NAME,TYPE,MOUNTPOINT,FSTYPE,PTTYPE,SERIAL,RO", device], QUICK_S
    )
    (found,) = json.loads(text)["blockdevices"]
    kind, place, inside = (found.get(key) for key in ("type", "mountpoint", "children"))
    system, table = found.get("fstype"), found.get("pttype")
    reasons = [text for is_so, text in (
        (kind not in ("disk", "loop"), f"is a {kind}, not a whole disk"),
        (place, f"is mounted on {place}"),
        (inside, f"has {len(inside or ())} partitions or holders"),
        (system, f"has a file system or member ({system})"),
        (table, f"has a partition table ({table})"),
        (found.get("ro") in (True, "1"), "is read-only"),  # lsblk before 2.33 prints texts
    ) if is_so]  # fmt: skip
    if not reasons:
        # 2: there is nothing on it; anything else, and no blkid, is no such answer
        quoted = shlex.quote(device)
        code = machine.asked(
            f"[ -w {quoted} ] && PATH=$PATH:/usr/sbin:/sbin blkid -p {quoted} >/dev/null; echo $?"
        )
        if code != "2":
            reasons.append({
                "1": "cannot be written by this user", "0": "has a signature that blkid knows",
            }.get(code, f"is not said to be empty by blkid (code {code})"))  # fmt: skip
    holders = machine.asked(f"ls /sys/class/block/{shlex.quote(found['name'])}/holders")
    if holders:
        reasons.append(f"is held by {', '.join(holders.split())}")
    if reasons:
        raise InputError(
            f"{device} {'; '.join(reasons)}: it is not overwritten; name an empty drive, or leave "
            "out --writes"
        )
    return str(found.get("serial") or "").strip()


@dataclass(frozen=True)
class Target:
    """What is measured."""

    path: str
    size: str = ""
    """Of a file that is made for it; empty: as large as it is."""
    made: bool = False
    """True if the file did not exist and is removed afterwards."""


def target_of(machine: Machine, path: str, size: str) -> Target:
    """Return the target at *path*; a file that does not exist will be made with *size*.

    InputError for what is neither a block device nor a file with data.
    """
    quoted, folder = shlex.quote(path), str(PurePosixPath(path).parent)
    kind = machine.asked(
        f"if [ -b {quoted} ]; then echo device; "
        f"elif [ -f {quoted} ]; then stat -c '%s %b' {quoted}; "
        f"elif [ -e {quoted} ]; then echo other; "
        f"elif [ -d {shlex.quote(folder)} ]; then echo none; else echo nowhere; fi"
    )
    if kind == "device":
        return Target(path)
    if kind[:1].isdigit():
        length, blocks = map(int, kind.split())
        if blocks * 512 < length / 2 or length < LEAST_FILE:
            holes = "has holes, which no drive is asked for"
            what = "is too small" if length < LEAST_FILE else holes
            raise InputError(f"{path}: {what}; name a file that does not exist, it will be made")
        return Target(path)
    if kind == "none" and not path.startswith("/dev/"):
        return Target(path, size=size, made=True)
    if kind == "nowhere":
        raise InputError(f"{path}: there is no folder {folder}; create it first")
    what = "no such device" if kind == "none" else "is neither a drive nor a file"
    raise InputError(f"{path}: {what}; name a drive such as /dev/nvme0n1, or a file to make")
