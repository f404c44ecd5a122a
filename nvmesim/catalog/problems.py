"""What pydantic found wrong, as one line a person can act on: key, value, what would do."""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from nvmesim.errors import nearest

_UNIONS = (Union, types.UnionType)


def first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem of *error*, raised when *model* was validated, as one line.

    >>> from nvmesim.catalog.profile import CpuProfile
    >>> try:
    ...     CpuProfile.model_validate({"name": "x", "cores": 0, "ghz": 2.1})
    ... except ValidationError as error:
    ...     first_problem(error, CpuProfile)
    'cores is 0; input should be greater than or equal to 1'
    """
    problems = error.errors(include_url=False)
    # An unknown key explains a missing one, so it comes first.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    loc = tuple(part for part in problem["loc"] if part != "function-after")
    key = ".".join(str(part) for part in loc)
    found = problem["input"]
    if problem["type"] == "extra_forbidden":
        known = keys_at(model, loc[:-1])
        return f"{key} is not a known key; {nearest(str(loc[-1]), known)}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "value_error":
        return _value_error(key, found, str(problem["ctx"]["error"]))
    if problem["type"] == "literal_error":
        options = str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
        return f"{key} is {found!r}; {nearest(str(found), options.split(', '))}"
    message = problem["msg"]
    return f"{key} is {_short(found)}; {message[0].lower()}{message[1:]}"


def keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the model at *loc* inside *model* has.

    >>> from nvmesim.catalog.profile import DriveProfile
    >>> keys_at(DriveProfile, ("read",))[:2]
    ['base', 'die']
    """
    current: Any = model
    for part in loc:
        inner = _model_in(current)
        if inner is not None and part in inner.model_fields:
            current = inner.model_fields[str(part)].annotation
    inner = _model_in(current)
    return list(inner.model_fields) if inner is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model inside a type such as ``tuple[Model, ...] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (*_UNIONS, Annotated, tuple, list, dict):
        found = (_model_in(argument) for argument in get_args(annotation))
        return next((model for model in found if model is not None), None)
    return None


def _value_error(key: str, found: Any, message: str) -> str:
    """Say the value unless the message does."""
    if not key:
        return message
    if _short(found) in message or isinstance(found, dict):
        return f"{key}: {message}"
    return f"{key} is {_short(found)}; {message}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
