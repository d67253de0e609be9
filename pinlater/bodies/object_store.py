"""The object store behind a tier: a folder, or a bucket of S3, Google Cloud Storage or Azure.

An object is written whole or not at all, and stands on disk before `put` returns. Objects are never changed: a path
that is written twice gets the same bytes. What fails raises whatever the store raises; FileNotFoundError says that an
object is not there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from pinlater.data_folder.private_files import (
    make_private_file,
    make_private_folder,
    new_private_folder,
    tighten,
    write_private_file,
)

R = TypeVar("R")
PAGE = 1_000
_MARK = ".pinlater-tier"
_THREADS = 16
_TRIES = 20
"""Of a write whose folder is removed meanwhile."""


class StoreInvalid(ValueError):
    """No object store can be made of a URL; the text says what to do."""


class StoredObject(NamedTuple):
    """An object as a listing tells of it."""

    path: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects by path. Calls may be broken off at any time: an object may be there all the same, whole."""

    async def open(self) -> None:
        """Make what is needed, and see that it answers."""

    async def put(self, path: str, body: bytes) -> None: ...

    async def get(self, path: str) -> bytes:
        """FileNotFoundError."""

    async def delete(self, paths: Sequence[str]) -> None:
        """What is not there is no error."""

    def pages(self, prefix: str) -> AsyncIterator[list[StoredObject]]:
        """All objects below a folder, no more than PAGE at a time."""

    async def children(self) -> list[str]:
        """The names of the folders at the top."""

    async def close(self) -> None: ...


class FolderStore:
    """A folder, which all servers of a cluster see alike. A file and its folder are synced before `put` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = ThreadPoolExecutor(_THREADS, "tier")
        self._synced: set[Path] = set()
        """Folders that are known to be on disk."""

    def _run(self, call: Callable[..., R], *args: Any) -> asyncio.Future[R]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    async def open(self) -> None:
        await self._run(self._open)

    def _open(self) -> None:
        make_private_folder(self._folder)
        mark = self._folder / _MARK
        if not mark.exists():
            make_private_file(mark)
            _sync(self._folder)
        tighten(mark)

    async def put(self, path: str, body: bytes) -> None:
        await self._run(self._put, path, body)

    def _put(self, path: str, body: bytes) -> None:
        """A deletion, by whichever process, may remove the folder as long as nothing is in it."""
        for attempt in range(1, _TRIES + 1):
            self._refuse_another_folder()
            try:
                self._write(self._folder / path, body)
            except FileNotFoundError as error:
                if attempt == _TRIES:
                    raise OSError(f"{self._folder}: a folder in it is removed again and again") from error
            else:
                return

    def _write(self, target: Path, body: bytes) -> None:
        self._make(target.parent)
        write_private_file(target, body, is_synced=True)
        _sync(target.parent)

    def _make(self, folder: Path) -> None:
        if folder in self._synced and folder.exists():
            return
        if folder != self._folder:
            self._make(folder.parent)
            with suppress(FileExistsError):  # not exist_ok, which looks again: it may be gone by then
                new_private_folder(folder)
            _sync(folder.parent)
        self._synced.add(folder)
        if len(self._synced) > 10_000:
            self._synced.clear()

    async def get(self, path: str) -> bytes:
        return await self._run(self._get, path)

    def _get(self, path: str) -> bytes:
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            self._refuse_another_folder()
            raise

    def _refuse_another_folder(self) -> None:
        """An empty place to mount is not the tier: nothing is gone because of it."""
        if not (self._folder / _MARK).exists():
            raise OSError(f"{self._folder} is not the folder it was when the server started: is it mounted?")

    async def delete(self, paths: Sequence[str]) -> None:
        await self._run(self._delete, paths)

    def _delete(self, paths: Sequence[str]) -> None:
        self._refuse_another_folder()
        folders = set()
        for path in paths:
            target = self._folder / path
            target.unlink(missing_ok=True)
            folders.add(target.parent)
        for folder in folders:
            _remove_empty(folder, self._folder)

    async def pages(self, prefix: str) -> AsyncIterator[list[StoredObject]]:
        await self._run(self._refuse_another_folder)
        files = _files(self._folder / prefix)
        while page := await self._run(self._page, files):
            yield page

    def _page(self, files: Iterator[Path]) -> list[StoredObject]:
        page: list[StoredObject] = []
        for file in files:
            try:
                about = file.stat()
            except FileNotFoundError:
                continue
            path = file.relative_to(self._folder).as_posix()
            page.append(StoredObject(path, about.st_size, int(about.st_mtime * 1000)))
            if len(page) == PAGE:
                break
        return page

    async def children(self) -> list[str]:
        return await self._run(lambda: sorted(each.name for each in os.scandir(self._folder) if each.is_dir()))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _files(folder: Path) -> Iterator[Path]:
    """All files below, hidden ones left out; one folder's names are in memory at a time."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.startswith("."):
            continue
        path = folder / name
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _remove_empty(folder: Path, root: Path) -> None:
    """The folder of a day, and that of its queue, where nothing is left in them."""
    while folder != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
