"""Models of pydantic among the arguments of jobs: how they are written and read. Pydantic 2.

Pydantic is never imported here: a program that has no model has none to write, and none to read.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

MAX_FAULTS = 3
"""The most faults of one value that are told."""

_write = msgspec.json.Encoder().encode


def is_model(kind: object) -> bool:
    """A class of models."""
    base = _base()
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def write_model(model: Any) -> Any:
    """As plain values, by the names that the model is read by. ValueError or TypeError: what JSON does not have."""
    try:
        return model.model_dump(mode="json", by_alias=True, round_trip=True)
    except ValueError as error:  # pydantic's own, with lines of explanation behind the first
        raise ValueError(str(error).partition("\n")[0]) from None


def read_model(kind: Any, value: Any) -> Any:
    """The model of plain values. ValueError: it is none, in one line.

    As JSON, since that is what it was written as: a strict model takes a text for a date there, and nowhere else.
    """
    if isinstance(value, kind):
        return value
    try:
        return kind.model_validate_json(_write(value))
    except ValueError as error:
        raise ValueError(_faults(error)) from None


def _base() -> Any:
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return base if hasattr(base, "model_validate_json") else None


def _faults(error: Any) -> str:
    """Pydantic's words: the place and the fault, of the first few."""
    if not hasattr(error, "errors"):
        return str(error)
    faults = error.errors()
    texts = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else each["msg"] for each in faults]
    more = f"; and {len(texts) - MAX_FAULTS} more" if len(texts) > MAX_FAULTS else ""
    return "; ".join(texts[:MAX_FAULTS]) + more
