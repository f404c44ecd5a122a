"""Scenarios of one server with drives of one kind, as the tables of a file."""

from typing import Any


def one_server(
    profile: Any, load: Any, count: int = 1, *, cpu: Any = "xeon-gold-6130", sockets: int = 1,
    stack: Any = "linux-io_uring", drive: dict[str, Any] | None = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """*load* on *count* drives; *drive*: further keys of theirs; *more*: further tables."""
    return {
        "server": {"stack": stack, "sockets": [{"cpu": cpu}] * sockets},
        "drives": [{"profile": profile, "count": count, **(drive or {})}],
        "workload": load, **more,
    }  # fmt: skip
