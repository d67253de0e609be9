"""The files of the kits in a release: made from this checkout, and used from an empty folder."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.artifact_kits import (
    TOOLS,
    build_go_kit,
    build_java_kit,
    build_node_kit,
    check_kit_tools,
    go_module,
    try_the_kits,
)
from tests.packaging.artifacts import write_checksums
from tests.packaging.conftest import ROOT
from tests.packaging.release import Release, ReleaseRefused, version_of_project


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """Whose server is the one of this environment."""
    dist, programs = tmp_path / "dist", tmp_path / "work" / "server" / "bin"
    dist.mkdir()
    programs.mkdir(parents=True)
    (programs / "pinlater").symlink_to(Path(sys.executable).parent / "pinlater")
    return Release(version_of_project(), ROOT, dist, tmp_path / "work", epoch_s=1_700_000_000)


@pytest.mark.slow
@pytest.mark.store("languages")
def test_each_kit_is_made_and_enqueues_a_job_from_an_empty_folder(release: Release) -> None:
    for step in (build_node_kit, build_go_kit, build_java_kit, try_the_kits, write_checksums):
        step(release)
    made = {line.split()[1] for line in (release.dist / "SHA256SUMS").read_text().splitlines()}
    suffixes = (".tgz", ".jar", "-sources.jar", "-javadoc.jar", ".pom")
    names = {f"pinlater-{release.version}{suffix}" for suffix in suffixes}
    assert made == names | {f"pinlater-go-{release.version}.zip"}


def test_the_module_for_go_is_packed_alike_at_any_time(release: Release) -> None:
    build_go_kit(release)
    first = go_module(release).read_bytes()
    with zipfile.ZipFile(go_module(release)) as packed:
        names = set(packed.namelist())
    inside = f"pinlater-go-{release.version}/"
    assert {
        inside + name for name in ("go.mod", "go.sum", "LICENSE", "README.md", "internal/wire/pinlater.go")
    } <= names
    assert all(name.startswith(inside) for name in names)
    build_go_kit(release)
    assert go_module(release).read_bytes() == first


def test_what_is_not_installed_is_named_with_the_way_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in TOOLS.keys() - {"mvn"}:
        (tmp_path / program).write_text("#!/bin/sh")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseRefused, match=r"need mvn \(maven\): .*--without-kits"):
        check_kit_tools()


def test_the_jar_has_the_version_of_the_project() -> None:
    """Those of the other kits are checked beside their files."""
    pom = (ROOT / "workers" / "java" / "pom.xml").read_text(encoding="utf-8")
    found = re.search(r"<version>(.+)</version>", pom)
    assert found is not None
    assert found[1] == version_of_project()
