"""What a soak measures by: rows, with the audit apart, and the processes of a program."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.soak.measures import AUDIT, Lives, family, files_in, rows_of


def test_rows_are_counted_by_table_and_those_of_the_audit_apart(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE pinlater_jobs (id INTEGER)")
        file.execute("CREATE TABLE pinlater_notes (kind TEXT)")
        file.executemany("INSERT INTO pinlater_jobs VALUES (?)", [(1,), (2,)])
        kinds = [("lease",), ("audit",), ("audit-open",)]
        file.executemany("INSERT INTO pinlater_notes VALUES (?)", kinds)
        file.commit()
    assert rows_of(f"sqlite:///{path}") == {"pinlater_jobs": 2, "pinlater_notes": 1, AUDIT: 2}
    assert not rows_of(f"sqlite:///{tmp_path}/none.db")


def test_files_are_counted_at_every_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three"):
        (tmp_path / name).touch()
    assert files_in(tmp_path) == 3


def test_a_process_is_measured_with_those_of_its_children_that_are_known() -> None:
    children = [["-c", "input()", "pinlater.app"], ["-c", "input()", "something else"]]
    running = [subprocess.Popen([sys.executable, *each], stdin=subprocess.PIPE) for each in children]
    try:
        found = list(family("x", "supervisor", os.getpid()))
        assert ("supervisor of x", os.getpid()) in found
        assert ("server process of x", running[0].pid) in found
        assert running[1].pid not in {each.pid for each in found}
        lives = Lives()
        lives.look([*found, found[0]._replace(role="gone", pid=2**22)])
        mib, descriptors = lives.newest()["supervisor of x"]
        assert mib > 1
        assert descriptors >= 3
        assert "gone" not in lives.memory
    finally:
        for each in running:
            each.communicate(b"\n")
