"""The files of Client's calls against those of AsyncClient."""

from __future__ import annotations

import inspect

import pytest

from pinlater import AsyncClient, Client
from tests.packaging.client_calls import PARTS, Part

ASYNC_ONLY = {"cancel_long_polls", "end_waits", "resume_long_polls"}
"""For a worker that ends or rests, which runs on asyncio."""


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.file)
def test_the_calls_of_client_are_current(part: Part) -> None:
    assert part.path.read_text(encoding="utf-8") == part.text(), "run: python -m tests.packaging.client_calls"


def test_both_clients_have_the_same_calls_with_the_same_arguments() -> None:
    names = {name for name in (*dir(AsyncClient), *dir(Client)) if not name.startswith("_")}
    for name in names - ASYNC_ONLY - {"servers", "source", "close"}:
        theirs, ours = getattr(AsyncClient, name), getattr(Client, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters, name
        assert ours.__doc__ == theirs.__doc__ is not None, name
