"""The code that a page of the docs shows, as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.packaging.conftest import ROOT


def function_of_page(page: str, name: str) -> Callable[..., Any]:
    """A function that docs/PAGE defines."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if f"def {name}(" in block]
    found: dict[str, Any] = {}
    exec(code, found)
    made: Callable[..., Any] = found[name]
    return made
