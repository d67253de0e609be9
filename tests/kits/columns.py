"""The columns of the trial: each kit's language, what it speaks, and the command of its program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent
MADE_WITHIN_S = 500.0
"""What a compiler and a download take on a busy machine."""

LEFT_BY_TOOLS = shutil.ignore_patterns("node_modules", "dist", "target", "__pycache__", ".git")


def needs(*programs: tuple[str, str]) -> None:
    """Fails where a program is not installed: each with the package of Debian that brings it."""
    missing = [package for program, package in programs if shutil.which(program) is None]
    if missing:
        pytest.fail(f"not installed: {' '.join(missing)}; ./scripts/services installs them", pytrace=False)


def make(command: Sequence[str], folder: Path, **variables: str) -> None:
    """Skips where packages cannot be had; a program that does not compile is a failure. `variables`: of the
    environment, beside its own.
    """
    environment = os.environ | variables
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=MADE_WITHIN_S, check=False, env=environment
    )
    output = done.stdout + done.stderr
    unreachable = ("dial tcp", "no such host", "Could not transfer", "EAI_AGAIN", "ENOTFOUND", "ETIMEDOUT")
    if done.returncode != 0 and any(word in output for word in unreachable):
        pytest.skip(f"{command[0]} cannot download: {output[-500:]}")
    assert done.returncode == 0, output[-5000:]


def copied(language: str, folder: Path) -> Path:
    """The kit, its program and the interface file where they stand in a checkout, below `folder`; the kit's place."""
    kit = Path("workers") / language
    for place in (kit, Path("tests/kits") / language, Path("thrift")):
        if (ROOT / place).is_dir():
            shutil.copytree(ROOT / place, folder / place, ignore=LEFT_BY_TOOLS)
    return folder / kit


def python(folder: Path) -> list[str]:
    """As it stands in the checkout."""
    return [sys.executable, str(PROGRAMS / "python" / "program.py")]


def node(folder: Path) -> list[str]:
    """The kit as `npm install` would put it below node_modules, for a program that imports `pinlater`."""
    needs(("node", "nodejs"), ("npm", "npm"))
    kit = copied("node", folder)
    make(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"], kit)
    make(["npm", "run", "build"], kit)
    modules = folder / "tests/kits/node/node_modules"
    modules.mkdir()
    (modules / "pinlater").symlink_to(kit)
    return ["node", str(folder / "tests/kits/node/program.mjs")]


def go(folder: Path) -> list[str]:
    """One file, by the go.mod of the program, whose `replace` leads to the kit."""
    needs(("go", "golang-go"))
    copied("go", folder)
    program = folder / "tests/kits/go"
    make(["go", "build", "-o", "program", "."], program)
    return [str(program / "program")]


def java_path(folder: Path) -> str:
    """The kit's jar below this folder, with those that it needs."""
    kit = folder / "workers/java"
    return os.pathsep.join(map(str, [*kit.glob("target/*.jar"), *kit.glob("target/lib/*.jar")]))


def java(folder: Path) -> list[str]:
    """The kit's jar with those that it needs, and the program's class beside them."""
    needs(("javac", "default-jdk-headless"), ("mvn", "maven"))
    kit = copied("java", folder)
    quiet = ["mvn", "--batch-mode", "--quiet", "--no-transfer-progress"]
    libraries = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=target/lib"]
    make([*quiet, "-DskipTests", "package", *libraries], kit)
    path = java_path(folder)
    classes = folder / "classes"
    make(["javac", "-cp", path, "-d", str(classes), "Program.java"], folder / "tests/kits/java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join([path, str(classes)]), "Program"]


@dataclass(frozen=True)
class Column:
    """`build` makes the program in an empty folder, and gives its command. `speaks`: thrift or http."""

    name: str
    title: str
    speaks: str
    build: Callable[[Path], list[str]]

    @property
    def is_there(self) -> bool:
        """Whether this checkout has its program."""
        return (PROGRAMS / self.name).is_dir()


COLUMNS = {
    each.name: each
    for each in (
        Column("python", "Python", "thrift", python),
        Column("node", "Node", "http", node),
        Column("go", "Go", "thrift", go),
        Column("java", "Java", "thrift", java),
    )
}
