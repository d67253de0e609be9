"""What the clients bring with them, and the rest of what `pinlater` names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pinlater

LOADED = '; import sys; print(" ".join(sorted(sys.modules)))'
DRIVERS = {"redis", "hiredis", "sqlalchemy", "pymysql", "MySQLdb", "psycopg", "sqlite3"}
OTHERS = {"structlog", "apscheduler", "re2", "uvloop", "click"}
PARTS = {f"pinlater.{part}" for part in ("server", "service", "shards", "backends", "app", "config", "cli")}


def loaded_by(code: str) -> set[str]:
    command = [sys.executable, "-c", code + LOADED]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split())


def test_importing_the_clients_loads_no_store_and_no_part_of_a_server() -> None:
    loaded = loaded_by("from pinlater import *; assert AsyncClient and Client")
    assert not (DRIVERS | OTHERS | PARTS) & loaded


def test_importing_the_package_alone_loads_no_client() -> None:
    loaded = loaded_by("import pinlater, pinlater.printable")
    assert not {"asyncio", "thriftpy2", "pinlater.client", "pinlater.model"} & loaded


def test_every_public_name_is_there() -> None:
    assert set(pinlater.__all__) <= set(dir(pinlater))
    assert all(getattr(pinlater, name) is not None for name in pinlater.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = pinlater.Nothing
