"""The image: what goes into it, and a first job at a container of it, whose steps a scratch root carries out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from tests.packaging.conftest import ROOT
from tests.packaging.image_steps import DOCKERFILE, Stage, Step, carry_out, context_files, image_of_checkout, stages_of
from tests.packaging.scratch_root import ScratchRoot, eventually
from tests.pythons import python_of

FIRST_JOB = ROOT / "tests" / "packaging" / "first_job.py"
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a root folder of its own")


def test_the_documented_place_of_before_has_the_same_image() -> None:
    assert (ROOT / "conf" / "kubernetes" / "Dockerfile").read_text() == DOCKERFILE.read_text()


def test_the_image_runs_a_server_as_nobody_of_importance() -> None:
    build, image = stages_of(DOCKERFILE.read_text())
    assert build.base == image.base == "python:3.13-slim"
    assert image.last("USER").text == "10001"
    assert image.last("EXPOSE").words == ["9010", "9011", "9012"]
    assert image.last("VOLUME").words == [image.last("WORKDIR").text] == ["/var/lib/pinlater"]
    assert image.command[:2] == ["pinlater", "serve"]


def test_the_context_has_what_the_wheel_is_made_of_and_nothing_of_this_machine() -> None:
    names = context_files(ROOT, (ROOT / ".dockerignore").read_text())
    assert names >= {"setup.cfg", "setup.py", "README.md", "LICENSE", "thrift/pinlater.thrift", "pinlater/py.typed"}
    assert names >= {"workers/pinlater_workers/py.typed", "pinlater/backends/redis/lua/_claim.lua"}
    tops = {name.partition("/")[0] for name in names}
    assert tops <= {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "dist",
        "pinlater",
        "thrift",
        "workers",
    }
    assert [name for name in names if "__pycache__" in name or name.startswith("workers/examples")] == []


def test_an_instruction_that_no_test_carries_out_is_found() -> None:
    with pytest.raises(ValueError, match="ADD"):
        stages_of("FROM python:3.13-slim\nADD . /src\n")
    assert stages_of('FROM a AS b\n# c\nRUN d \\\n    e\nCMD ["f", "g h"]\n')[0].steps == [
        Step("RUN", "d e"),
        Step("CMD", '["f", "g h"]'),
    ]


def does_a_first_job(image: Stage, root: ScratchRoot, start: dict[str, str]) -> None:
    """A container as it starts by itself: it becomes healthy, and a job is done from beside it."""
    log = root.start(image.command, **start)
    eventually(lambda: root.run(image.health_check, **start), said=log)
    root.copy(FIRST_JOB, "/first_job.py")
    said = root.run(["python", "-I", "/first_job.py", "127.0.0.1:9010"], **start)
    assert "a first job was done" in said
    code = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9012/v1/queues').read().decode())"
    assert '"first"' in root.run(["python", "-c", code], **start)
    assert root.path("/var/lib/pinlater/pinlater-data/pinlater.db").stat().st_uid == 10001


@only_root
@pytest.mark.slow
def test_a_container_becomes_healthy_and_does_a_first_job() -> None:
    with image_of_checkout() as (image, root, start):
        assert root.run(["id", "-u"], **start).strip() == "10001"
        does_a_first_job(image, root, start)


@only_root
@pytest.mark.slow
def test_the_whole_image_is_built_without_an_index(tmp_path: Path, packages: Path, wheel: Path) -> None:
    """From a folder of wheels, in roots that have no network."""
    context = tmp_path / "context"
    for name in context_files(ROOT, (ROOT / ".dockerignore").read_text()):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_bytes((ROOT / name).read_bytes())
    (context / ".dockerignore").write_text((ROOT / ".dockerignore").read_text())
    python = python_of("3.13") or sys.executable
    wheels_into(context / "dist" / "wheels", wheel, python)
    build, image = stages_of(DOCKERFILE.read_text())
    with ScratchRoot(python) as first, ScratchRoot(python) as second:
        carry_out(build, first, context, {}, {"PIP_NO_INDEX": "1"})
        start = carry_out(image, second, context, {"build": first}, {})
        says = "import obstore, psycopg, redis, pymysql, botocore, aiohttp; print('all')"
        assert second.run(["python", "-c", says], **start).strip() == "all"
        assert "pinlater" in second.run(["pinlater-worker", "--version"], **start)
        does_a_first_job(image, second, start)


def wheels_into(folder: Path, wheel: Path, python: str) -> None:
    """What `scripts/release` collects."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--wheel-dir", str(folder)]
    run_here([*pip, f"{wheel}[all]", "setuptools>=77"])


def run_here(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_engine_builds_the_image_and_a_container_does_a_first_job() -> None:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no Docker engine answers here")
    run_here(["docker", "build", "--quiet", "-f", "conf/image/Dockerfile", "-t", "pinlater-test", str(ROOT)])
    with DockerContainer("pinlater-test").with_exposed_ports(9010, 9012) as container:
        address = f"{container.get_container_host_ip()}:{container.get_exposed_port(9010)}"
        run_here([sys.executable, str(FIRST_JOB), address])
