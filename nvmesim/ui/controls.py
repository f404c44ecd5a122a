"""The controls of the design page: each is a key of the scenario, or a choice that sets some."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from nvmesim.catalog import load as catalog
from nvmesim.catalog.profile import CpuProfile, DriveProfile, PlatformProfile
from nvmesim.errors import InputError
from nvmesim.files import package_tables
from nvmesim.raid.levels import CHOICES, MD_LEVELS
from nvmesim.raid.levels import POOL_LEVELS as POOLS
from nvmesim.scenario.fields import Strict
from nvmesim.scenario.load import with_values
from nvmesim.scenario.schema import DriveSpec, ServerSpec
from nvmesim.scenario.workload_keys import DRIVE, WorkloadSpec, presets, workload
from nvmesim.show.words import about, plural
from nvmesim.ui.guard import problem_of
from nvmesim.units import PS_PER_S

Tables = dict[str, Any]
PartKind = Literal["drive", "cpu", "platform"]
NO_RAID: Final = "no RAID: each drive by itself"


@dataclass(frozen=True)
class Control:
    """One control of the page."""

    key: str
    """Of the scenario, as ``--set`` takes it."""
    label: str
    group: str
    form: Literal["choice", "part", "range", "ticks", "text"]
    choices: tuple[tuple[str, str], ...] = ()
    """(value, what the page shows)"""
    kind: PartKind = "drive"
    """Of what a part picker offers."""
    low: float = 0
    high: float = 0
    step: float = 1
    hint: str = ""


def form(name: str) -> list[Control]:
    """Return the controls of a form of ``forms.toml``; least values are the schema's.

    >>> [control.key for control in form("design")][:2]
    ['server.platform', 'server.sockets.cpu']
    """
    found = []
    for group, fields in package_tables(__package__, "forms.toml")[name].items():
        for stated in fields:
            choices, ends = stated.get("choices", ()), {}
            if stated["form"] == "range":
                first, *_, field = stated["key"].split(".")
                spec = _SPECS[first]
                ends = {"low": limit(spec, field), "high": limit(spec, field, "le")}
            listed = _LISTS[choices]() if isinstance(choices, str) else choices
            shown = tuple((c, c) if isinstance(c, str) else tuple(c) for c in listed)
            found.append(Control(**{**ends, **stated, "choices": shown, "group": group}))
    return found


def limit(spec: type[Strict], field: str, which: str = "ge") -> int:
    """Return a bound of a field of the schema: "ge", "le", "min_length", "max_length"."""
    found = spec.model_fields[field].metadata
    return int(next(getattr(m, which) for m in found if hasattr(m, which)))


def _models(kind: Literal["stack", "raid-engine"]) -> tuple[tuple[str, str], ...]:
    return tuple((name, catalog.get(kind, name).model) for name in catalog.names(kind))


_SPECS: Final[Mapping[str, type[Strict]]] = {"drives": DriveSpec, "workload": WorkloadSpec}
"""First word of a control's key -> where the bounds of its last one stand."""
_LISTS: Final[Mapping[str, Callable[[], Iterable[Any]]]] = {
    "access": lambda: get_args(get_args(WorkloadSpec.model_fields["access"].annotation)[0]),
    "levels": lambda: ((r, NO_RAID if r == "none" else r.upper()) for r in CHOICES),
    "levels of md": lambda: ((level, level.upper()) for level in MD_LEVELS),
    "loads": lambda: (("", "own load"), *((name, p.title) for name, p in presets().items())),
    "RAID engines": lambda: _models("raid-engine"),
    "stacks": lambda: _models("stack"),
}
"""Choices of ``forms.toml`` that the program knows."""


def start() -> Tables:
    """Return the tables of the design that the page opens with."""
    return {
        "name": "my server",
        "server": {"stack": "linux-io_uring", "sockets": [{"cpu": "xeon-gold-6130"}]},
        "drives": [{"profile": DRIVE, "count": 8, "socket": 0}],
        "volume": [{"raid": "raid5", "chunk": "128 KiB", "engine": "linux-md"}],
        "workload": [{**workload("oltp"), "slo": "1 ms"}],
    }


# From the tables to the controls ------------------------------------------------------------------


def values(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return key -> value of every control; None where a control does not apply."""
    volumes = _listed(tables, "volume")
    drives, loads = _listed(tables, "drives"), _listed(tables, "workload")
    server = tables.get("server", {})
    sockets = _sockets_of(server)
    first = loads[0] if loads else {}
    volume = volumes[0] if volumes else {}
    closed, pool = "rate" not in first, volume.get("raid") in POOLS
    size = first.get("block_size", "4 KiB")
    own = {k: v for k, v in first.items() if k != "slo"}
    condition = "rebuilding" if volume.get("rebuild") else "failed"
    condition = condition if volume.get("degraded") else "healthy"
    return {
        "server.platform": server.get("platform", ""),
        "drives.profile": _shown(drives[0].get("profile")) if drives else None,
        "drives.count": sum(d.get("count", 1) for d in drives) or None,
        "drives.socket": _placement(drives, tables) if len(sockets) > 1 and drives else None,
        "volume.raid": volume.get("raid", "none"),
        "volume.engine": _shown(volume.get("engine", "linux-md")) if volume else None,
        "volume.chunk": volume.get("chunk", "512 KiB") if volume and not pool else None,
        "volume.recordsize": volume.get("recordsize", "128 KiB") if pool else None,
        "volume.degraded": condition if volume.get("raid", "raid0") != "raid0" else None,
        "server.sockets.cpu": _shown(sockets[0].get("cpu")) if sockets else "",
        "server.sockets": None if "platform" in server else str(len(sockets)),
        "server.stack": _shown(server.get("stack", "linux-io_uring")),
        "workload": next((k for k in presets() if workload(k) == own), ""),
        "workload.0.block_size": size if isinstance(size, str) else "mixed",
        "workload.0.access": first.get("access", "random"),
        "workload.0.read": first.get("read", 1.0),
        "workload.0.threads": first.get("threads", 1),
        "workload.0.outstanding": first.get("outstanding", 1) if closed else None,
        "workload.0.rate": first.get("rate", ""),
        "workload.0.slo": first.get("slo", ""),
    }


def _sockets_of(server: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sockets that *server* states, else those of its platform."""
    if "sockets" in server or "platform" not in server:
        return list(server.get("sockets", []))
    try:
        return list(catalog.get("platform", str(server["platform"])).server["sockets"])
    except InputError:  # the answer says what is wrong with it
        return []


def _listed(tables: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = tables.get(key, [])
    listed = [found] if isinstance(found, Mapping) else found
    if not isinstance(listed, list) or not all(isinstance(t, Mapping) for t in listed):
        raise InputError(f"{key}: one or several tables are needed")
    return [dict(t) for t in listed]


def _shown(reference: Any) -> str:
    if isinstance(reference, Mapping):
        return str(reference.get("name") or reference.get("extends") or "own")
    return str(reference)


def _placement(drives: list[dict[str, Any]], tables: Mapping[str, Any]) -> str:
    homes = {a.get("name"): a.get("socket", 0) for a in _listed(tables, "adapters")}
    places = {homes.get(d.get("behind"), d.get("socket", 0)) for d in drives}
    return "spread" if len(places) > 1 else str(places.pop() if places else 0)


# From the controls to the tables ------------------------------------------------------------------


def put(tables: Mapping[str, Any], key: str, value: Any, own: Mapping[str, Any]) -> Tables:
    """Return *tables* with the control *key* at *value*; *own* are calibrated drives by name.

    >>> put(start(), "volume.raid", "raid6", {})["volume"][0]["raid"]
    'raid6'
    """
    if key not in (control.key for control in form("design")):
        raise InputError(f"{key[:60]!r} is not a control of this page; change it in the TOML")
    lists = {k: _listed(tables, k) for k in ("drives", "volume", "workload") if k in tables}
    whole = {**tables, **lists}
    special = _SPECIAL.get(key)
    if special is not None:
        return special(whole, value, own)
    if value == "":
        first, *others = lists.get("workload", [{}])
        first.pop(key.rpartition(".")[2], None)
        return {**whole, "workload": [first, *others]}
    return with_values(whole, {key: value})


def _profile(tables: Tables, value: Any, own: Mapping[str, Any]) -> Tables:
    profile = own.get(str(value), value)
    return {**tables, "drives": [{**d, "profile": profile} for d in tables["drives"]]}


def _count(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    drives, count = tables["drives"], _whole(value, "drives.count", limit(DriveSpec, "count", "le"))
    if _placement(drives, {}) == "spread" and count > 1:
        return _spread(tables, count)
    return {**tables, "drives": [{**drives[0], "count": count}]}


def _spread(tables: Tables, count: int, sockets: int = 2) -> Tables:
    """Drives of one kind, spread evenly over the *sockets*."""
    first = {k: v for k, v in tables["drives"][0].items() if k != "behind"}
    halves = [len(range(socket, count, sockets)) for socket in range(sockets)]
    drives = [{**first, "socket": s, "count": n} for s, n in enumerate(halves) if n]
    return {**tables, "drives": drives}


def _socket(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    count = sum(d.get("count", 1) for d in tables["drives"])
    if value == "spread":
        return _spread(tables, count)
    (first,) = _spread(tables, count, 1)["drives"]
    most = limit(ServerSpec, "sockets", "max_length")
    return {**tables, "drives": [{**first, "socket": _whole(value, "drives.socket", most - 1, 0)}]}


def _raid(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    if value == "none":
        return {k: v for k, v in tables.items() if k != "volume"}
    before = (tables.get("volume") or [{}])[0]
    lost = {"layout"} | ({"degraded", "rebuild"} if value == "raid0" else set())
    if value not in ("raid5", "raid6"):
        lost |= {"group_thread_cnt", "stripe_cache"}
    own: dict[str, Any] = {}
    if (value in POOLS) != (before.get("raid") in POOLS) or not before:
        # what is of md is not of ZFS, and the other way round
        lost = set(before) - {"name", "members"}
        own = (
            {"engine": "openzfs"} if value in POOLS else {"chunk": "128 KiB", "engine": "linux-md"}
        )
    kept = {k: v for k, v in before.items() if k not in lost}
    return {**tables, "volume": [{**kept, **own, "raid": value}]}


def _degraded(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    volume = {k: v for k, v in tables["volume"][0].items() if k not in ("degraded", "rebuild")}
    if value != "healthy":
        volume |= {"degraded": [0], "rebuild": value == "rebuilding"}
    return {**tables, "volume": [volume, *tables["volume"][1:]]}


def _platform(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    """Take the sockets and adapters of a platform, with drives spread over its sockets."""
    usual = start()["drives"][0]["count"]
    count = sum(d.get("count", 1) for d in tables.get("drives", [])) or usual
    first = (tables.get("drives") or [{"profile": DRIVE}])[0]
    own = ("sockets", "interconnect", "platform")
    server = {k: v for k, v in tables["server"].items() if k not in own}
    changed = {k: v for k, v in tables.items() if k not in ("adapters", "drives")}
    if value:
        platform = catalog.get("platform", str(value))
        server, sockets = {**server, "platform": value}, platform.server["sockets"]
        if platform.drives:
            return {**changed, "server": server}
    else:
        sockets = [{"cpu": s["cpu"]} for s in _sockets_of(tables["server"])]
        server["sockets"] = sockets
    drives = [{**first, "socket": 0}]
    return _spread({**changed, "server": server, "drives": drives}, count, len(sockets))


def _cpu(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    server = tables["server"]
    sockets = [{**s, "cpu": value} for s in _sockets_of(server)]
    return {**tables, "server": {**server, "sockets": sockets}}


def _sockets(tables: Tables, value: Any, own: Mapping[str, Any]) -> Tables:
    most = limit(ServerSpec, "sockets", "max_length")
    server, count = tables["server"], _whole(value, "server.sockets", most)
    sockets = (list(server["sockets"]) * count)[:count]
    changed = {**tables, "server": {**server, "sockets": sockets}}
    return changed if count > 1 else _socket(changed, "0", own)


def _preset(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    if not value:
        return tables
    goal = {k: v for k, v in (tables.get("workload") or [{}])[0].items() if k == "slo"}
    return {**tables, "workload": [{**workload(str(value)), **goal}]}


def _rate(tables: Tables, value: Any, _: Mapping[str, Any]) -> Tables:
    first, *others = tables["workload"]
    closed = ("outstanding", "think_time", "think_every", "rate_limit")
    if value == "":
        kept = {k: v for k, v in first.items() if k not in ("rate", "arrivals", "bursts")}
        first = {"threads": 8, "outstanding": 8, **kept}
    else:
        first = {**{k: v for k, v in first.items() if k not in closed}, "rate": str(value)}
    return {**tables, "workload": [first, *others]}


def _whole(value: Any, key: str, high: int, low: int = 1) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise InputError(f"{key}: {str(value)[:40]!r} is not a whole number") from None
    if not low <= number <= high:
        raise InputError(f"{key} is {number}; {low} to {high}")
    return number


_SPECIAL: Final[Mapping[str, Callable[[Tables, Any, Mapping[str, Any]], Tables]]] = {
    "server.platform": _platform,
    "drives.profile": _profile,
    "drives.count": _count,
    "drives.socket": _socket,
    "volume.raid": _raid,
    "volume.degraded": _degraded,
    "server.sockets.cpu": _cpu,
    "server.sockets": _sockets,
    "workload": _preset,
    "workload.0.rate": _rate,
}


# The part picker: names to search, groups, a line of what each part does --------------------------

PAGE: Final = 4096
_MAKERS: Final = {"hpe": "HPE", "aws": "AWS", "gcp": "GCP", "wd": "WD", "asus": "ASUS",
                  "qnap": "QNAP", "hdd": "By kind", "sata": "By kind", "sas": "By kind",
                  "team": "Measured servers"}  # fmt: skip

_CLOUDS: Final = ("AWS", "Azure", "GCP")
"""Behind the servers: they have many."""


@functools.cache
def parts(kind: PartKind) -> list[dict[str, str]]:
    """Return the catalog's parts of *kind*: name, label, group and what each does.

    >>> next(p for p in parts("cpu") if p["name"] == "xeon-gold-6130")["says"]
    '16 cores, 2.1 GHz, 48 lanes'
    """
    found = []
    for name in catalog.names(kind):
        part, maker = catalog.get(kind, name), name.partition("-")[0]
        found.append({"name": name, "label": part.model or name, "says": _says(part),
                      "group": _MAKERS.get(maker, maker.capitalize())})  # fmt: skip
    return sorted(found, key=lambda part: (part["group"] in _CLOUDS, part["group"], part["name"]))


def _says(part: Any) -> str:
    if isinstance(part, CpuProfile):
        return f"{part.cores} cores, {part.ghz.value:g} GHz, {part.lanes} lanes"
    if isinstance(part, PlatformProfile):
        if part.drives:
            return f"{plural(part.drives[0]['count'], 'drive')} of the provider"
        text = plural(len(part.server["sockets"]), "socket")
        if part.bays is None:
            return text
        guess = ", assumed" if part.bays.basis == "assumed" else ""
        cards = "".join(f"; {catalog.get('raid-engine', name).model}" for name in part.controllers)
        return f"{part.bays.value:.0f} bays of {part.bay_link}, {text}{guess}{cards}"
    assert isinstance(part, DriveProfile)
    numbers = [q for _, q in catalog.quantities(part) if q.value]
    known = sum(q.basis != "assumed" for q in numbers)
    is_measured = any(q.basis in ("measured", "fitted") for q in numbers)
    source = "measured" if is_measured else "estimate"
    if part.captured is not None and part.captured.datasheet:
        source = "data sheet"
    dies, write, commands = part.dies.value, part.write, part.commands.value
    program = max(write.program.value / PS_PER_S, 1e-9)
    own = commands if write.commands is None else write.commands.value
    reads = min(commands, dies / (part.read.die.value / PS_PER_S), part.read_bandwidth.value / PAGE)
    writes = min(dies * write.unit.value / PAGE / program, part.write_bandwidth.value / PAGE)
    writes = min(writes, own, commands)
    return (
        f"{part.link}, {part.capacity.value / 1e12:.3g} TB, about "
        f"{about(reads)} reads, {about(writes)} writes/s of 4 KiB ({source}; {known} of "
        f"{len(numbers)} numbers known)"
    )


# What does not fit together although it can be simulated, and what would make it ------------------

TRIED: Final = ("volume.raid", "volume.engine", "server.stack")
"""Controls whose choices are each tried."""
OF_WINDOWS: Final = ("intel-vroc", "storage-spaces")
OF_LINUX: Final = ("linux-md", "openzfs", "user-space-parity")
IN_KERNEL: Final = ("linux-md", "openzfs", *OF_WINDOWS)


def unfit(tables: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return key -> value -> why a choice does not fit this design, and what would make it fit."""
    found: dict[str, dict[str, str]] = {}
    if problem_of(tables):
        return found
    for control in form("design"):
        if control.key in TRIED:
            tried = {value: _with(tables, control.key, value) for value, _ in control.choices}
            found[control.key] = {value: text for value, text in tried.items() if text}
    return found


def _with(tables: Mapping[str, Any], key: str, value: str) -> str:
    changed = put(tables, key, value, {})
    return problem_of(changed) or remarks(changed).get("volume.engine", "")


def remarks(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return control -> what does not fit there, and what would.

    >>> remarks({"server": {"stack": "spdk"}, "volume": [{"raid": "raid5"}]})["volume.engine"]
    'runs in the kernel: take a stack of the kernel, such as io_uring'
    """
    at = values(tables)
    stack, engine, count = at["server.stack"], at["volume.engine"], at["drives.count"]
    found = {
        "volume.engine": _engine(str(engine), str(stack)) if engine is not None else "",
        "drives.count": _bays(str(at["server.platform"]), int(count or 0)),
    }
    return {key: text for key, text in found.items() if text}


def _engine(engine: str, stack: str) -> str:
    windows = stack.startswith("windows")
    if stack == "spdk" and engine.startswith(IN_KERNEL):
        return "runs in the kernel: take a stack of the kernel, such as io_uring"
    if engine.startswith(OF_WINDOWS) and not windows:
        own = ", which VROC is on Linux" if engine.startswith("intel-vroc") else ""
        return f"runs on Windows: take a Windows stack, or Linux md{own}"
    if engine.startswith(OF_LINUX) and windows:
        return "runs on Linux: take a Linux stack, or Intel VROC or Storage Spaces"
    return ""


def _bays(name: str, count: int) -> str:
    if name not in catalog.names("platform"):  # the answer says what is wrong with it
        return ""
    platform = catalog.get("platform", name)
    if platform.bays is None or count <= platform.bays.value:
        return ""
    maker = name.partition("-")[0]
    larger = [
        (not other.startswith(maker), q.value, part.model)
        for other in catalog.names("platform")
        if (q := (part := catalog.get("platform", other)).bays) is not None and q.value >= count
    ]  # fmt: skip
    more = f", or a server with {min(larger)[1]:.0f}: {min(larger)[2]}" if larger else ""
    bays = plural(round(platform.bays.value), "bay")
    return f"{platform.model} has {bays} for {count} drives: take {platform.bays.value:.0f}{more}"
