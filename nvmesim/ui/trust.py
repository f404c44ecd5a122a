"""Tables from what a page sends: no path in it is ever opened."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nvmesim.catalog.toml import checked_toml, references
from nvmesim.errors import InputError, NvmesimError, ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.schema import Scenario

MOST_TEXT: Final = 256 << 10
"""Characters of a scenario."""
NOWHERE: Final = Path("/nonexistent-nvmesim-ui")
"""Where relative paths would start from, should one get this far."""


def tables_of_text(text: Any) -> dict[str, Any]:
    """Return the tables in TOML *text*; ScenarioError for what is none, or names a file.

    >>> tables_of_text('[[drives]]' + chr(10) + 'profile = "hdd-7200"')
    {'drives': [{'profile': 'hdd-7200'}]}
    """
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise ScenarioError(f"a scenario is TOML text of at most {MOST_TEXT >> 10} KiB")
    try:
        tables = tomllib.loads(checked_toml(text))
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"not TOML: {' '.join(str(error).split())}") from None
    check(tables)
    return tables


def check(tables: Any) -> None:
    """Raise ScenarioError if anything in *tables* names a file."""
    for key, text in references(tables):
        raise ScenarioError(
            f"{key} names the file {text[:60]!r}; the page opens no files: give the drive on the "
            "Drive page, write the load as keys, or use nvmesim run"
        )


def scenario_of(tables: Mapping[str, Any]) -> Scenario:
    """Return the checked scenario in *tables*."""
    check(tables)
    return scenario_from_dict(tables, NOWHERE)


def problem_of(tables: Mapping[str, Any]) -> str:
    """Return why a design with *tables* cannot be, in a line; "" if it can."""
    try:
        scenario_of(tables)
    except NvmesimError as error:
        return str(error)
    return ""


def text_of(value: Any, name: str, most: int = MOST_TEXT) -> str:
    """Return *value* if it is a text that is not too long; InputError otherwise."""
    if not isinstance(value, str) or len(value) > most:
        raise InputError(f"{name}: a text of at most {most:,} characters is needed")
    return value
