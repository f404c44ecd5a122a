"""Pydantic's errors as one line that a person can act on: key, value, what would do."""

import re
import types
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nvmesim.errors import nearest


def first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem of *error*, raised when *model* was validated, as one line.

    `ELSEWHERE` of the model says of keys that belong in another place, or have another name there,
    what to write.

    >>> from nvmesim.catalog.profile import CpuProfile
    >>> try:
    ...     CpuProfile.model_validate({"name": "x", "cores": 0, "ghz": 2.1})
    ... except ValidationError as error:
    ...     first_problem(error, CpuProfile)
    'cores is 0; at least 1'
    """
    # An unknown key explains a missing one, so it comes first.
    problem = min(error.errors(include_url=False), key=_rank)
    is_extra = problem["type"] == "extra_forbidden"
    # the last part of an unknown key may be named as a branch is
    end = problem["loc"][-1:] if is_extra else ()
    outer = problem["loc"][:-1] if is_extra else problem["loc"]
    loc = (*(part for part in outer if not _is_branch(part)), *end)
    key, found = ".".join(str(part) for part in loc), problem["input"]
    if is_extra:
        holder = _model_at(model, loc[:-1])
        known = list(holder.model_fields) if holder is not None else []
        hint = getattr(model, "ELSEWHERE", {}).get(loc[-1]) or _at_top(model, loc)
        return f"{key} is not a known key; {hint or nearest(str(loc[-1]), known)}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "value_error":
        message = str(problem["ctx"]["error"])
        if not key:
            return message
        says_it = _short(found) in message or isinstance(found, dict)
        return f"{key}: {message}" if says_it else f"{key} is {_short(found)}; {message}"
    if problem["type"] == "literal_error":
        options = str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
        return f"{key} is {found!r}; {nearest(str(found), options.split(', '))}"
    share, most = "", problem.get("ctx", {}).get("le")
    if most == 1 and isinstance(found, int | float) and 1 < found <= 100:
        share = f"; for percent write {found / 100:g} or '{found:g}%'"
    return f"{key} is {_short(found)}; {_wanted(problem, model, loc)}{share}"


def _at_top(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """Return what to write where a key of the file itself stands in a table of it; else ""."""
    field = model.model_fields.get(str(loc[-1]))
    if field is None or model_in(field.annotation) is not None:
        return ""
    if get_origin(field.annotation) is dict:
        return f"[{loc[-1]}] is a table of its own"
    return "it belongs to no table: write it above the first [table] of the file"


_BRANCH: Final = re.compile(
    r"function-\w+|bool|int|str|float|constrained-\w+|literal\[.*\]|[A-Z]\w*Spec"
)
"""Words that pydantic adds to a place to say which type of a union it tried."""
_OTHER_TYPE: Final = (
    "bool_type", "bool_parsing", "int_type", "int_parsing", "float_type", "float_parsing",
    "string_type", "model_type", "dict_type", "literal_error",
)  # fmt: skip


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and _BRANCH.fullmatch(part) is not None


def _rank(problem: ErrorDetails) -> int:
    """An unknown key first; last what only says that a value is of another type of a union."""
    if problem["type"] == "extra_forbidden":
        return 0
    last = problem["loc"][-1] if problem["loc"] else ""
    return 2 if _is_branch(last) and problem["type"] in _OTHER_TYPE else 1


_WANTED: Final = {
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "too_short": "at least one",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "a table",
    "dict_type": "a table",
}
_BOUNDS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _wanted(problem: ErrorDetails, model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """Say what would do: the whole range for a number out of it, a type for another."""
    kind = problem["type"]
    if kind in _WANTED:
        return f"{_WANTED[kind]} is needed"
    context = problem.get("ctx", {})
    bounds = [f"{word} {context[key]:g}" for key, word in _BOUNDS.items() if key in context]
    bounds += [text for text in _bounds_of(model, loc) if text not in bounds]
    if bounds:
        bounds.sort(key=lambda text: text.startswith(("at most", "below")))
        text = " and ".join(bounds)
        return re.sub(r"^at least (\S+) and at most (\S+)$", r"from \1 to \2", text)
    message: str = problem["msg"]
    return message[0].lower() + message[1:]


def _bounds_of(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    holder = _model_at(model, loc[:-1])
    field = holder.model_fields.get(str(loc[-1])) if holder is not None and loc else None
    found = [] if field is None else field.metadata
    return [
        f"{word} {getattr(mark, key):g}"
        for key, word in _BOUNDS.items()
        for mark in found
        if isinstance(getattr(mark, key, None), int | float)
    ]


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    current: Any = model
    for part in loc:
        inner = model_in(current)
        if inner is not None and part in inner.model_fields:
            current = inner.model_fields[str(part)].annotation
    return model_in(current)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model inside a type such as ``tuple[Model, ...] | None``.

    >>> model_in(tuple[int, ...] | None) is None
    True
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, Annotated, tuple, list, dict):
        found = (model_in(argument) for argument in get_args(annotation))
        return next((model for model in found if model is not None), None)
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
