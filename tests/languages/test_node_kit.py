"""The kit for Node by its own tools: its types, its lint, its tests against a server, and what npm makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.languages.conftest import ROOT

pytestmark = [pytest.mark.slow]
KIT = Path("workers") / "node"
UNREACHABLE = ("EAI_AGAIN", "ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED 127.0.0.1:443")

PROGRAM = """
import { Producer, Worker } from "pinlater";

const worker = new Worker({ queues: { mail: 3 } });
worker.handle<{ to: string }>("send", (job) => job.kwargs.to.length);
// @ts-expect-error: it has no such argument
worker.handle<{ to: string }>("wrong", (job) => job.kwargs.other);
const { descriptor } = await new Producer().enqueue("mail", { name: "send", kwargs: { to: "ada" } });
for await (const { state } of new Producer().ends([descriptor])) state satisfies "succeeded" | "failed" | "cancelled";
"""


def run(command: Sequence[str], folder: Path) -> None:
    """Skips where packages cannot be had."""
    environment = {**os.environ, "PINLATER_COMMAND": f"{sys.executable} -m pinlater"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    output = done.stdout + done.stderr
    if done.returncode != 0 and command[:2] == ["npm", "ci"] and any(word in output for word in UNREACHABLE):
        pytest.skip(f"npm cannot download: {output[-500:]}")
    assert done.returncode == 0, output[-10_000:]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the kit, with what it is developed with."""
    for program, package in (("node", "nodejs"), ("npm", "npm")):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed: apt-get install {package}", pytrace=False)
    folder = tmp_path_factory.mktemp("kit")
    made = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / KIT, folder / KIT, ignore=made)
    shutil.copy(ROOT / "LICENSE", folder)
    run(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"], folder / KIT)
    return folder / KIT


def test_it_lints(kit: Path) -> None:
    run(["npm", "run", "lint"], kit)


def test_its_tests_pass(kit: Path) -> None:
    run(["npm", "test"], kit)


def test_a_program_installs_the_packed_kit_and_has_its_types(kit: Path, tmp_path: Path) -> None:
    run(["npm", "pack", "--pack-destination", str(tmp_path)], kit)
    (packed,) = tmp_path.glob("pinlater-*.tgz")
    with tarfile.open(packed) as archive:
        names = set(archive.getnames())
    needed = {
        f"package/{name}" for name in ("LICENSE", "README.md", "package.json", "dist/index.js", "dist/index.d.ts")
    }
    assert needed <= names
    assert not [name for name in names if "node_modules" in name or "/test/" in name]
    assert not (kit / "LICENSE").exists()
    program = tmp_path / "program"
    program.mkdir()
    (program / "package.json").write_text('{"type": "module"}')
    (program / "program.mts").write_text(PROGRAM)
    run(["npm", "install", "--no-audit", "--no-fund", str(packed)], program)
    tsc = str(kit / "node_modules" / ".bin" / "tsc")
    run([tsc, "--strict", "--noEmit", "--module", "nodenext", "--lib", "es2022,dom", "program.mts"], program)


def test_it_has_the_version_of_the_project() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    package = json.loads((ROOT / KIT / "package.json").read_text())
    lock = json.loads((ROOT / KIT / "package-lock.json").read_text())
    said = re.search(r'VERSION = "(.+)"', (ROOT / KIT / "src" / "version.ts").read_text())
    assert said is not None
    assert {package["version"], lock["version"], said[1]} == {setup["metadata"]["version"]}


def test_it_depends_on_nothing_and_its_lock_names_no_other_registry() -> None:
    package = json.loads((ROOT / KIT / "package.json").read_text())
    assert {"dependencies", "peerDependencies", "optionalDependencies"}.isdisjoint(package)
    lock = json.loads((ROOT / KIT / "package-lock.json").read_text())
    places = [each.get("resolved", "") for each in lock["packages"].values()]
    assert all(place == "" or place.startswith("https://registry.npmjs.org/") for place in places)
