"""The files of a release: when none is made, and what is in those that are made without building anything."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.artifacts import PYZ_START, pack_chart, reasons_against, sources_into, write_checksums
from tests.packaging.conftest import ROOT
from tests.packaging.release import Release, version_of_project


@pytest.fixture
def release(tmp_path: Path) -> Release:
    dist, work = tmp_path / "dist", tmp_path / "work"
    dist.mkdir()
    work.mkdir()
    return Release("0.1.0", ROOT, dist, work, epoch_s=1_700_000_000)


@pytest.mark.parametrize(
    ("changelog", "uncommitted", "reasons"),
    [
        ("# Changes\n\n## 0.1.0, 2026-11-28\nThe first.\n", "", []),
        ("# Changes\n\n## 0.1.0, not yet released\n", "", ["'0.1.0, not yet released'"]),
        ("# Changes\n\n## 0.2.0, 2027-01-01\n\n## 0.1.0, 2026-11-28\n", "", ["'0.2.0, 2027-01-01'"]),
        ("# Changes\n", "", ["no section"]),
        ("# Changes\n\n## 0.1.0, 2026-11-28\n", " M setup.cfg", [" M setup.cfg"]),
    ],
)
def test_a_release_needs_its_day_and_a_commit(changelog: str, uncommitted: str, reasons: list[str]) -> None:
    found = list(reasons_against("0.1.0", changelog, uncommitted))
    assert len(found) == len(reasons)
    assert all(reason in text for reason, text in zip(reasons, found, strict=True))


def test_the_changelog_is_that_of_a_version_that_can_be_released() -> None:
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading is not None
    version = version_of_project()
    assert re.fullmatch(rf"{re.escape(version)}, (\d{{4}}-\d\d-\d\d|not yet released)", heading[1])


def test_the_sources_are_those_of_the_commit(tmp_path: Path) -> None:
    sources_into(tmp_path, committed=True)
    listed = subprocess.run(["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert files == set(listed.stdout.splitlines())


def test_checksums_are_what_sha256sum_checks(release: Release) -> None:
    (release.dist / "pinlater.pyz").write_bytes(b"one file")
    (release.dist / "wheels").mkdir()
    write_checksums(release)
    text = (release.dist / "SHA256SUMS").read_text()
    assert text == f"{hashlib.sha256(b'one file').hexdigest()}  pinlater.pyz\n"
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release.dist, check=True)


def test_the_chart_is_packed_alike_at_any_time(release: Release) -> None:
    pack_chart(release)
    (packed,) = release.dist.glob("*.tgz")
    first = packed.read_bytes()
    with tarfile.open(packed) as archive:
        names = archive.getnames()
        assert {member.mtime for member in archive} == {release.epoch_s}
    assert not any(member.issym() or member.islnk() for member in archive)
    assert {
        "pinlater/Chart.yaml",
        "pinlater/values.yaml",
        "pinlater/templates/service.yaml",
        "pinlater/files/rules.yml",
    } <= set(names)
    pack_chart(release)
    assert packed.read_bytes() == first


def test_the_one_file_names_an_interpreter_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    ast.parse(PYZ_START, feature_version=(3, 4))
    begun: dict[str, object] = {}
    exec(PYZ_START, begun)
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    main = begun["main"]
    assert callable(main)
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer, and .* is 3\.9; .*python3\.12"):
        main()
