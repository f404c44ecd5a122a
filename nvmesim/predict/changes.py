"""A change of a scenario that could relieve a bottleneck, and how it is made of others."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import Model, Quantity, number_at, with_numbers
from nvmesim.catalog.toml import quantity_at, show_value
from nvmesim.scenario.resolved import ResolvedScenario, Volume

COMMANDS: Final = {
    "stripe_cache": "echo {} > /sys/block/mdX/md/stripe_cache_size",
    "group_thread_cnt": "echo {} > /sys/block/mdX/md/group_thread_cnt",
    "bitmap": "mdadm --grow --bitmap={} /dev/mdX",
    "recordsize": "zfs set recordsize={} DATASET",
}
"""Last name of a key -> what sets it. Source: md(4), mdadm(8), zfsprops(7)."""

BOUGHT: Final = ("sockets", "adapters", "interconnect", "roots")
"""Parts of a server beside its drives, which a change may replace."""


@dataclass(frozen=True)
class Change:
    """A changed scenario, and what was changed in words that follow "with"."""

    text: str
    scenario: ResolvedScenario
    set: Mapping[str, Any] = field(default_factory=dict)
    """The same as keys and values of a scenario file; empty: no key says it exactly."""
    how: str = ""
    """Where a value alone does not say it: what to change in the file."""

    @property
    def command(self) -> str:
        """What does it on the server itself, or in the file; empty where no one line says it."""
        if self.how:
            return self.how
        found = ((COMMANDS.get(key.rpartition(".")[2]), v) for key, v in self.set.items())
        return "; ".join(c.format(re.sub(" |iB$", "", str(v))) for c, v in found if c)

    def added(self, base: ResolvedScenario, what: str) -> float | None:
        """What its drives add to those of *base* in "power_active_w" or "price".

        0 where nothing is bought; None where other parts are, or the drives' profiles do not say.
        """
        new, kept = self.scenario, {id(d.profile) for d in base.drives}
        engines = {id(v.engine) for v in base.volumes}
        are_known = all(id(d.profile) in kept for d in new.drives)
        is_same = all(getattr(new, part) == getattr(base, part) for part in BOUGHT)
        if not is_same or not are_known or any(id(v.engine) not in engines for v in new.volumes):
            return None
        if len(new.drives) == len(base.drives):
            return 0.0
        before, after = ([getattr(d.profile, what) for d in s.drives] for s in (base, new))
        if None in before + after:
            return None
        return float(sum(q.value for q in after) - sum(q.value for q in before))


def watts(s: ResolvedScenario) -> float | None:
    """W of the drives and CPUs at work; None if one of them does not say it."""
    return _sum([d.profile.power_active_w for d in s.drives] + [k.cpu.tdp_w for k in s.sockets])


def price(s: ResolvedScenario) -> float | None:
    """List price of the drives and CPUs; None if the profile of one of them does not say it."""
    return _sum([d.profile.price for d in s.drives] + [k.cpu.price for k in s.sockets])


def _sum(known: Sequence[Quantity | None]) -> float | None:
    stated = [q.value for q in known if q is not None]
    return sum(stated) if len(stated) == len(known) else None


ChangeFactory = Callable[[ResolvedScenario], Change | None]
"""Returns None where the change does not apply."""


def changed(
    s: ResolvedScenario, text: str, keys: Mapping[str, Any] | None = None, **fields: Any
) -> Change | None:
    """*s* with other *fields*; None where they are as before."""
    other = replace(s, **fields)
    return None if other == s else Change(text, other, keys or {})


def of_volumes(
    s: ResolvedScenario, text: str, volumes: Sequence[Volume], key: str,
    value: Callable[[Volume], Any],
) -> Change | None:  # fmt: skip
    """*s* with *volumes*; those that differ have another *value* of *key*."""
    moved = [new for new, old in zip(volumes, s.volumes, strict=True) if new != old]
    keys = {f"volume.{v.table}.{key}": value(v) for v in moved}
    if any(keys[name] != value(v) for v in volumes if (name := f"volume.{v.table}.{key}") in keys):
        keys = {}  # arrays of one table that differ
    if len(moved) == len(volumes) and len(set(keys.values())) == 1:
        keys = {f"volume.*.{key}": value(moved[0])}
    return changed(s, text, keys, volumes=tuple(volumes))


def if_one(key: str, values: Iterable[Any]) -> dict[str, Any]:
    """*key* with the value that all have, nothing where they differ."""
    found = set(values)
    return {key: found.pop()} if len(found) == 1 else {}


def multiplied(profile: Model, factors: Mapping[str, float]) -> Model:
    """*profile* with numbers by dotted key multiplied, as assumed ones; absent ones stay absent."""
    known = ((key, number_at(profile, key), factor) for key, factor in factors.items())
    return with_numbers(profile, {
        key: Quantity(value=number.value * factor, basis="assumed", source="what-if")
        for key, number, factor in known if number is not None
    })  # fmt: skip


def stated(profile: DriveProfile, key: str) -> Any:
    """The number at dotted *key* of *profile* as a file states it; None if it has none."""
    if number_at(profile, key) is None:
        return None
    quantity, what = quantity_at(profile, key)
    if what != "number":
        return show_value(quantity.value, what)
    return int(quantity.value) if quantity.value.is_integer() else quantity.value


def each(
    text: str, keys: Mapping[str, Any] | None = None, **changes: Callable[[Any], Any]
) -> ChangeFactory:
    """Make a change of each element of the lists that *changes* name, such as drives."""
    return lambda s: changed(s, text, keys, **{
        name: tuple(map(change, getattr(s, name))) for name, change in changes.items()
    })  # fmt: skip
