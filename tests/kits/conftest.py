"""The stand of a column, and the run of those of its rows that were chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.kits.columns import Column
from tests.kits.trial import MODULES, Stand, Trial

pytest.register_assert_rewrite(*(f"tests.kits.{name}" for name in MODULES))


@pytest.fixture(scope="module")
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Begins when the first of its rows is asked for, and ends before that of the next column begins."""
    column: Column = request.param
    own = [item for item in request.session.items if item.path == request.path]
    cases = [item.callspec.params for item in own if hasattr(item, "callspec")]
    chosen = [each["row"] for each in cases if each["trial"] is column and "row" in each]
    with Stand(column, tmp_path_factory.mktemp(column.name)) as stand, contextlib.closing(Trial(stand, chosen)) as run:
        yield run
