"""docs/secure-cluster.md, run as it is written, but for the ports and the address of the Redis."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.places import Places
from tests.stores.process import free_port

PAGE = Path(__file__).parents[2] / "docs" / "secure-cluster.md"
_COMMAND = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHIN_S = 60.0

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


class Machine:
    """One shell for all commands, in an empty folder."""

    def __init__(self, folder: Path, replaced: dict[str, str]) -> None:
        self._replaced = replaced
        self._output = folder / "output"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        with self._output.open("wb") as output:
            self._shell = subprocess.Popen(
                ["bash"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**clean, "PATH": path},
                start_new_session=True,
            )

    def run(self, command: str, mark: str) -> None:
        """One command, until it has ended or runs in the background; it must not fail."""
        for old, new in self._replaced.items():
            command = command.replace(old, new)
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command}\necho {mark} $?\n".encode())
        self._shell.stdin.flush()
        self.expect(f"{mark} ")
        assert f"{mark} 0" in self.output(), self.output()

    def expect(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self.output().count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output()}"
            time.sleep(0.05)

    def output(self) -> str:
        return self._output.read_text("utf-8", "replace")

    def close(self) -> None:
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait(WITHIN_S)


@pytest.fixture
def machine(tmp_path: Path, redis_places: Places) -> Iterator[Machine]:
    one, two = free_port(), free_port()
    made = Machine(tmp_path, {"9010": str(one), "9020": str(two), "redis://127.0.0.1:6379/0": redis_places.fresh()})
    try:
        yield made
    finally:
        made.close()


def test_ten_commands_make_a_cluster_with_tls_and_three_roles(machine: Machine) -> None:
    commands = _COMMAND.findall(PAGE.read_text("utf-8"))
    assert len(commands) == 10
    for number, command in enumerate(commands, 1):
        machine.run(command, f"command-{number}-ended")
        if number in (5, 6):
            machine.expect('"event": "ready"', number - 4)
    machine.expect("sent to ada@example.org")
    as_web = "PINLATER_TLS_CERT=web.pem PINLATER_TLS_KEY=web.key"
    machine.run(f"{as_web} pinlater access show", "shown")
    assert "cert:web.mail.example" in machine.output()
    for number, (who, refused) in enumerate(
        (
            (as_web, "pinlater job count mail-out --state pending && pinlater queue pause mail-out --why x </dev/null"),
            (as_web, "pinlater job enqueue pay x"),
            ("PINLATER_TLS_CERT=worker.pem PINLATER_TLS_KEY=worker.key", "pinlater job enqueue mail-out x"),
            ("PINLATER_TLS_CERT= PINLATER_TLS_KEY=", "pinlater job enqueue mail-out x"),
        )
    ):
        machine.run(f"export {who}; ! {{ {refused}; }}", f"refused-{number}")
    assert machine.output().count("may not") >= 3, machine.output()
