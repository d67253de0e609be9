"""The environment that scripts/setup makes: the packages of the checkout are found wherever a script lies."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize(("name", "is_found"), [("python3.12", True), ("python3.9", False)])
def test_an_interpreter_that_is_too_old_is_named(tmp_path: Path, name: str, is_found: bool) -> None:
    """`python3` is; a newer one beside it is found by its own name."""
    for each, is_fit in (("python3", False), ("python3.11", False), (name, is_found)):
        program = tmp_path / each
        program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.18 && exit\nexit {0 if is_fit else 1}\n")
        program.chmod(0o700)
    script = (ROOT / "scripts" / "environment.sh").read_text().replace("/usr/bin/python3.11 ", "")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "environment.sh").write_text(script)
    done = subprocess.run(
        ["/bin/bash", "-c", "source scripts/environment.sh; find_python"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert (done.returncode == 0, done.stdout.strip() == name) == (is_found, is_found), done.stderr
    assert is_found or "needs Python 3.11 or newer; python3 is Python 3.9.18" in done.stderr


def test_a_script_in_the_folder_around_the_checkout_finds_the_package(tmp_path: Path) -> None:
    checkout = tmp_path / "pinlater"
    checkout.mkdir()
    for name in ("scripts", "pinlater", "workers", "thrift", "setup.cfg"):
        (checkout / name).symlink_to(ROOT / name)
    (checkout / "scripts").unlink()
    (checkout / "scripts").mkdir()
    for name in ("setup", "environment.sh"):
        (checkout / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "pip.py").touch()
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))  # what the packages need
    (venv / ".place").write_text(f"{checkout}\n")
    wanted = subprocess.check_output(["cksum"], input=(ROOT / "setup.cfg").read_bytes())
    (venv / ".installed-server").write_bytes(wanted)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PINLATER"))}
    subprocess.run(["bash", str(checkout / "scripts" / "setup"), "server"], check=True, env=environment)
    script = tmp_path / "first.py"
    script.write_text(
        "import pinlater, pinlater_workers as workers; print(pinlater.Client, pinlater.__file__, workers.App)"
    )
    command = [str(venv / "bin" / "python"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert str(checkout / "pinlater" / "__init__.py") in done.stdout, done.stderr


@pytest.mark.parametrize("script", ["setup", "services"])
def test_help_installs_nothing(script: str) -> None:
    done = _said_by(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"scripts/{script} [")
    assert f"\n  scripts/{script} " in done.stdout


@pytest.mark.parametrize(
    ("script", "argument"), [("setup", "server redis"), ("setup", "--fast"), ("services", "reddis")]
)
def test_what_is_no_argument_is_refused(script: str, argument: str) -> None:
    done = _said_by(script, argument)
    assert (done.returncode, done.stdout) == (1, "")
    assert argument in done.stderr
    assert f"scripts/{script} --help" in done.stderr


def _said_by(script: str, argument: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "scripts" / script), argument]
    return subprocess.run(command, capture_output=True, text=True, check=False)
