"""The built packages, and empty environments that they are installed into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules", "demo-output", "pinlater-data"
)


class Environment:
    """A virtual environment with nothing of this checkout on its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run(sys.executable, "-m", "venv", "--without-pip", str(path))

    def install(self, requirement: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.program("python"), "--disable-pip-version-check"]
        self.run(*pip, "install", "--quiet", requirement)

    def program(self, name: str) -> str:
        return str(self.path / "bin" / name)

    def python(self, code: str) -> str:
        """Run code away from the checkout; what it printed."""
        return self.run(self.program("python"), "-I", "-W", "error", "-c", code)

    def run(self, *command: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            command, cwd=self.path.parent, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist of this checkout, and the wheel built from that sdist."""
    source = tmp_path_factory.mktemp("source") / "pinlater"
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    out = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="session")
def wheel(packages: Path) -> Path:
    (found,) = packages.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def base_install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The client and the command line: `pip install .`"""
    environment = Environment(tmp_path_factory.mktemp("base") / "venv")
    environment.install(str(wheel))
    return environment


@pytest.fixture(scope="session")
def full_install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Everything: `pip install '.[all,...]'`"""
    environment = Environment(tmp_path_factory.mktemp("full") / "venv")
    environment.install(f"{wheel}[all,reload,opentelemetry,sentry,django]")
    return environment
