"""The room on the disk of the data folder, as a lease says it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pinlater.data_folder import disk


def test_a_disk_is_told_of_while_little_of_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk, "LEAST_FREE", usage.free / usage.total / 2)
    assert disk.describe_disk(tmp_path) == {}
    monkeypatch.setattr(disk, "LEAST_FREE", 1.0)
    free, total = disk.describe_disk(tmp_path)[disk.DESCRIBED]
    assert 0 < free < total
    assert disk.describe_disk(tmp_path / "gone") == {}
