"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import pinlater
import pinlater_workers

FOLDERS = [Path(package.__file__).parent for package in (pinlater, pinlater_workers)]
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(folder.parent).with_suffix("").parts)
    for folder in FOLDERS
    for path in folder.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_the_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
