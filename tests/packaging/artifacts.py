"""The files of a release, made from a commit and tried where nothing else is installed. `scripts/release` runs it.

Nothing here needs the folder it is started in but git: the sources are those of the commit, so what lies about in a
checkout gets into no file.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.packaging.artifact_kits import (
    LEFT_OUT,
    build_go_kit,
    build_java_kit,
    build_node_kit,
    check_kit_tools,
    try_the_kits,
)
from tests.packaging.release import ROOT, Release, ReleaseRefused, run, served, version_of_project

FIRST_JOB = Path(__file__).parent / "first_job.py"
EXTRAS = "all,manual"
"""Those of the image: every store and its bodies, and the documentation; nothing that is built with a compiler."""
PYZ_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Whose compiled parts pinlater.pyz carries, as far as there are wheels of them."""


PYZ_START = """import sys


def main():
    if sys.version_info < (3, 11):
        sys.exit(
            "pinlater: this needs Python 3.11 or newer, and {} is {}.{}; name another one: python3.12 {}".format(
                sys.executable, sys.version_info[0], sys.version_info[1], sys.argv[0]
            )
        )
    from pinlater.cli import main

    main(prog_name="pinlater")
"""
"""Where pinlater.pyz begins: in words that an older interpreter reads too, since nothing refuses it before."""


def reasons_against(version: str, changelog: str, uncommitted: str) -> Iterator[str]:
    """Why no release may be made: each in a sentence."""
    heading = re.search(r"^## (.*)$", changelog, re.MULTILINE)
    if heading is None or not re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", heading[1]):
        found = "no section" if heading is None else repr(heading[1])
        yield f"CHANGELOG.md has to begin with '{version}, YYYY-MM-DD', the day of the release; it has {found}."
    if uncommitted:
        yield f"Not committed, so not in the release:\n{uncommitted}"


def build_packages(release: Release) -> None:
    """The sdist, and the wheel that is built from it."""
    release.python("-m", "build", "--no-isolation", "--outdir", release.dist, release.source)
    release.python("-m", "twine", "check", "--strict", *sorted(release.dist.glob(f"pinlater-{release.version}*")))


def collect_wheels(release: Release) -> None:
    """The wheel and those that it needs with the extras of a server, for this Python."""
    ours = ["--find-links", release.dist, f"{release.wheel}[{EXTRAS}]"]
    release.pip("wheel", "--quiet", "--wheel-dir", release.wheels, *ours, "setuptools>=77")


def build_manual(release: Release) -> None:
    """The documentation as a package, which the extra `manual` brings, as `scripts/docs --wheel` makes it."""
    site, package = release.source / "conf" / "site", release.work / "manual"
    (package / "pinlater_docs").mkdir(parents=True)
    shutil.copy2(site / "package" / "__init__.py", package / "pinlater_docs")
    text = (site / "package" / "pyproject.toml").read_text(encoding="utf-8")
    (package / "pyproject.toml").write_text(
        re.sub(r"^version = .*$", f'version = "{release.version}"', text, flags=re.MULTILINE), encoding="utf-8"
    )
    where = ["--config-file", site / "mkdocs.yml", "--site-dir", package / "pinlater_docs" / "site"]
    paths = os.pathsep.join(map(str, (site, release.source, release.source / "workers")))
    run(
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        *where,
        PYTHONPATH=paths,
        NO_MKDOCS_2_WARNING="1",
    )
    built = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", release.dist, package]
    release.pip(*built)


def try_the_client(release: Release) -> None:
    """The base install brings its own packages alone, and speaks."""
    python = release.environment("client", "pinlater")
    assert run(python.parent / "pinlater", "--version").split()[-1] == release.version
    installed = {path.name.partition("-")[0] for path in python.parents[1].rglob("*.dist-info")}
    assert installed == {"pinlater", "click", "cronsim", "msgspec", "thrift", "tzdata"}, installed


def try_the_server(release: Release) -> None:
    """A server starts and does a first job."""
    python = release.environment("server", "pinlater[server]")
    with served(python.parent / "pinlater", release.work / "data") as addresses:
        print(f"  {run(python, '-I', FIRST_JOB, addresses.thrift).strip()}")


def build_pyz(release: Release) -> None:
    """The client and the command line in one file, with compiled parts for every Python that has wheels."""
    inside = release.work / "pyz"
    release.pip("install", "--quiet", "--no-index", "--find-links", release.wheels, "--target", inside, "pinlater")
    for version in PYZ_PYTHONS:
        parts = release.work / f"msgspec-{version}"
        (found,) = release.wheels.glob("msgspec-*.whl")
        pinned = f"msgspec=={found.name.split('-')[1]}"
        only = ["--no-deps", "--only-binary=:all:", "--python-version", version, "--target", parts]
        try:
            release.pip("install", "--quiet", *only, pinned)
        except ReleaseRefused:
            print(f"  pinlater.pyz is not for Python {version}: there is no wheel of {pinned} for it")
            continue
        for part in parts.rglob("*.so"):
            shutil.copy2(part, inside / part.relative_to(parts))
    shutil.rmtree(inside / "bin")
    pyz = release.dist / "pinlater.pyz"
    (inside / "pinlater_pyz.py").write_text(PYZ_START)
    options = ["--reproducible", "--site-packages", inside, "--entry-point", "pinlater_pyz:main", "--output-file", pyz]
    release.python("-m", "shiv", "--python", "/usr/bin/env python3", *options)
    told = run(sys.executable, pyz, "--version", SHIV_ROOT=str(release.work / "shiv"))
    assert told.split()[-1] == release.version, told


def pack_chart(release: Release) -> None:
    """The Helm chart as `helm install` takes it; `helm package` would make the same of it."""
    chart = release.source / "conf" / "helm" / "pinlater"

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = release.epoch_s
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for path in sorted(chart.rglob("*")):
            archive.add(path, f"pinlater/{path.relative_to(chart)}", recursive=False, filter=plain)
    file = release.dist / f"pinlater-chart-{release.version}.tgz"
    file.write_bytes(gzip.compress(packed.getvalue(), mtime=release.epoch_s))


def write_sbom(release: Release) -> None:
    """What a server with every store consists of, in CycloneDX's form."""
    python = release.environment("everything", f"pinlater[{EXTRAS}]")
    file = release.dist / f"pinlater-{release.version}.cdx.json"
    options = ["--output-reproducible", "--output-format", "JSON", "--validate", "--output-file", file]
    release.python("-m", "cyclonedx_py", "environment", *options, python)


def write_checksums(release: Release) -> None:
    """SHA256SUMS: `sha256sum --check SHA256SUMS` says whether the files are those."""
    files = sorted(path for path in release.dist.iterdir() if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (release.dist / "SHA256SUMS").write_text("".join(lines))


Step = tuple[str, Callable[[Release], None]]
KITS: Sequence[Step] = (
    ("the package for Node", build_node_kit),
    ("the module for Go", build_go_kit),
    ("the jars for Java", build_java_kit),
    ("each of these in an empty project, with a first job", try_the_kits),
)
STEPS: Sequence[Step] = (
    ("sdist and wheel", build_packages),
    ("the documentation", build_manual),
    ("the folder of wheels", collect_wheels),
    ("the client in an empty environment, without an index", try_the_client),
    ("the server there, with a first job", try_the_server),
    ("pinlater.pyz", build_pyz),
    ("the chart", pack_chart),
    ("the SBOM", write_sbom),
)


def make(source: Path, dist: Path, epoch_s: int, *, with_kits: bool) -> Release:
    """All files of a release, in an empty folder `dist`."""
    with tempfile.TemporaryDirectory(prefix="pinlater-release-") as work:
        release = Release(version_of_project(), source, dist, Path(work), epoch_s)
        for what, step in [*STEPS, *(KITS if with_kits else ()), ("checksums", write_checksums)]:
            began_s = time.monotonic()
            print(f"{what} ...", flush=True)
            step(release)
            print(f"  {time.monotonic() - began_s:.1f} s", flush=True)
    return release


def sources_into(folder: Path, *, committed: bool) -> None:
    """The project's files, those of the commit or as they are in the folder now."""
    if committed:
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", "--directory", folder], input=packed, check=True)
        return
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/release", description="All files of a release, tried. Uploads nothing."
    )
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder they come into (dist)")
    parser.add_argument("--trial", action="store_true", help="from the files as they are, committed or not")
    parser.add_argument(LEFT_OUT, action="store_true", help="no files for Node, Go and Java, and none of their tools")
    options = parser.parse_args()
    try:
        if not options.without_kits:
            check_kit_tools()
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        reasons = list(reasons_against(version_of_project(), changelog, run("git", "status", "--porcelain").rstrip()))
        if reasons and not options.trial:
            raise ReleaseRefused("\n".join([*reasons, "`scripts/release --trial` makes the files all the same."]))
        dist = options.dist.resolve()
        if dist == ROOT / "dist":
            shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir(parents=True, exist_ok=True)
        if any(dist.iterdir()):
            raise ReleaseRefused(f"{dist} is not empty: only the project's own dist/ is emptied for a release.")
        with tempfile.TemporaryDirectory(prefix="pinlater-source-") as source:
            sources_into(Path(source), committed=not options.trial)
            make(Path(source), dist, int(run("git", "log", "-1", "--format=%ct")), with_kits=not options.without_kits)
    except ReleaseRefused as refused:
        print(refused, file=sys.stderr)
        return 1
    print(
        f"\n{(dist / 'SHA256SUMS').read_text()}\nAll of it is in {dist}. docs/releasing.md says what a person does now."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
