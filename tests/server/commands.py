"""The command `pinlater` in a process of its own."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.forked_programs import Program, run
from tests.server.running import PROGRAM

WITHIN_S = 60.0


@dataclass(frozen=True)
class Result:
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()


class Shell:
    """Runs commands in a folder, with PINLATER_SERVER set and no other of the project's variables."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.server = server
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        self._environment |= {"PINLATER_SERVER": server, "HOME": str(folder)}

    def __call__(
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        code: int = 0,
        within_s: float = WITHIN_S,
        **variables: str | None,
    ) -> Result:
        """The outcome of a command that must end with `code`. Without `stdin` there is none."""
        ended = run(
            [PROGRAM, *arguments],
            cwd=self.folder,
            env=self._with(variables),
            input=stdin.encode() if isinstance(stdin, str) else stdin or b"",
            capture_output=True,
            timeout=within_s,
        )
        result = Result(ended.stdout, ended.stderr.decode())
        assert ended.returncode == code, result
        return result

    def start(self, *arguments: str, stdout: IO[str] | int = subprocess.PIPE, **variables: str | None) -> Program:
        """A command under way, with pipes that are not buffered here."""
        return Program(
            [PROGRAM, *arguments],
            bufsize=0,
            cwd=self.folder,
            env=self._with(variables),
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )

    def _with(self, variables: dict[str, str | None]) -> dict[str, str]:
        both = self._environment | variables
        return {name: value for name, value in both.items() if value is not None}
