"""The machine that measures, here or through ssh: what it is, and what must not be written on."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from nvmesim.errors import InfrastructureError, InputError, nearest

QUICK_S: Final = 60.0
"""Time that a look at the machine may take."""
LOST: Final = 255
"""ssh's own exit code: the connection, not the command, has failed."""
CONDITIONS: Final = {
    "kernel": "uname -r",
    "cpu": "LC_ALL=C lscpu | sed -n 's/^Model name: *//p'",
    "virt": "systemd-detect-virt --vm",
    "smt": "cat /sys/devices/system/cpu/smt/active",
    "governor": "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "scheduler": "cat /sys/block/{disk}/queue/scheduler",
    "model": "cat /sys/block/{disk}/device/model",
    "firmware": "cat /sys/block/{disk}/device/firmware_rev",
    "link_width": "cat /sys/block/{disk}/device/device/current_link_width",
    "link_width_most": "cat /sys/block/{disk}/device/device/max_link_width",
    "link_speed": "cat /sys/block/{disk}/device/device/current_link_speed",
    "link_speed_most": "cat /sys/block/{disk}/device/device/max_link_speed",
    "smart": "nvme smart-log -o json /dev/{disk}",
}
"""What is recorded, and the command that tells it; what a machine does not tell is left out."""


@dataclass(frozen=True)
class Machine:
    """Where commands run."""

    host: str = ""
    """As ssh takes it; empty: this machine."""

    def run(self, words: Sequence[str], timeout: float | None = None) -> str:
        """Return what the command prints; InfrastructureError in one line if it fails.

        A terminal's Ctrl-C does not reach a program of this machine: its row is finished.
        """
        command = list(words)
        if self.host:
            command = [_program("ssh"), self.host, shlex.join(words)]
        else:
            command[0] = _program(command[0])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, check=False,
                stdin=None if self.host else subprocess.DEVNULL, start_new_session=not self.host,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InfrastructureError(
                f"{self._named(words[0])} has not ended after {timeout:.0f} s"
            ) from None
        if self.host and done.returncode == LOST:
            raise InfrastructureError(f"{self.host}: the connection is lost: {_last(done.stderr)}")
        if done.returncode:
            raise InfrastructureError(
                f"{self._named(words[0])} ended with code {done.returncode}: {_last(done.stderr)}"
            )
        return done.stdout

    def asked(self, line: str) -> str:
        """Return what the shell *line* prints; empty if it fails."""
        try:
            return self.run(["sh", "-c", line], QUICK_S).strip()
        except InfrastructureError:
            return ""

    def check_fio(self, engine: str) -> str:
        """Return fio's version; InputError if there is none, or it has no such *engine*."""
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
    disk = PurePosixPath(target).name if target.startswith("/dev/") else ""
    told = {
        name: machine.asked(line.format(disk=shlex.quote(disk)))
        for name, line in CONDITIONS.items()
        if disk or "{disk}" not in line
    }
    return {name: text for name, text in told.items() if text}


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
        ["lsblk", "-J", "-o", "NAME,TYPE,MOUNTPOINTS,FSTYPE,PTTYPE,SERIAL,RO", device], QUICK_S
    )
    (found,) = json.loads(text)["blockdevices"]
    reasons = []
    if found.get("type") not in ("disk", "loop"):
        reasons.append(f"is a {found.get('type')}, not a whole disk")
    if any(found.get("mountpoints") or ()):
        reasons.append(f"is mounted on {', '.join(m for m in found['mountpoints'] if m)}")
    if found.get("children"):
        reasons.append(f"has {len(found['children'])} partitions or holders")
    for key, what in (("fstype", "file system or member"), ("pttype", "partition table")):
        if found.get(key):
            reasons.append(f"has a {what} ({found[key]})")
    if found.get("ro"):
        reasons.append("is read-only")
    if not reasons and machine.asked(f"blkid -p {shlex.quote(device)}"):
        reasons.append("has a signature that blkid knows")
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


def lay_out(machine: Machine, target: Target) -> None:
    """Write a file that is to be made once over, so that reads meet data; nothing for others."""
    if target.made:
        machine.run([
            "fio", "--name=lay-out", f"--filename={target.path}", f"--size={target.size}",
            "--rw=write", "--bs=1m", "--end_fsync=1", "--output-format=json",
        ])  # fmt: skip


def target_of(machine: Machine, path: str, size: str) -> Target:
    """Return the target at *path*; a file that does not exist will be made with *size*.

    InputError for what is neither a block device nor a file.
    """
    quoted = shlex.quote(path)
    kind = machine.asked(
        f"if [ -b {quoted} ]; then echo device; elif [ -f {quoted} ]; then echo file; "
        f"elif [ -e {quoted} ]; then echo other; else echo none; fi"
    )
    if kind == "device":
        return Target(path)
    if kind == "file":
        return Target(path, size="")
    if kind == "none" and not path.startswith("/dev/"):
        return Target(path, size=size, made=True)
    what = "no such device" if kind == "none" else "is neither a drive nor a file"
    raise InputError(f"{path}: {what}; name a drive such as /dev/nvme0n1, or a file to make")
