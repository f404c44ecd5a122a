"""Which modules are changed, and the quick tests that ought to notice."""

from __future__ import annotations

from dataclasses import dataclass

RAID = "tests/raid/test_"
FIT = "tests/fit/test_"
POINTS = "point or percentile or submission or cpu or mix or means or rule or used or bin or own"
FAMILIES = "likelihood or gamma or halves or errors or thinned or mixture or density or famil"
BOOTSTRAP = "block or interval or width or percentile"
KERNEL_CHECK = ("tests/mutation/check_kernel.py", "-k", "agree")
KERNEL_FURTHER = (
    *(f"tests/engines/test_{name}.py" for name in ("heap", "unsteady", "rounds")),
    "tests/mutation/check_kernel.py",
    "-k",
    "not agree and not window and not modulated",
)


@dataclass(frozen=True)
class Group:
    modules: dict[str, tuple[str, ...]]
    """Tests by module, those first that notice most."""
    jit: bool = True
    further: tuple[str, ...] = ()
    """Slower tests, for what survives those of its module."""


def _tests(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}.py" for name in names.split())


def _raid(names: str) -> tuple[str, ...]:
    return _tests(RAID, names)


MD_CASES = ("tests/raid/test_md_cases.py", "-k", "not long_run and not random_case")
"""The cases of a real md that are exact."""


GROUPS = {
    "planner": Group(
        {
            "model.raid_geometry": _raid("geometry map table brute"),
            "model.raid_map": _raid("map table brute"),
            "model.raid_parity": _raid("geometry table row brute"),
            "model.raid_row": _raid("row table"),
            "model.raid_plan": _raid("table geometry brute"),
            "model.raid_merge": _raid("merge table"),
            "model.raid_pieces": _raid("geometry table row brute"),
            "model.raid_rebuild": _raid("rebuild table"),
        },
        further=MD_CASES,
    ),
    "kernel": Group(
        {
            "engine.kernel": KERNEL_CHECK,
            "engine.kernel_heap": ("tests/engines/test_heap.py",),
            "engine.kernel_wheel": ("tests/engines/test_heap.py",),
            "engine.kernel_requests": KERNEL_CHECK,
            "engine.kernel_stations": KERNEL_CHECK,
        },
        jit=False,
        further=KERNEL_FURTHER,
    ),
    "fit": Group(
        {
            "fit.points": (*_tests(FIT, "figures own_targets points"), "-k", POINTS),
            "fit.families": (*_tests(FIT, "figures families"), "-k", FAMILIES),
            "fit.tail": (*_tests(FIT, "figures"), "-k", "tail or beyond"),
            "fit.bootstrap": (*_tests(FIT, "figures"), "-k", BOOTSTRAP),
            "fit.series": (
                *_tests(FIT, "figures"),
                "nvmesim/fit/series.py",
                "-k",
                "memory or runs or ranks",
            ),
        }
    ),
}
