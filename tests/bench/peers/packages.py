"""The packages of the products that are compared: whether each is there, which version it has, and how it comes here.

Those of PyPI, npm and Go are installed once, in places of their own beside this Python's environment; those of Debian
by `scripts/services --peers`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

ON_PYPI = (
    "celery[redis]>=5.5",
    "dramatiq[redis]>=2",
    "taskiq>=0.12",
    "taskiq-redis>=1.2",
    "procrastinate>=3",
    "nats-py>=2.16",
    "amqp>=5.3",
    "uvloop>=0.21",
)
ON_NPM = ("graphile-worker@0.16", "bullmq@^6", "ioredis@^5")
_PYTHON, _NODE, _GO, _KITS = (Path(sys.prefix) / name for name in ("peers", "peers-node", "peers-go", "peers-kits"))
PEERS_PYTHON = str(_PYTHON / "bin" / "python")
_ROOT = Path(__file__).parents[3]
NODE_PACKAGES = str(_NODE / "package.json")
"""From where a program in Node finds them."""


class Package(Protocol):
    """One that a product needs."""

    def missing(self) -> str:
        """Why it cannot be had; "": it is there."""

    def version(self) -> str:
        """Of a package that is there."""


class OwnPackage:
    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return version("pinlater")


@dataclass(frozen=True)
class PythonPackage:
    name: str

    def missing(self) -> str:
        return _installed(
            _PYTHON,
            ON_PYPI,
            [sys.executable, "-m", "venv", "--clear", str(_PYTHON)],
            [PEERS_PYTHON, "-m", "pip", "install", "--quiet", *ON_PYPI],
        )

    def version(self) -> str:
        script = f"from importlib.metadata import version; print(version({self.name!r}))"
        return _said([PEERS_PYTHON, "-c", script])

    @staticmethod
    def program(name: str) -> str:
        return str(_PYTHON / "bin" / name)


@dataclass(frozen=True)
class NodePackage:
    name: str

    def missing(self) -> str:
        quiet = ["--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts"]
        return _installed(_NODE, ON_NPM, ["npm", "install", *quiet, "--prefix", str(_NODE), *ON_NPM])

    def version(self) -> str:
        return str(json.loads((_NODE / "node_modules" / self.name / "package.json").read_text())["version"])

    @staticmethod
    def program(name: str) -> str:
        return str(_NODE / "node_modules" / ".bin" / name)


@dataclass(frozen=True)
class GoPackage:
    """A program that is built from a module here, `built` in it, again where its files have changed."""

    name: str
    module: str
    built: str = "."

    @property
    def program(self) -> str:
        return str(_GO / self.module)

    def missing(self) -> str:
        folder = str(Path(__file__).with_name(self.module))
        return _failure(["go", "-C", folder, "build", "-buildvcs=false", "-o", self.program, self.built])

    def version(self) -> str:
        return required(Path(__file__).with_name(self.module).joinpath("go.mod").read_text(), self.name)


@dataclass(frozen=True)
class KitPackage:
    """A kit that is built in a copy, where its tools may leave files. `commands`: what builds it, in that folder."""

    language: str
    commands: Callable[[Path], Sequence[Sequence[str]]]

    @property
    def folder(self) -> Path:
        return _KITS / "workers" / self.language

    def missing(self) -> str:
        for place in (Path("workers") / self.language, Path("thrift")):
            left = shutil.ignore_patterns("node_modules", "dist", "target")
            shutil.copytree(_ROOT / place, _KITS / place, ignore=left, dirs_exist_ok=True)
        return _failure(*self.commands(self.folder))

    def version(self) -> str:
        return version("pinlater")


@dataclass(frozen=True)
class DebianPackage:
    """`shown`: what prints the version, somewhere in it."""

    name: str
    program: str
    shown: Sequence[str]

    def missing(self) -> str:
        return "" if shutil.which(self.program) else f"as root, ./scripts/services --peers installs {self.name}"

    def version(self) -> str:
        return first_number(_said(self.shown))


def required(manifest: str, module: str) -> str:
    """The version of a module that a go.mod requires."""
    wanted = (line.removeprefix("require").split() for line in manifest.splitlines())
    return next(words[1] for words in wanted if len(words) > 1 and words[0] == module)


def first_number(text: str) -> str:
    """
    >>> first_number("beanstalkd 1.12")
    '1.12'
    """
    found = re.search(r"\d+(\.\d+)+", text)
    if found is None:
        raise ValueError(f"no version is in {text!r}")
    return found[0]


def _installed(folder: Path, packages: Sequence[str], *commands: Sequence[str]) -> str:
    """Carry out the commands that install these packages into a folder, once; why they could not be."""
    done, wanted = folder / ".installed", " ".join(packages)
    if done.exists() and done.read_text() == wanted:
        return ""
    why = _failure(*commands)
    if not why:
        done.write_text(wanted)
    return why


@cache
def _failure_of(command: tuple[str, ...]) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()  # Maven's errors are on standard output
    return (said or ["no reason was given"])[-1] if ended.returncode else ""


def _failure(*commands: Sequence[str]) -> str:
    """Carry them out, until one fails; the last that it says."""
    return next(filter(None, (_failure_of(tuple(command)) for command in commands)), "")


def _said(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
