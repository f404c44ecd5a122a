"""Which modules are changed, and the quick tests that ought to notice."""

from dataclasses import dataclass

RAID = "tests/raid/test_"
FIT = "tests/calibrate/test_"
POINTS = (
    "point or percentile or submission or cpu or mix or means or rule or used or bin or own or rows"
    " or flush"
)
KERNEL_CHECK = ("tests/mutation/check_kernel.py", "-k", "agree")
KERNEL_FURTHER = (
    *(f"tests/engines/test_{name}.py" for name in ("heap", "unsteady")),
    "tests/mutation/check_kernel.py",
    "-k",
    "not agree and not window and not modulated",
)


@dataclass(frozen=True)
class Group:
    modules: dict[str, tuple[str, ...]]  # tests by module, those first that notice most
    jit: bool = True
    further: tuple[str, ...] = ()  # slower tests, for what survives those of its module


def _tests(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}.py" for name in names.split())


def _raid(names: str) -> tuple[str, ...]:
    return _tests(RAID, names)


MD_CASES = ("tests/raid/test_md_cases.py", "-k", "not random_case")
"""The cases of a real md that are exact."""


GROUPS = {
    "planner": Group(
        {
            "raid.geometry": _raid("geometry table"),
            "raid.map": _raid("geometry table"),
            "raid.planner.parity": _raid("row geometry table"),
            "raid.planner.plan": _raid("table geometry"),
            "raid.planner.pieces": _raid("merge geometry table row"),
            "raid.tables": _raid("rebuild table"),
        },
        further=MD_CASES,
    ),
    "kernel": Group(
        {
            "engine.compiled.kernel": KERNEL_CHECK,
            "engine.compiled.kernel_events": ("tests/engines/test_heap.py",),
            "engine.compiled.kernel_requests": KERNEL_CHECK,
            "engine.compiled.kernel_stations": KERNEL_CHECK,
        },
        jit=False,
        further=KERNEL_FURTHER,
    ),
    "fit": Group(
        {
            "calibrate.points": (*_tests(FIT, "figures"), "-k", POINTS),
            "calibrate.drive.empirical": _tests(FIT, "figures empirical"),
        }
    ),
}
