"""The part of the suite that only `--slow` runs: long rounds of what each run proves in short."""

from __future__ import annotations

import pytest

from tests.conformance.bindings import Binding


def is_longest(item: pytest.Item) -> bool:
    """Whether a test has the mark `longest`, or runs a store at a depth that its binding leaves to `--slow`."""
    if item.get_closest_marker("longest"):
        return True
    parameters = getattr(item, "callspec", None)
    values = parameters.params if parameters else {}
    return any(isinstance(value, Binding) and values.get("depth") in value.longest for value in values.values())
