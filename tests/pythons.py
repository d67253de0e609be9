"""Other Pythons than the one of `.venv`: where each version is looked for, and what CI runs on those that are found.

`python -m tests.pythons 3.13` says where that one is. `--prepare` makes an environment for each that CI uses, and
`--test` runs there what ON_OTHERS says. The first is asked before there is an environment: it needs Python alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.stores.engines import PYTHON

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = "server,redis,mysql,demo,docs,test"
NOT_FOUND = "not run: found neither on PATH nor among the Pythons of pyenv and uv"
SMOKE = (
    "tests/packaging/test_packages.py",
    "tests/workers/test_other_systems.py",
    "tests/simulation/test_interpreters.py",
)
POOLS = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/workers/test_pool*.py"))]
ON_OTHERS: dict[str, tuple[Sequence[str], ...]] = {
    "3.12": (SMOKE, ("--fast", "tests/conformance", "-k", "bare")),
    "3.13": (
        SMOKE,
        ("--fast", "tests/unit", "tests/conformance", "tests/server/test_client_calls.py", *POOLS),
    ),
}
"""What CI runs on each, as arguments of pytest: what it has time for. `--release` runs the whole suite on all."""


def python_of(version: str, named: Sequence[str] = ()) -> str | None:
    """A Python of this version: one that was named, on PATH, pyenv's, uv's, or one that scripts/services fetched."""
    on_path = shutil.which(f"python{version}")
    found = [*named, *([on_path] if on_path else []), *map(str, installed(version))]
    return next((each for each in found if version_of(each) == version), None)


def installed(version: str) -> Iterator[Path]:
    """Where they are that are not on PATH, the newest of each place first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    for folder, name in ((pyenv, ""), (uv, "cpython-"), (PYTHON.folder.parent, "Python-")):
        found = folder.glob(f"{name}{version}.*/bin/python{version}")
        yield from sorted(found, key=lambda python: [*map(int, re.findall(r"\d+", str(python)))], reverse=True)


def version_of(python: str) -> str | None:
    """As `3.12`; None of what does not run, as a shim of pyenv may."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment_of(version: str, python: str, extras: str = EXTRAS) -> Path | None:
    """The Python of its environment, as `scripts/test --python` makes it; None where that could not be made."""
    command, variables = ["./scripts/setup", extras], os.environ | {"PINLATER_PYTHON": python}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", flush=True)
        return None
    return ROOT / ".venv" / f"python{version}" / "bin" / "python"


def others() -> Iterator[tuple[str, str | None]]:
    """The versions that CI runs something on beside `.venv`'s, each with where it is."""
    ours = version_of(sys.executable)
    for version in ON_OTHERS:
        if version != ours:
            yield version, python_of(version)


def outcome_on(version: str, python: str | None) -> str:
    """What came of the tests there."""
    if python is None:
        return NOT_FOUND
    inside = environment_of(version, python)
    if inside is None:
        return "FAILED: its packages could not be installed"
    variables = os.environ | {"PATH": f"{inside.parent}{os.pathsep}{os.environ['PATH']}"}
    began_s = time.monotonic()
    failed = False
    for arguments in ON_OTHERS[version]:
        command = [str(inside), "-m", "pytest", "-q", "-n", "2", *arguments]
        print(f"\nPython {version}: {' '.join(command[1:])}", flush=True)
        failed |= subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode != 0
    return f"{'FAILED' if failed else 'passed'} in {time.monotonic() - began_s:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("version", nargs="?", metavar="VERSION", help="as 3.13")
    what.add_argument("--prepare", action="store_true")
    what.add_argument("--test", action="store_true")
    options = parser.parse_args()
    if options.version:
        python = python_of(options.version)
        if python is None:
            return 1
        print(python)
    elif options.prepare:
        for version, python in others():
            if python is not None:
                environment_of(version, python)
    else:
        outcomes = {version: outcome_on(version, python) for version, python in others()}
        print("", *(f"Python {version}: {outcome}" for version, outcome in outcomes.items()), sep="\n")
        return 1 if any(outcome.startswith("FAILED") for outcome in outcomes.values()) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
