"""docs/access.md against the table of methods."""

from __future__ import annotations

import pytest

from pinlater.http.routes import ROUTES
from pinlater.wire.methods import METHODS
from tests.packaging.access_table import PAGE, section, with_section


def test_the_page_on_access_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_section(text), "run: python -m tests.packaging.access_table"


def test_it_has_a_row_for_each_route() -> None:
    for route in ROUTES:
        assert section().count(f"\n| `{route.verb} {route.path}` | {route.method.name} |") == 1, route.name


@pytest.mark.parametrize("name", METHODS)
def test_it_has_a_row_for_each_call(name: str) -> None:
    assert section().count(f"\n| {name} |") == 1
