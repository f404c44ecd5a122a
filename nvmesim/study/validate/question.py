"""A set without what must be predicted: all that calibration and prediction ever see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvmesim.study.validate.published import (
    Config,
    Fit,
    FromCatalog,
    InputFit,
    Published,
    Row,
    Uncertain,
)  # fmt: skip

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Question:
    """Inputs and questions of a set; a target's value is not in here."""

    name: str
    source: str
    """Who measured it: left out of what the model's error is learned from."""
    folder: Path
    scenario: Mapping[str, Any]
    configs: Mapping[str, Config]
    fits: tuple[Fit, ...]
    uncertain: tuple[Uncertain, ...]
    drive_fit: InputFit | None
    inputs: tuple[Row, ...]
    noise: Mapping[str, float]
    catalog: FromCatalog
    asked: tuple[Key, ...]
    """(config, metric, reference) of every row, inputs included."""

    @classmethod
    def of(cls, published: Published) -> Question:
        """Return the question that *published* poses."""
        file = published.file
        return cls(
            name=file.name,
            source=file.source,
            folder=published.folder,
            scenario=published.scenario,
            configs=file.configs,
            fits=file.fit,
            uncertain=file.uncertain,
            drive_fit=file.drive_fit,
            inputs=published.inputs,
            noise=file.noise,
            catalog=published.from_catalog,
            asked=tuple(row.key for row in published.rows),
        )

    def given(self, key: Key) -> Row:
        """Return an input row (`read_set` checks that fits name such)."""
        return next(row for row in self.inputs if row.key == key)
