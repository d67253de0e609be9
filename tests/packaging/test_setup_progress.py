"""scripts/setup: uv where it is there, else pip, and a word of what it does. Both installers are stand-ins."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

PIP = """#!/bin/sh
case "$*" in *"import pip"*) exit 0 ;; esac
echo "$@" >> called
echo "Collecting thrift<0.26,>=0.25"
echo "  Downloading thrift-0.25.0-cp311-cp311-manylinux2014_x86_64.whl (1.2 MB)"
echo "Collecting click>=8.1"
sleep 1.2
echo "Installing collected packages: thrift, click"
exit CODE
"""
UV = """#!/bin/sh
echo uv "$@" >> called
exit CODE
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the scripts and an environment that is there, without packages."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = pinlater\n")
    for folder in ("bin", "lib/python3/site-packages"):
        (tmp_path / ".venv" / folder).mkdir(parents=True)
    (tmp_path / ".venv" / ".place").write_text(f"{tmp_path}\n")
    program(tmp_path / ".venv" / "bin" / "python", PIP, 0)
    return tmp_path


def program(path: Path, text: str, code: int) -> None:
    path.write_text(text.replace("CODE", str(code)))
    path.chmod(0o755)


def variables(checkout: Path) -> dict[str, str]:
    """Where uv is that of the test, or none."""
    (checkout / "programs").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    return kept | {"PATH": f"{checkout / 'programs'}:/usr/bin:/bin"}


def set_up(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [str(checkout / "scripts" / "setup"), "server"]
    return subprocess.run(command, env=variables(checkout), capture_output=True, text=True, check=False)


def called(checkout: Path) -> list[str]:
    return (checkout / "called").read_text().splitlines()


def test_uv_installs_where_it_is_there(checkout: Path) -> None:
    environment = variables(checkout)
    program(checkout / "programs" / "uv", UV, 0)
    assert environment["PATH"].startswith(str(checkout))
    done = set_up(checkout)
    assert (done.returncode, [line.split()[0] for line in called(checkout)]) == (0, ["uv"])
    assert (checkout / ".venv" / ".installed-server").exists()
    assert set_up(checkout).stdout == ""


def test_pip_tries_what_uv_could_not(checkout: Path) -> None:
    variables(checkout)
    program(checkout / "programs" / "uv", UV, 2)
    done = set_up(checkout)
    assert (done.returncode, [line.split()[0] for line in called(checkout)]) == (0, ["uv", "-m"])
    assert "now pip tries" in done.stderr


@pytest.mark.skipif(shutil.which("uv", path="/usr/bin:/bin") is not None, reason="uv is one of the system's programs")
def test_what_pip_could_not_install_is_not_taken_for_there(checkout: Path) -> None:
    program(checkout / ".venv" / "bin" / "python", PIP, 1)
    done = set_up(checkout)
    assert done.returncode == 1
    assert "pip says above why" in done.stderr
    assert not (checkout / ".venv" / ".installed-server").exists()


@pytest.mark.skipif(shutil.which("uv", path="/usr/bin:/bin") is not None, reason="uv is one of the system's programs")
def test_a_terminal_shows_what_pip_does(checkout: Path) -> None:
    ours, theirs = pty.openpty()
    command = [str(checkout / "scripts" / "setup"), "server"]
    with subprocess.Popen(command, env=variables(checkout), stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        try:
            while more := os.read(ours, 65536):
                shown += more
        except OSError:  # as the terminal says that nobody writes to it any more
            pass
        finally:
            os.close(ours)
    assert running.returncode == 0
    text = shown.decode()
    assert "found 1 packages, downloading thrift-0.25.0" in text
    assert re.search(r"\rsetup: \S*found 2 packages \(\d+ s\)", text.replace("\x1b[K", ""))


def test_nothing_is_compiled_for_the_demonstration() -> None:
    text = (ROOT / "scripts" / "demo").read_text()
    (extras,) = re.findall(r"^\./scripts/setup (\S+)", text, re.MULTILINE)
    assert "demo" in extras.split(",")
    assert "mysqldb" not in extras, "mysqlclient is source alone, and needs a compiler"
