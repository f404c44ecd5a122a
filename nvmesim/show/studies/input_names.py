"""Inputs of a sensitivity study in words: what a profile's documentation says of the number."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel

from nvmesim.catalog.profile import CpuProfile, DriveProfile, RaidEngineProfile, StackProfile

_HOLDERS: Final[Mapping[str, tuple[str, type[BaseModel]]]] = {
    # how the input's key begins: what it is called, its class
    r"drives(?:\.[\d*]+)?\.profile\.": ("drive", DriveProfile),
    r"server\.stack\.": ("software", StackProfile),
    r"server\.sockets(?:\.[\d*]+)?\.cpu\.": ("CPU", CpuProfile),
    r"volume(?:\.[\d*]+)?\.engine\.": ("RAID", RaidEngineProfile),
}
LONGEST: Final = 60
_PARTS: Final = {
    "misfit": "what the drive's calibration misses",
    "model": "errors of the model itself",
    "simulation": "chance in this simulation",
}


def in_words(key: str) -> str:
    """Return an input in words; its *key* where nothing is known of it.

    >>> in_words("drives.0.profile.read.die"), in_words("model")
    ('drive: mean time a die is busy for one unit', 'errors of the model itself')
    """
    if key in _PARTS:
        return _PARTS[key]
    for begins, (name, model) in _HOLDERS.items():
        found = re.match(begins, key)
        if found:
            text = _documented(model, key[found.end() :].split("."))
            return f"{name}: {text or key[found.end() :].replace('.', ' ').replace('_', ' ')}"
    return key


def _documented(model: type[BaseModel], path: list[str]) -> str:
    """First sentence on the field at *path*, below *model*."""
    text, names = "", []
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            text = field_docs(current).get(part, "")
            field = current.model_fields.get(part)
            current = None if field is None else _model_in(field.annotation)
        else:
            names.append(part)
    plain = " ".join(text.replace("``", "").split())
    sentence = re.split(r"(?<=[a-z)])[.;:](?:\s|$)", plain, maxsplit=1)[0]
    if len(sentence) > LONGEST:  # what follows is a detail
        sentence = re.split(r", | \(", sentence, maxsplit=1)[0]
    said = sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
    return f"{said} ({' '.join(names)})" if names and said else said


def _model_in(annotation: Any) -> Any:
    """The model that a field holds, also as an option or in a table."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)


@functools.cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the strings below the fields of *model* and its bases, in their source."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (isinstance(base, type) and issubclass(base, BaseModel)) or base is BaseModel:
            continue
        body = ast.parse(inspect.getsource(base)).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = str(after.value.value)  # type: ignore[attr-defined]
    return found
