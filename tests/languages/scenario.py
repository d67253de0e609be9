"""What a caller in each language does, through classes that Apache's compiler makes of the interface file.

The programs in `callers/` take the same arguments, go through the same steps, and print the same lines; so one list
says what is right. At "idle?" and "restart?" a caller waits for a line, and says then whether its connection is `kept`,
or was `broken` and made anew.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pinlater import Tls
from tests.server.running import RunningServer
from tests.stores.process import free_port

PASSWORD = "open sesame"
ALL_BYTES = bytes(range(256)).hex()
WITHIN_S = 120.0

STEPS = f"""\
create
plain
keyed 1 1
group tenant-é red,grün grüße 日本 🚀 7
delayed 4000000000123
count 3 1
names 1
dequeued 1 2 {b"plain".hex()}
dequeued 2 2 {b"keyed".hex()}
dequeued 3 7 {ALL_BYTES}
checkpoint 1 00ff half
ack 1 3 2
stale 0
result 2 00ff80 0.5
scan 1 1 -1
error 413 QUEUE_NOT_FOUND 0
flow 1 11 add< total<add
cancel 0
large 100000 1
ended 1"""
"""Outcomes and states are those of the interface file; 1 and 0 are also yes and no; bytes are in hexadecimal."""


@dataclass(frozen=True)
class Caller:
    """A program that was built. `args`: what starts it, in its folder, before the arguments that all callers take."""

    args: Sequence[str]
    folder: Path

    def command(self, server: str, port: int, form: str, tls: Tls | None, token: str, queue: str) -> list[str]:
        """`form`: such as framed-binary."""
        files = [str(tls.ca), tls.cert or "-", tls.key or "-"] if tls else ["-", "-", "-"]
        return [*self.args, server, str(port), *form.split("-"), *files, token or "-", queue, PASSWORD]

    def call(self, port: int, host: str, tls: Tls, queue: str) -> subprocess.CompletedProcess[str]:
        """All steps over TLS, at one server that stays."""
        command = self.command(host, port, "framed-binary", tls, "", queue)
        return subprocess.run(
            command, cwd=self.folder, input="\n\n", capture_output=True, text=True, timeout=WITHIN_S, check=False
        )


class KeptServer:
    """A server that can be started again with the same jobs, on the same port."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder, self._arguments, self.port = folder, arguments, free_port()
        self._server = self._started()

    def _started(self) -> RunningServer:
        server = RunningServer(self._folder, *self._arguments, port=self.port)
        server.wait_for("ready")
        return server

    def restart(self) -> None:
        self.stop()
        self._server = self._started()

    def stop(self) -> None:
        code = self._server.stop()
        self._server.clean_up()
        assert code == 0


def lines_of(command: Sequence[str], folder: Path, idle: Callable[[], None], restart: Callable[[], None]) -> list[str]:
    """What a caller prints, without its two questions, before which these are called. It must end with 0."""
    waits = {"idle?": idle, "restart?": restart}
    lines = []
    with (folder / "errors").open("w+") as errors:
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                for text in process.stdout:
                    line = text.rstrip("\n")
                    if wait := waits.get(line):
                        wait()
                        process.stdin.write("\n")
                        process.stdin.flush()
                    else:
                        lines.append(line)
                code = process.wait(WITHIN_S)
            finally:
                process.kill()
        errors.seek(0)
        assert code == 0, f"{code} after {lines[-3:]}: {errors.read()[-2000:]}"
    return lines


def expected(identity: str, connection: str) -> list[str]:
    """The lines of a caller that `identity` names, whose connection was `kept` or `broken` at both questions."""
    return [
        *STEPS.splitlines(),
        f"identity {identity}",
        f"idle {connection} 1",
        f"restart {connection} 1",
        "delete 0",
    ]
