"""The files of the kits in a release: npm's package, the zip of Go's module, Maven's jars; each tried as it is used."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from tests.packaging.release import Release, ReleaseRefused, run, served

PRODUCERS = Path(__file__).parent / "kit_producers"
TOOLS = {
    "node": "nodejs",
    "npm": "npm",
    "go": "golang-go",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "thrift": "thrift-compiler",
}
"""What makes the files, each with its package of Debian."""

LEFT_OUT = "--without-kits"
JAVADOC = "org.apache.maven.plugins:maven-javadoc-plugin:3.11.2:jar"
MVN = ("mvn", "--batch-mode", "--quiet", "--no-transfer-progress")
NPM_QUIET = ("--no-audit", "--no-fund", "--loglevel=error")
LEFT_BY_TOOLS = shutil.ignore_patterns("node_modules", "dist", "target")
ANSWERS_WITHIN_S = 60.0


def check_kit_tools() -> None:
    """Before hours are spent."""
    missing = [f"{program} ({package})" for program, package in TOOLS.items() if shutil.which(program) is None]
    if missing:
        raise ReleaseRefused(
            f"The files of the kits need {', '.join(missing)}: ./scripts/services installs these packages of Debian. "
            f"`scripts/release {LEFT_OUT}` makes a release without these files."
        )


def kit_copy(release: Release, language: str) -> Path:
    """A kit as it stands in a checkout, with what its build reads beside it, where the build may leave files."""
    checkout = release.work / f"kit-{language}"
    kit = Path("workers") / language
    shutil.copytree(release.source / kit, checkout / kit, ignore=LEFT_BY_TOOLS)
    shutil.copytree(release.source / "thrift", checkout / "thrift")
    shutil.copy2(release.source / "LICENSE", checkout)
    return checkout / kit


def node_package(release: Release) -> Path:
    return release.dist / f"pinlater-{release.version}.tgz"


def build_node_kit(release: Release) -> None:
    """What `npm publish` takes, by npm's own name for it."""
    kit = kit_copy(release, "node")
    run("npm", "ci", "--ignore-scripts", *NPM_QUIET, cwd=kit)
    run("npm", "pack", *NPM_QUIET, "--pack-destination", release.dist, cwd=kit)


def go_module(release: Release) -> Path:
    return release.dist / f"pinlater-go-{release.version}.zip"


def build_go_kit(release: Release) -> None:
    """The module's folder, for `replace`. It is no zip of a module proxy: that needs a path with a host in front."""
    kit = release.source / "workers" / "go"
    inside = Path(f"pinlater-go-{release.version}")
    files = {path.relative_to(kit): path for path in kit.rglob("*") if path.is_file()}
    files[Path("LICENSE")] = release.source / "LICENSE"
    with zipfile.ZipFile(go_module(release), "w") as packed:
        for name in sorted(files):
            member = zipfile.ZipInfo(str(inside / name), time.gmtime(release.epoch_s)[:6])
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(member, files[name].read_bytes())
    print(f"  the tag by which `go get` finds this version is workers/go/v{release.version}")


def build_java_kit(release: Release) -> None:
    """The jar, those of its sources and its documentation, and the pom: what a repository of Maven takes."""
    kit = kit_copy(release, "java")
    at = datetime.fromtimestamp(release.epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    documented = [JAVADOC, "-DexcludePackageNames=com.pinterest.pinlater.thrift", "-Ddoclint=none"]
    run(*MVN, "-DskipTests", f"-Dproject.build.outputTimestamp={at}", "package", *documented, cwd=kit)
    for suffix in (".jar", "-sources.jar", "-javadoc.jar"):
        shutil.copy2(kit / "target" / f"pinlater-{release.version}{suffix}", release.dist)
    shutil.copy2(kit / "pom.xml", release.dist / f"pinlater-{release.version}.pom")


def try_the_kits(release: Release) -> None:
    """A producer in each language, made in an empty folder with the file alone, enqueues a job at a server."""
    program = release.work / "server" / "bin" / "pinlater"
    with served(program, release.work / "kits-data", with_http=True) as addresses:
        run(program, "queue", "create", "first", "--server", addresses.thrift, "--timeout", str(int(ANSWERS_WITHIN_S)))
        for language, descriptor in {
            "Node": node_enqueues(release, addresses.http),
            "Go": go_enqueues(release, addresses.thrift),
            "Java": java_enqueues(release, addresses.thrift),
        }.items():
            stored = run(program, "job", "get", descriptor, "--server", addresses.thrift)
            assert descriptor in stored, stored
            print(f"  {language} has stored {descriptor}")


def empty_project(release: Release, language: str) -> Path:
    """A folder with the producer, and nothing else."""
    folder = release.work / f"first-{language}"
    folder.mkdir()
    (producer,) = PRODUCERS.glob(f"*.{language}")
    shutil.copy2(producer, folder)
    return folder


def node_enqueues(release: Release, url: str) -> str:
    """The descriptor of its job, as of the others."""
    project = empty_project(release, "mjs")
    run("npm", "init", "--yes", cwd=project)
    run("npm", "install", "--offline", *NPM_QUIET, node_package(release), cwd=project)  # it has no dependencies
    return run("node", "producer.mjs", url, cwd=project).strip()


def go_enqueues(release: Release, address: str) -> str:
    project = empty_project(release, "go")
    with zipfile.ZipFile(go_module(release)) as packed:
        packed.extractall(project)
    module = "pinlater/workers/go"
    run("go", "mod", "init", "first", cwd=project)
    leads = f"-replace={module}=./pinlater-go-{release.version}"
    run("go", "mod", "edit", f"-require={module}@v0.0.0", leads, cwd=project)
    run("go", "build", "-mod=mod", "-o", "producer", "producer.go", cwd=project)
    return run(project / "producer", address, cwd=project).strip()


def java_enqueues(release: Release, address: str) -> str:
    project = empty_project(release, "java")
    shutil.copy2(release.dist / f"pinlater-{release.version}.pom", project / "pom.xml")
    run(*MVN, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={project}/lib", cwd=project)
    path = os.pathsep.join([str(release.dist / f"pinlater-{release.version}.jar"), "lib/*", "."])
    run("javac", "-cp", path, "FirstProducer.java", cwd=project)
    return run("java", "-cp", path, "FirstProducer", address, cwd=project).strip().splitlines()[-1]
