"""A root folder in which the steps of an image, or the services of a Compose file, are carried out as they stand.

It is this machine's own file system with a layer of its own above it, in its own namespaces: what is written, whose
users are made and which ports are taken stays inside. Only root can make one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.stores.process import dies_with_us

BASE = "/opt/base"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INIT = """
set -e
layer=$1/layer
mount -t tmpfs tmpfs "$layer" -o mode=755
mkdir "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
mount -t tmpfs tmpfs "$layer/root/tmp" -o mode=1777
mount -t proc proc "$layer/root/proc"
mount --bind /dev "$layer/root/dev"
ip link set lo up
touch "$layer/root/${1##*/}"
exec chroot "$layer/root" sleep infinity
"""


class ScratchRoot:
    """A root, as long as it is entered. PATH begins with an environment of `python`, which stands for an image's, or
    where none is named with a place that is empty.
    """

    def __init__(self, python: str | None = None) -> None:
        self.variables = {"PATH": f"{BASE}/bin:{SEARCHED}", "HOME": "/root", "LANG": "C.UTF-8"}
        self._python = python
        self._folder = Path()
        self._pid = 0
        self._init: subprocess.Popen[str] | None = None
        self._programs: list[subprocess.Popen[str]] = []

    def __enter__(self) -> ScratchRoot:
        self._folder = Path(tempfile.mkdtemp(prefix="pinlater-root-"))
        (self._folder / "layer").mkdir()  # in memory, and below no folder of what lies under it
        self._folder.chmod(0o755)
        spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=KILL"]
        command = [*dies_with_us(), *spaces, "sh", "-c", _INIT, "sh", str(self._folder)]
        self._init = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        # Before its last step the process has this machine's own root, in which nobody may write: what it has then is
        # told by a file that lies in the layer alone.
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        ended_s = time.monotonic() + 30
        while not (self._pid and self.path(f"/{self._folder.name}").exists()):
            if self._init.poll() is not None or time.monotonic() > ended_s:
                self._init.kill()
                raise OSError(f"no scratch root could be made: {self._init.communicate()[1]}")
            time.sleep(0.01)
            self._pid = int((children.read_text().split() or ["0"])[0])
        try:
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self) -> None:
        # as in an image, where what all may read lies in no folder of root alone
        places = (Path(sys.prefix), Path(self._python or sys.executable).resolve(), Path(sys.base_prefix))
        self.run(["chmod", "a+x", *{str(parent) for place in places for parent in place.parents}])
        if self._python is not None:
            self.run([self._python, "-m", "venv", BASE])

    def __exit__(self, *_: object) -> None:
        assert self._init is not None
        self._init.send_signal(signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._init.wait(30)
        for program in self._programs:
            program.wait(30)
        assert self._init.stderr is not None
        self._init.stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _entered(self, command: Sequence[str], user: str, folder: str, variables: Mapping[str, str]) -> list[str]:
        words = [f"{name}={value}" for name, value in (self.variables | dict(variables)).items()]
        within = ["nsenter", f"--target={self._pid}", "--mount", "--net", "--pid", "--root"]
        less = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user != "root" else []
        return [*within, *less, "env", "--ignore-environment", f"--chdir={folder}", *words, *command]

    def run(
        self,
        command: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        variables: Mapping[str, str] | None = None,
        within_s: float = 300.0,
    ) -> str:
        """What the command printed, in the root; AssertionError where it fails."""
        entered = self._entered(command, user, folder, variables or {})
        done = subprocess.run(entered, capture_output=True, text=True, check=False, timeout=within_s)
        assert done.returncode == 0, f"{list(command)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(
        self,
        command: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        variables: Mapping[str, str] | None = None,
    ) -> Callable[[], str]:
        """Starts a program that ends with the root; what is given says what it has printed."""
        log = self._folder / f"log-{len(self._programs)}"
        entered = self._entered(command, user, folder, variables or {})
        with log.open("w") as out:
            program = subprocess.Popen(entered, stdout=out, stderr=out, stdin=subprocess.DEVNULL, text=True)
        self._programs.append(program)
        return log.read_text

    def copy(self, source: Path, target: str) -> None:
        """A file or folder of this machine, or of another root, into this one."""
        inside = self.path(target)
        inside.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, inside, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, inside)

    def path(self, target: str) -> Path:
        """Of a file in the root, for this machine's processes."""
        return Path(f"/proc/{self._pid}/root{target}")


def eventually(check: Callable[[], object], within_s: float = 60.0, said: Callable[[], str] = str) -> None:
    """Until a check of a started program no longer fails."""
    ended_s = time.monotonic() + within_s
    while True:
        try:
            check()
        except AssertionError as failed:
            if time.monotonic() > ended_s:
                raise AssertionError(f"{failed}\n{said()}") from failed
            time.sleep(0.1)
        else:
            return
