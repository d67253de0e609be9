"""The project's programs as children of a test: forked from a process that has imported them (fork_server.py).

What a start by exec takes is for nine tenths the import of the same modules, a thousand times in a run of the suite.
Where the start itself is tested (what it imports, its environment as the system shows it), a test starts it by exec.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fork_server import ANSWER, LENGTH, PROGRAMS
from tests.stores.process import dies_with_us

_OF_THE_START = ("PYTHON", "LANG", "LC_", "LD_")
"""Variables that Python or the system reads before any module: with others than those of the process that programs are
forked from, one is started by exec."""

_MAY_DIFFER = "PYTHONUNBUFFERED"


class _ForkServer:
    """One for each test process. The calls may come from several threads."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._statuses: dict[int, int] = {}
        self.of_the_start = _of_the_start(os.environ)
        script = str(Path(__file__).with_name("fork_server.py"))
        with theirs:
            # without dies_with_us(), by which it would die with the thread that starts it: it ends with `_ours`
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._ours.close()
        self._process.wait()

    def start(self, message: dict[str, Any], streams: list[int]) -> int:
        """The pid."""
        text = json.dumps(message).encode()
        with self._lock:
            socket.send_fds(self._ours, [LENGTH.pack(len(text))], streams)
            self._ours.sendall(text)
            while (answer := self._answer())[0] != b"s":
                self._statuses[answer[1]] = answer[2]
            self._statuses.pop(answer[1], None)
            return answer[1]

    def status(self, pid: int, *, wait: bool) -> int | None:
        """Of one that has ended: its wait status, once."""
        while True:
            with self._lock:
                while select.select([self._ours], [], [], 0)[0]:
                    _kind, ended, status = self._answer()
                    self._statuses[ended] = status
                if pid in self._statuses:
                    return self._statuses.pop(pid)
            if not wait:
                return None
            select.select([self._ours], [], [], 0.05)

    def _answer(self) -> tuple[bytes, int, int]:
        data = self._ours.recv(ANSWER.size, socket.MSG_WAITALL)
        assert len(data) == ANSWER.size, "the process that programs are forked from has ended"
        kind, pid, status = ANSWER.unpack(data)
        return kind, pid, status


_fork_server = functools.cache(_ForkServer)


class Program(subprocess.Popen[Any]):
    """As subprocess.Popen. With a program of the project in its virtual environment, after `dies_with_us()` or alone,
    it is forked; with anything else, or with what a fork cannot give (`preexec_fn`, `pass_fds`, variables of the start
    of Python), it is started by exec.
    """

    _forked = False

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, *more: Any
    ) -> None:
        cwd, env, *_others, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = more[:11]
        dies = list(args[: len(dies_with_us())]) == dies_with_us() != []
        arguments = [str(each) for each in (args[len(dies_with_us()) :] if dies else args)]
        environment = dict(os.environ if env is None else env)
        plain = preexec_fn is None and not pass_fds and executable is None
        if not (plain and _is_ours(arguments[0]) and _of_the_start(environment) == _fork_server().of_the_start):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, *more)  # type: ignore[misc]
            return
        message = {
            "arguments": arguments,
            "folder": os.path.abspath(cwd or "."),
            "environment": environment,
            "dies": dies,
            "session": more[16],
        }
        streams = [
            theirs if theirs != -1 else own
            for theirs, own in zip((p2cread, c2pwrite, errwrite), (0, 1, 2), strict=True)
        ]
        self._child_created = self._forked = True
        self.pid = _fork_server().start(message, streams)
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not self._forked:
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        status = _fork_server().status(self.pid, wait=not wait_flags)
        return (0, 0) if status is None else (self.pid, status)

    def _internal_poll(self, _deadstate: int | None = None, **options: Any) -> int | None:
        """What Popen does, whose ways to ask the system differ between versions of Python."""
        if not self._forked:
            return super()._internal_poll(_deadstate, **options)  # type: ignore[misc, no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if self.returncode is None and pid == self.pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            except OSError:  # the fork server is gone
                self.returncode = self.returncode if _deadstate is None else _deadstate
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """As subprocess.run, of a Program: with `input`, `timeout`, `check`, `capture_output`."""
    data, timeout, check = options.pop("input", None), options.pop("timeout", None), options.pop("check", False)
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if data is not None:
        options["stdin"] = subprocess.PIPE
    with Program(arguments, **options) as process:
        try:
            out, err = process.communicate(data, timeout)
        except BaseException:
            process.kill()
            raise
        ended = subprocess.CompletedProcess(arguments, process.returncode, out, err)
    if check:
        ended.check_returncode()
    return ended


def _is_ours(program: str) -> bool:
    return program in {str(Path(sys.executable).with_name(name)) for name in PROGRAMS}


def _of_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in environment if name.startswith(_OF_THE_START) and name != _MAY_DIFFER)
    return {name: environment[name] for name in names}
