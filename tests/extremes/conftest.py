"""A server on each kind of store, to which the whole table of extreme requests was sent, another caller's beside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pymysql
import pytest
from sqlalchemy.engine import make_url

from tests.extremes.sending import Sent, sent_to
from tests.http.calls import PASSWORD
from tests.server.running import running
from tests.stores.places import Places

PACKET = 2**20
"""The largest statement of MariaDB meanwhile: the largest body is as large."""

STORES = ("sqlite", "redis", "mysql", "postgres", "dynamodb")
WITH_FLOWS = ("mysql", "postgres")
"""Which have a database of flows too; else that is one of SQLite."""


def _param(store: str) -> object:
    return pytest.param(store, marks=pytest.mark.store(store))


def _quick_hash(password: str) -> str:
    """One that costs no time, as the table brings it with hundreds of calls."""
    salt = bytes(32)
    key = hashlib.scrypt(password.encode(), salt=salt, n=2, r=1, p=1, dklen=32)
    return ":".join(("scrypt", "2", "1", "1", *(base64.b64encode(each).decode() for each in (salt, key))))


@pytest.fixture(scope="package", params=[_param(name) for name in STORES])
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    store: str = request.param
    places: Places = request.getfixturevalue(f"{store}_places")
    folder: Path = tmp_path_factory.mktemp(f"extremes-{store}")
    url = places.fresh()
    flows = ["--flows", places.fresh()] if store in WITH_FLOWS else []
    with ExitStack() as stack:
        if store == "mysql":
            stack.enter_context(_small_packets(url))
        server = stack.enter_context(
            running(
                folder,
                *(
                    "--store",
                    f"1={url}",
                    *flows,
                    "--processes",
                    "1",
                    "--call-timeout",
                    "2m",
                    "--max-claim-timeout",
                    "30d",
                ),
                *("--api", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin-password-hash", _quick_hash(PASSWORD)),
            )
        )
        yield stack.enter_context(sent_to(store, server))


@contextmanager
def _small_packets(url: str) -> Iterator[None]:
    address = make_url(url)
    password = {"password": address.password} if address.password else {}
    with (
        pymysql.connect(host=address.host, port=address.port or 3306, user=address.username, **password) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        (before,) = cursor.fetchone()
        cursor.execute(f"SET GLOBAL max_allowed_packet = {PACKET}")
        try:
            yield
        finally:
            connection.ping()
            cursor.execute(f"SET GLOBAL max_allowed_packet = {before}")
