"""The table of what it takes to begin: its ways, and sizes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.adoption import WAYS, call, measured, size_of
from tests.packaging.conftest import ROOT


def test_a_size_counts_a_file_with_two_names_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(2_000_000))
    os.link(tmp_path / "one", tmp_path / "other")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert size_of(tmp_path) == pytest.approx(2.0, abs=0.01)
    assert size_of(tmp_path / "one") == 2.0


def test_a_command_that_fails_ends_the_measure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="is not here"):
        call("sh", "-c", "echo it is not here; exit 3", cwd=tmp_path)


def test_the_page_has_a_row_of_every_way() -> None:
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8").partition("## What it takes")[2]
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(WAYS) + 1  # and the demonstration
    assert all(f"`{command}`" in page for way in WAYS[:1] for command in way.commands)


def test_a_way_is_measured_in_a_folder_of_its_own_that_is_gone_afterwards(tmp_path: Path) -> None:
    (one_file,) = [way for way in WAYS if way.name == "pyz"]
    (tmp_path / "wheels").mkdir()
    (tmp_path / "pinlater.pyz").write_text("print('pinlater.pyz 0.1.0')")
    row = measured(one_file, tmp_path / "wheels")
    assert row.startswith("| pyz | 1: python3 pinlater.pyz | ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pinlater.pyz", "wheels"]
