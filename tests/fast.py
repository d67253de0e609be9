"""The part of the suite that `--fast` runs: what a change is tried on again and again, without a store server."""

from __future__ import annotations

import pytest

from tests.conformance.bindings import Binding
from tests.stores.needs import SERVERS

FAST_PATHS = ["tests/unit", "tests/conformance", "tests/packaging/test_docs.py", "tests/packaging/test_house.py"]
"""Collected where the command names no path."""


def is_fast(item: pytest.Item, stores: set[str]) -> bool:
    """Whether a test that needs these stores is one of the part: no store server or file, and no mark `slow`."""
    if stores & SERVERS or item.get_closest_marker("slow"):
        return False
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters else ()
    return not any(isinstance(value, Binding) and value.lasting for value in values)
