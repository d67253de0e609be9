"""A disk whose power can be cut: a file system in memory, in a process of its own, that holds back what was not synced.

`python -m tests.powercuts.disk FOLDER SEED` mounts it; lines of JSON in and out say what it is to do. A process of its
own, since one that waited for itself in the page cache could never go on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.powercuts.held_back import HeldBack
from tests.powercuts.kernel_requests import KernelRequests, NoFuse, mount, unmount

UNMOUNTED_WITHIN_S = 30.0
ROOT_FOLDER = Path(__file__).parents[2]


class Disk:
    """Made mounted. A cut is `hold`, then the end of all programs that use it (with `off`), then `cut`."""

    def __init__(self, seed: int) -> None:
        """NoFuse."""
        self._parent = Path(tempfile.mkdtemp(prefix="pinlater-disk-"))
        self._parent.chmod(0o755)  # servers of stores may run as users of their own
        self.folder = self._parent / "disk"
        self.folder.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.folder), str(seed)],
            cwd=ROOT_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._ask("mount")
        except BaseException:
            self.close()
            raise

    def _ask(self, command: str, **arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process of the disk has ended"
        answer = json.loads(line)
        if "no_fuse" in answer:
            raise NoFuse(answer["no_fuse"])
        return answer["result"]

    def plant(self, *patterns: str) -> None:
        """From now on syncs of files and folders at such paths do nothing."""
        self._ask("plant", patterns=patterns)

    def sync_all(self) -> None:
        """All that is there is certain."""
        self._ask("sync_all")

    def hold(self) -> None:
        """The moment of the cut: no request is answered any more."""
        self._ask("hold")

    def off(self) -> None:
        """Every request fails, those that were held too, so that killed programs can end."""
        self._ask("off")

    def cut(self, seed: int) -> dict[str, int]:
        """Lose what was held back, and show the rest. How much was held back: `changes` of names, `files`, `pages`.

        No program may use the disk any more.
        """
        return dict(self._ask("cut", seed=seed))

    def close(self) -> None:
        with suppress(OSError, AssertionError):
            self._ask("unmount")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(UNMOUNTED_WITHIN_S)
        shutil.rmtree(self._parent, ignore_errors=True)


class _Mounted:
    """In the process of the disk."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._tree = HeldBack(seed)
        self._requests = KernelRequests(self._tree)
        self._thread: threading.Thread | None = None

    def mount(self) -> None:
        self._requests = KernelRequests(self._tree)
        device = mount(self._folder)
        self._thread = threading.Thread(target=self._requests.serve, args=(device,), daemon=True)
        self._thread.start()

    def unmount(self) -> None:
        """A program that was killed may take a while to let go of its files."""
        if self._thread is None:
            return
        deadline = time.monotonic() + UNMOUNTED_WITHIN_S
        while True:
            try:
                unmount(self._folder)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._thread.join(UNMOUNTED_WITHIN_S)
        self._thread = None

    def plant(self, patterns: list[str]) -> None:
        self._tree.unsynced = patterns

    def sync_all(self) -> None:
        with self._requests.lock:
            self._tree.sync_all()

    def hold(self) -> None:
        self._requests.lock.acquire()

    def off(self) -> None:
        self._requests.is_off = True
        self._requests.lock.release()

    def cut(self, seed: int) -> dict[str, int]:
        self.unmount()
        lost = self._tree.cut(seed)
        self.mount()
        return lost


def _answers(mounted: _Mounted) -> Iterator[dict[str, object]]:
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            yield {"result": getattr(mounted, asked.pop("command"))(**asked)}
        except NoFuse as error:
            yield {"no_fuse": str(error)}


def main() -> None:
    folder, seed = sys.argv[1:]
    mounted = _Mounted(Path(folder), int(seed))
    try:
        for answer in _answers(mounted):
            print(json.dumps(answer), flush=True)
    finally:
        with suppress(OSError):
            mounted.unmount()


if __name__ == "__main__":
    os.umask(0)
    main()
