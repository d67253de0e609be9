"""The file system that the kernel asks through /dev/fuse: its protocol 7.31, as far as stores need it.

No library is needed, since the protocol is a read and a write for each request. Its structures are in linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.powercuts.held_back import PAGE, HeldBack, Node

MAX_WRITE = 128 * 1024
FOREVER_S = 1 << 30
"""The kernel may remember all it was told: nobody else changes this file system."""

_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_ATTR_HEAD = struct.Struct("<QII")
_SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
_READ = struct.Struct("<QQIIQII")
_WRITE = _READ
_OPEN_OUT = struct.Struct("<QII")
_DIRENT = struct.Struct("<QQII")
_STATFS = struct.Struct("<QQQQQIIII24x")
_FALLOCATE = struct.Struct("<QQQII")
_SYNCED_WRITES = os.O_DSYNC | os.O_SYNC
_KEEP_CACHE = 2
_BIG_WRITES = 1 << 5
_MODE, _UID, _GID, _SIZE, _MTIME, _MTIME_NOW = 1, 2, 4, 8, 32, 256
_BLOCKS = 1 << 24
_KEEP_SIZE = 1
_INIT, _DESTROY, _FORGET, _INTERRUPT, _BATCH_FORGET = 26, 38, 2, 36, 42
_libc = ctypes.CDLL(None, use_errno=True)


class NoFuse(Exception):
    """This machine mounts no FUSE file system; the message says why, and what to do."""


def mount(folder: Path) -> int:
    """The descriptor by which the kernel asks. NoFuse."""
    remedy = "(or leave these tests out: --without fuse)"
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoFuse(f"power cuts need /dev/fuse, which cannot be opened: {error.strerror} {remedy}") from error
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other,default_permissions"
    if _libc.mount(b"powercuts", os.fsencode(folder), b"fuse.powercuts", 0, options.encode()) != 0:
        said = os.strerror(ctypes.get_errno())
        os.close(device)
        raise NoFuse(f"power cuts need a FUSE file system, which only root may mount: {said} {remedy}")
    return device


def unmount(folder: Path) -> None:
    """OSError: somebody has a file open."""
    if _libc.umount2(os.fsencode(folder), 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


class KernelRequests:
    """Answers until it is unmounted. Who has `lock` stops all of it; with `is_off` nothing is done any more."""

    def __init__(self, tree: HeldBack) -> None:
        self.tree = tree
        self.lock = threading.Lock()
        self.is_off = False
        self._listings: dict[int, list[tuple[str, Node]]] = {}
        self._calls: dict[int, Callable[[Node, memoryview], bytes]] = {
            1: self._lookup, 3: self._attributes, 4: self._set, 8: self._make_file, 9: self._make_folder,
            10: self._remove_file, 11: self._remove_folder, 12: self._rename, 13: self._link, 14: self._open,
            15: self._read, 16: self._write, 17: self._room, 18: self._release, 20: self._sync, 25: self._nothing,
            27: self._open_folder, 28: self._list, 29: self._release_folder, 30: self._sync, 35: self._create,
            43: self._allocate, 45: self._rename_with_flags,
        }  # fmt: skip

    def serve(self, device: int) -> None:
        buffer = bytearray(MAX_WRITE + 2 * PAGE)
        view = memoryview(buffer)
        while True:
            try:
                size = os.readv(device, [buffer])
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                os.close(device)
                if error.errno == errno.ENODEV:
                    return
                raise
            _, code, unique, number, uid, gid, *_ = _IN.unpack_from(buffer)
            if code in (_FORGET, _BATCH_FORGET, _INTERRUPT):
                continue
            failed, content = 0, b""
            with self.lock:
                try:
                    content = self._answer(code, number, uid, gid, view[_IN.size : size])
                except OSError as error:
                    failed = error.errno or errno.EIO
            try:
                os.writev(device, [_OUT.pack(_OUT.size + len(content), -failed, unique), content])
            except OSError as error:
                if error.errno != errno.ENOENT:  # who asked was killed meanwhile
                    raise

    def _answer(self, code: int, number: int, uid: int, gid: int, body: memoryview) -> bytes:
        if code == _INIT:
            _, _, ahead, _ = _INIT_IN.unpack_from(body)
            return _INIT_OUT.pack(7, 31, ahead, _BIG_WRITES, 0, 0, MAX_WRITE, 1, 0, 0, 0, 0)
        if code == _DESTROY:
            return b""
        if self.is_off:
            raise OSError(errno.EIO, "the power is off")
        call = self._calls.get(code)
        if call is None:
            raise OSError(errno.ENOSYS, "not known")
        self._caller = uid, gid
        return call(self._node(number), body)

    def _node(self, number: int) -> Node:
        try:
            return self.tree.nodes[number]
        except KeyError:
            raise OSError(errno.ESTALE, "gone") from None

    def _described(self, node: Node) -> bytes:
        seconds, ns = divmod(node.mtime_ns, 10**9)
        size = len(node.data)
        links = 2 if node.is_folder else node.links
        return _ATTR.pack(
            *(node.number, size, -(-size // 512), seconds, seconds, seconds, ns, ns, ns),
            *(node.mode, links, node.uid, node.gid, 0, PAGE, 0),
        )

    def _entry(self, node: Node) -> bytes:
        return _ENTRY.pack(node.number, 0, FOREVER_S, FOREVER_S, 0, 0) + self._described(node)

    def _child(self, folder: Node, name: str) -> Node:
        try:
            return folder.names[name]
        except KeyError:
            raise OSError(errno.ENOENT, name) from None

    def _lookup(self, folder: Node, body: memoryview) -> bytes:
        return self._entry(self._child(folder, _name(body)))

    def _attributes(self, node: Node, _: memoryview) -> bytes:
        return _ATTR_HEAD.pack(FOREVER_S, 0, 0) + self._described(node)

    def _set(self, node: Node, body: memoryview) -> bytes:
        valid, _, _, size, _, _, mtime, _, _, mtime_ns, _, mode, _, uid, gid, _ = _SETATTR.unpack_from(body)
        if valid & _SIZE:
            node.truncate(size)
        if valid & _MODE:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        if valid & _UID:
            node.uid = uid
        if valid & _GID:
            node.gid = gid
        if valid & _MTIME:
            node.mtime_ns = time.time_ns() if valid & _MTIME_NOW else mtime * 10**9 + mtime_ns
        return self._attributes(node, body)

    def _new(self, folder: Node, name: str, mode: int) -> Node:
        if name in folder.names:
            raise OSError(errno.EEXIST, name)
        node = self.tree.make(mode, *self._caller)
        self.tree.change((folder, name, node))
        return node

    def _make_file(self, folder: Node, body: memoryview) -> bytes:
        mode, _, umask, _ = struct.unpack_from("<IIII", body)
        return self._entry(self._new(folder, _name(body[16:]), mode & ~umask))

    def _make_folder(self, folder: Node, body: memoryview) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        return self._entry(self._new(folder, _name(body[8:]), stat.S_IFDIR | stat.S_IMODE(mode & ~umask)))

    def _create(self, folder: Node, body: memoryview) -> bytes:
        _, mode, umask, _ = struct.unpack_from("<IIII", body)
        node = self._new(folder, _name(body[16:]), mode & ~umask)
        return self._entry(node) + self._open(node, body)

    def _remove_file(self, folder: Node, body: memoryview) -> bytes:
        name = _name(body)
        node = self._child(folder, name)
        self.tree.change((folder, name, None))
        self.tree.forget(node)
        return b""

    def _remove_folder(self, folder: Node, body: memoryview) -> bytes:
        name = _name(body)
        if self._child(folder, name).names:
            raise OSError(errno.ENOTEMPTY, name)
        self.tree.change((folder, name, None))
        return b""

    def _moved(self, old: Node, number: int, names: memoryview) -> bytes:
        before, after = _names(names)
        new, node = self._node(number), self._child(old, before)
        replaced = new.names.get(after)
        if replaced is not None and replaced.names:
            raise OSError(errno.ENOTEMPTY, after)
        if replaced is not node:
            self.tree.change((old, before, None), (new, after, node))
        return b""

    def _rename(self, old: Node, body: memoryview) -> bytes:
        return self._moved(old, struct.unpack_from("<Q", body)[0], body[8:])

    def _rename_with_flags(self, old: Node, body: memoryview) -> bytes:
        number, flags = struct.unpack_from("<QI", body)
        if flags:
            raise OSError(errno.EINVAL, "flags of a rename")
        return self._moved(old, number, body[16:])

    def _link(self, folder: Node, body: memoryview) -> bytes:
        node, name = self._node(struct.unpack_from("<Q", body)[0]), _name(body[8:])
        if name in folder.names:
            raise OSError(errno.EEXIST, name)
        self.tree.change((folder, name, node))
        return self._entry(node)

    def _open(self, node: Node, _: memoryview) -> bytes:
        node.opened += 1
        return _OPEN_OUT.pack(0, _KEEP_CACHE, 0)

    def _release(self, node: Node, _: memoryview) -> bytes:
        node.opened -= 1
        self.tree.forget(node)
        return b""

    def _read(self, node: Node, body: memoryview) -> bytes:
        _, offset, size, *_ = _READ.unpack_from(body)
        return bytes(node.data[offset : offset + size])

    def _write(self, node: Node, body: memoryview) -> bytes:
        _, offset, size, _, _, flags, _ = _WRITE.unpack_from(body)
        self.tree.write(node, offset, body[_WRITE.size : _WRITE.size + size])
        if flags & _SYNCED_WRITES:
            self.tree.sync(node)
        return struct.pack("<II", size, 0)

    def _allocate(self, node: Node, body: memoryview) -> bytes:
        _, offset, length, mode, _ = _FALLOCATE.unpack_from(body)
        if mode & ~_KEEP_SIZE:
            raise OSError(errno.EOPNOTSUPP, "holes")
        if not mode and offset + length > len(node.data):
            node.truncate(offset + length)
        return b""

    def _sync(self, node: Node, _: memoryview) -> bytes:
        self.tree.sync(node)
        return b""

    def _nothing(self, _: Node, __: memoryview) -> bytes:
        return b""

    def _room(self, _: Node, __: memoryview) -> bytes:
        return _STATFS.pack(_BLOCKS, _BLOCKS // 2, _BLOCKS // 2, 1 << 20, 1 << 19, PAGE, 255, PAGE, 0)

    def _open_folder(self, node: Node, _: memoryview) -> bytes:
        number = len(self._listings) + 1
        while number in self._listings:
            number += 1
        self._listings[number] = list(node.names.items())
        return _OPEN_OUT.pack(number, 0, 0)

    def _list(self, node: Node, body: memoryview) -> bytes:
        number, offset, size, *_ = _READ.unpack_from(body)
        if offset == 0:  # after rewinddir
            self._listings[number] = list(node.names.items())
        listed = bytearray()
        for entry in _entries(self._listings[number], offset):
            if len(listed) + len(entry) > size:
                break
            listed += entry
        return bytes(listed)

    def _release_folder(self, _: Node, body: memoryview) -> bytes:
        self._listings.pop(struct.unpack_from("<Q", body)[0], None)
        return b""


def _name(body: memoryview) -> str:
    return os.fsdecode(bytes(body).split(b"\0", 1)[0])


def _names(body: memoryview) -> tuple[str, str]:
    first, second, _ = bytes(body).split(b"\0", 2)
    return os.fsdecode(first), os.fsdecode(second)


def _entries(listing: list[tuple[str, Node]], offset: int) -> Iterator[bytes]:
    for place in range(offset, len(listing)):
        name, node = listing[place]
        raw = os.fsencode(name)
        entry = _DIRENT.pack(node.number, place + 1, len(raw), node.mode >> 12) + raw
        yield entry.ljust(-(-len(entry) // 8) * 8, b"\0")
