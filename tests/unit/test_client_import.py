"""What `import pinlater` brings with it."""

from __future__ import annotations

import subprocess
import sys

LOADS = """
import sys
import pinlater
print(" ".join(sorted(sys.modules)))
"""
DRIVERS = {"redis", "hiredis", "sqlalchemy", "pymysql", "MySQLdb", "sqlite3"}
OTHERS = {"structlog", "apscheduler", "re2", "uvloop", "click"}
PARTS = {f"pinlater.{part}" for part in ("server", "service", "shards", "backends", "app", "config", "cli")}


def test_importing_the_client_loads_no_store_and_no_part_of_a_server() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True, timeout=30)
    assert not (DRIVERS | OTHERS | PARTS) & set(loaded.stdout.split())
