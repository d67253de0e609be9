"""What a disk has for certain, what it may have, and what is left of that when the power is cut.

The model is that of a Linux file system with a journal (ext4, XFS) at its worst, within what POSIX promises:

* What was written to a file, its length included, is certain when a sync of that file has returned: fsync, fdatasync,
  a write under O_SYNC or O_DSYNC, or msync. Before that, each page of 4 KiB survives or not by itself, in any order,
  since the kernel writes pages back as it likes; a page is never torn, since disks write sectors of 4 KiB.
* A file that grew may have its new length without its new pages, which are zeros then (delayed allocation), or be cut
  off behind some page. A length that was set by one call (ftruncate, fallocate) is there or not, as XFS has it, and
  ext4 where it finds the room in one piece.
* Names go through one journal: what created, linked, renamed and removed them survives as a prefix, in its order, and
  each of these whole. The sync of a folder makes certain the last change of it and all changes before, as a journal
  does. The sync of a file makes its name no more certain: ext4 and XFS would, POSIX does not promise it.
* At any moment, the kernel may write back some pages, or a part of the journal, which nobody asked for.

Permissions and times are not held back: no store relies on them. What the drive itself answers is believed.
"""

from __future__ import annotations

import random
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch

PAGE = 4096
ROOT = 1
WRITE_BACK_EVERY = 64
"""Of so many writes one is followed by a write-back, as is one of so many changes of names."""

Change = tuple["Node", str, "Node | None"]
"""In this folder the name is from now on that of the node, or of nothing."""


@dataclass(eq=False)
class Node:
    """A file or a folder. `data` and `names` are what programs see."""

    number: int
    mode: int
    uid: int = 0
    gid: int = 0
    data: bytearray = field(default_factory=bytearray)
    names: dict[str, Node] = field(default_factory=dict)
    certain_names: dict[str, Node] = field(default_factory=dict)
    certain_pages: dict[int, bytes] = field(default_factory=dict)
    """What the disk has for certain of the pages that were written since; of all others it has what is in `data`."""

    certain_size: int = 0
    set_lengths: list[tuple[int, int]] = field(default_factory=list)
    """From which length to which one call each made it grow, since."""

    mtime_ns: int = field(default_factory=time.time_ns)
    links: int = 0
    opened: int = 0

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_certain(self) -> bool:
        """Nothing of its content is held back."""
        return not self.certain_pages and self.certain_size == len(self.data)

    def _hold_back(self, start: int, end: int) -> None:
        """Before bytes from `start` to `end` change."""
        for page in range(start // PAGE, -(-end // PAGE)):
            if page not in self.certain_pages:
                on_disk = self.data[page * PAGE : min((page + 1) * PAGE, self.certain_size)]
                self.certain_pages[page] = bytes(on_disk)

    def write(self, offset: int, content: bytes | memoryview) -> None:
        end = offset + len(content)
        self._hold_back(offset, end)
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = content
        self.mtime_ns = time.time_ns()

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            self._hold_back(size, len(self.data))
            del self.data[size:]
        else:
            self.set_lengths.append((len(self.data), size))
            self.data.extend(bytes(size - len(self.data)))
        self.mtime_ns = time.time_ns()

    def sync(self) -> None:
        self.certain_pages.clear()
        self.set_lengths.clear()
        self.certain_size = len(self.data)

    def write_back(self, chance: random.Random) -> None:
        """Some pages or the whole file, which the disk then has."""
        if chance.random() < 0.25:
            self.sync()
        for page in [page for page in self.certain_pages if chance.random() < 0.5]:
            if (page + 1) * PAGE <= min(self.certain_size, len(self.data)):
                del self.certain_pages[page]

    def lose(self, chance: random.Random) -> None:
        """What was held back survives in part; then all that is left is certain."""
        rate = chance.choice((0.0, 0.0, 0.5, chance.random(), 1.0))
        is_cut_off = chance.random() < 0.5
        before, now = self.certain_size, len(self.data)
        size = now if chance.random() < rate else before
        if is_cut_off and before < now:
            within = [
                end
                for end in range((before // PAGE + 1) * PAGE, now, PAGE)
                if not any(low < end < high for low, high in self.set_lengths)
            ]
            size = chance.choice([before, *within, now])
        self.data.extend(bytes(max(0, size - now)))
        for page, content in self.certain_pages.items():
            start = page * PAGE
            is_kept_up_to_size = is_cut_off and start + PAGE > before
            is_back = size > now and start + PAGE > now  # as the truncation never was
            if is_back or not (is_kept_up_to_size or chance.random() < rate):
                self.data[start : start + PAGE] = content.ljust(PAGE, b"\0")
        del self.data[size:]
        self.sync()


class HeldBack:
    """A tree of nodes. `unsynced` are patterns of paths whose syncs do nothing: planted faults."""

    def __init__(self, seed: int) -> None:
        self.nodes: dict[int, Node] = {ROOT: Node(ROOT, stat.S_IFDIR | 0o755)}
        self.unsynced: list[str] = []
        self._journal: list[list[Change]] = []
        self._last_number = ROOT
        self._chance = random.Random(seed)
        self._seldom = 0

    def make(self, mode: int, uid: int, gid: int) -> Node:
        self._last_number += 1
        node = Node(self._last_number, mode, uid, gid)
        self.nodes[node.number] = node
        return node

    def change(self, *changes: Change) -> None:
        """Names, all at once."""
        for folder, name, node in changes:
            before = folder.names.pop(name, None)
            if before is not None:
                before.links -= 1
            if node is not None:
                folder.names[name] = node
                node.links += 1
            folder.mtime_ns = time.time_ns()
        self._journal.append(list(changes))
        if self._is_time():
            self._commit(self._chance.randint(0, len(self._journal)))

    def write(self, node: Node, offset: int, content: bytes | memoryview) -> None:
        node.write(offset, content)
        if self._is_time():
            node.write_back(self._chance)

    def _is_time(self) -> bool:
        self._seldom += 1
        return self._seldom % WRITE_BACK_EVERY == 0

    def sync(self, node: Node) -> None:
        """What was asked to be certain, is."""
        if self.unsynced and any(fnmatch(path, each) for path in self._paths_of(node) for each in self.unsynced):
            return
        if node.is_folder:
            touching = [place for place, changes in enumerate(self._journal) if any(c[0] is node for c in changes)]
            self._commit(touching[-1] + 1 if touching else 0)
        else:
            node.sync()

    def _paths_of(self, node: Node) -> Iterator[str]:
        """From the root, without a slash at the begin."""
        for folder in self.nodes.values():
            for name in [name for name, each in folder.names.items() if each is node]:
                if folder.number == ROOT:
                    yield name
                else:
                    yield from (f"{path}/{name}" for path in self._paths_of(folder))

    def sync_all(self) -> None:
        self._commit(len(self._journal))
        for node in self.nodes.values():
            node.sync()

    def _commit(self, number: int) -> None:
        for changes in self._journal[:number]:
            for folder, name, node in changes:
                if node is None:
                    folder.certain_names.pop(name, None)
                else:
                    folder.certain_names[name] = node
        del self._journal[:number]

    def cut(self, seed: int) -> dict[str, int]:
        """Lose what was held back, in part and by chance; how much of it there was."""
        chance = random.Random(seed)
        held = {
            "changes": len(self._journal),
            "files": sum(not node.is_certain for node in self.nodes.values()),
            "pages": sum(len(node.certain_pages) for node in self.nodes.values()),
        }
        whole = len(self._journal)
        self._commit(chance.choice((0, whole, chance.randint(0, whole))))
        self._journal.clear()
        for node in self.nodes.values():
            if node.is_folder:
                node.names = dict(node.certain_names)
            elif not node.is_certain:
                node.lose(chance)
            node.opened = node.links = 0
        self.nodes = {node.number: node for node in self._below(self.nodes[ROOT])}
        return held

    def _below(self, folder: Node) -> Iterator[Node]:
        yield folder
        for node in folder.names.values():
            node.links += 1
            if node.is_folder:
                yield from self._below(node)
            else:
                yield node

    def forget(self, node: Node) -> None:
        """Its content, where neither a program nor a cut could bring it back."""
        if node.links or node.opened or any(node is each[2] for changes in self._journal for each in changes):
            return
        if not any(node in folder.certain_names.values() for folder in self.nodes.values() if folder.is_folder):
            self.nodes.pop(node.number, None)
