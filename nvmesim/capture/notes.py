"""Notes of a reader about a file beside its requests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Notes:
    """Counts and warnings of one file; filled while it is read."""

    skipped: int = 0
    warnings: list[str] = field(default_factory=list)

    def say(self, count: int, text: str) -> None:
        """Add a warning that starts with *count*, if there is anything to count."""
        if count:
            self.warnings.append(f"{count} {text}")
