"""Fixtures of tests of simulated clusters."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def quiet_servers() -> Iterator[None]:
    """Servers have much to say of what happens to them here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
