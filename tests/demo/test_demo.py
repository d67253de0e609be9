"""The demonstration, in a copy of its folder: it ends by itself, tells what happened, and leaves no process behind."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from PIL import Image

from pinlater import Client, JobState
from tests.demo.examples import EXAMPLES, copied, processes_of, run, table
from tests.stores.places import Places

SIZES = (64, 128, 256)


@pytest.fixture
def demo(tmp_path: Path) -> list[str]:
    return copied(tmp_path, "demo.py")


def test_it_makes_thumbnails_and_says_why_one_picture_failed(demo: list[str], tmp_path: Path) -> None:
    code, output = run(demo)
    assert code == 0, output
    rows = table(output)
    sound = [path for path in (EXAMPLES / "pictures").glob("*.[jp]*g") if "truncated" not in path.name]
    assert rows["jobs enqueued"] == str((len(sound) + 1) * len(SIZES))
    assert (rows["succeeded"], rows["retried"], rows["failed"]) == (str(len(sound) * len(SIZES)), "3", "3")
    assert "chelsea-truncated.png (broken on purpose)" in output
    assert output.count("attempt 3 of 3: OSError: image file is truncated") == 1
    assert "... and 2 more that failed." in output
    for path in sound:
        for size in SIZES:
            with Image.open(Path(rows["thumbnails"]) / f"{path.name.replace('.', '-')}-{size}.jpg") as image:
                assert max(image.size) == size
    assert not processes_of(tmp_path)


def test_on_a_terminal_jobs_keep_coming_until_enter(demo: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with (
        subprocess.Popen(demo, stdin=theirs, stdout=theirs, stderr=theirs) as process,
        open(ours, "r+b", 0) as terminal,
    ):
        os.close(theirs)
        output = b""
        while b"Press Enter to end." not in output:
            output += terminal.read(4096)
        (address,) = re.findall(rb"PINLATER_SERVER=(\S+)", output)
        with Client(address.decode()) as client:
            before = client.count("thumbnails", JobState.SUCCEEDED)
            while client.count("thumbnails", JobState.SUCCEEDED) == before:
                assert process.poll() is None
                time.sleep(0.1)
        terminal.write(b"\n")
        assert process.wait(30) == 0
    assert b"/dashboard" in output
    assert not processes_of(tmp_path)


def test_on_a_terminal_it_ends_by_itself_where_it_is_told_to(demo: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*demo, "--once"], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    os.close(ours)


def test_it_takes_a_folder_of_ones_own(demo: list[str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(EXAMPLES / "pictures" / "rocket.jpg", own)
    code, output = run([*demo, "--images", str(own)])
    assert (code, table(output)["succeeded"]) == (0, "3"), output
    (own / "no picture.png").write_bytes(b"not at all")
    code, output = run([*demo, "--images", str(own)])
    assert (code, table(output)["failed"]) == (1, "3"), output


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.store(kind)) for kind in ("redis", "mysql", "postgres")],
)
def test_it_keeps_its_jobs_in_another_store(
    demo: list[str], tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(EXAMPLES / "pictures" / "rocket.jpg", own)
    places: Places = request.getfixturevalue(f"{kind}_places")
    code, output = run([*demo, "--images", str(own), "--store", places.fresh()])
    assert (code, table(output)["succeeded"]) == (0, "3"), output


def test_photographs_travel_through_a_tier(demo: list[str], tmp_path: Path) -> None:
    code, output = run([*demo, "--bodies"])
    assert code == 0, output
    rows = table(output)
    assert (rows["succeeded"], rows["failed"]) == (str((len(SIZES)) * 8), "3")
    assert "holds 24 photographs of these jobs" in output
    assert "the tier is empty again" in output
    left = [each.name for each in (tmp_path / "demo-output" / "tier").rglob("*") if each.is_file()]
    assert left == [".pinlater-tier"]
    assert not processes_of(tmp_path)


def test_a_folder_without_pictures_is_refused(demo: list[str], tmp_path: Path) -> None:
    code, output = run([*demo, "--images", str(tmp_path)])
    assert (code, output.count("\n")) == (2, 1)
    assert "no picture" in output


def test_ctrl_c_ends_it_and_its_processes(demo: list[str], tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(100):
        shutil.copy(EXAMPLES / "pictures" / "coffee.png", many / f"{number}.png")
    with subprocess.Popen(
        [*demo, "--images", str(many)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        while "Enqueued" not in process.stdout.readline():
            assert process.poll() is None
        while "pinlater-worker" not in (programs := " ".join(processes_of(tmp_path))):  # it is still to begin
            assert process.poll() is None
            time.sleep(0.05)
        assert "demo.py" in programs
        assert "pinlater serve" in programs
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert rest.endswith("Stopped; the server and the worker have ended.\n")
    assert "Traceback" not in rest
    assert not processes_of(tmp_path)


def test_ctrl_c_before_it_is_loaded_ends_it_in_order(demo: list[str], tmp_path: Path) -> None:
    held_back = ["env", "--block-signal=INT", *demo]
    with subprocess.Popen(held_back, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        output = process.stdout.read()
    assert (process.returncode, "Traceback" in output) == (130, False), output
    assert not processes_of(tmp_path)
