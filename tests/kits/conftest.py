"""The stand of a column, and the run of those of its rows that were chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.kits.columns import COLUMNS
from tests.kits.trial import Row, Stand, Trial


@pytest.fixture(scope="module")
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Begins when the first of its rows is asked for."""
    column = COLUMNS[request.module.COLUMN]
    own = [item for item in request.session.items if item.path == request.path]
    rows = [item.callspec.params["row"] for item in own if hasattr(item, "callspec")]
    chosen = [each for each in rows if isinstance(each, Row)]
    with Stand(column, tmp_path_factory.mktemp(column.name)) as stand, contextlib.closing(Trial(stand, chosen)) as run:
        yield run
