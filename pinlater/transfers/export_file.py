"""The file of an export: a header, blocks and an end, each in a frame of its own with a checksum.

    MAGIC    16 bytes
    frame    FRAME: kind, number, bytes of the content, CRC-32 of kind, number and content; then the content
    kinds    H header, JSON; B block, compressed; E end, JSON. Blocks are numbered from 1 on; E comes last.

A block is, under zlib, a list in MessagePack: the kind of its rows, and the rows (backends/store_transfer.py).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any, BinaryIO

import msgspec

from pinlater.backends.store_transfer import GROUPS, KINDS, ExportBlock, TransferTotals
from pinlater.job_body import UNREADABLE
from pinlater.stored_json import read_stored

MAGIC = b"PINLATER EXPORT\n"
FORMAT = 2
"""The newest. Each export has the oldest that can say what it holds (`format_of`)."""

FRAME = Struct(">cIII")
_HEADER, _BLOCK, _END = b"H", b"B", b"E"
_SAMPLE_BYTES, _WORTH_IT = 32 << 10, 0.8
"""A block is compressed where so much of it becomes smaller than that part: of random bodies it would take most of the
time, and save nothing.
"""


def format_of(level: int) -> int:
    """The format of an export of a store that has held what this level says: 1 knows neither groups nor
    successors.
    """
    return 2 if level >= GROUPS else 1


class ExportBroken(Exception):
    """What was read is no export, or not the whole of one; the message says what, and what to do."""


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """What an export is of. `export_id` is random; `jobs`: about how many; `level`: what the store has held."""

    export_id: str
    shard_id: str
    store_id: str
    level: int
    made_at_ms: int
    jobs: int
    with_bodies: bool = False
    format: int = 1


@dataclass(frozen=True, slots=True)
class ExportEnd:
    """What an export held, and the last id that its store had given."""

    totals: TransferTotals
    last_id: int


class ExportWriter:
    """Writes an export to a file that is open."""

    def __init__(self, file: BinaryIO, header: ExportHeader) -> None:
        self._file = file
        self._number = 0
        self.totals = TransferTotals()
        file.write(MAGIC)
        self._put(_HEADER, json.dumps(asdict(header)).encode())

    def put_block(self, block: ExportBlock) -> None:
        self.totals.add(block)
        self._number += 1
        text = msgspec.msgpack.encode((block.kind, block.rows))
        sample = text[:_SAMPLE_BYTES]
        is_worth_it = len(zlib.compress(sample, 1)) < _WORTH_IT * len(sample)
        self._put(_BLOCK, zlib.compress(text, 1 if is_worth_it else 0))

    def end(self, last_id: int) -> None:
        """StoreRefused where jobs wait that nothing leads to."""
        self.totals.check_chains()
        end = {"totals": self.totals.dump(), "last_id": max(last_id, self.totals.last_id)}
        self._number += 1
        self._put(_END, json.dumps(end).encode())

    def _put(self, kind: bytes, content: bytes) -> None:
        self._file.write(FRAME.pack(kind, self._number, len(content), _checksum(kind, self._number, content)))
        self._file.write(content)


def _checksum(kind: bytes, number: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(kind + number.to_bytes(4, "big")))


class ExportReader:
    """Reads an export. ExportBroken, also from each method."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self.end: ExportEnd | None = None
        """Once all blocks are read."""
        begin = file.read(len(MAGIC))
        if begin != MAGIC:
            is_cut = MAGIC.startswith(begin)
            raise ExportBroken(
                "there is nothing in this export: it failed" if is_cut else "this is no export of PinLater"
            )
        kind, content = self._frame()
        if kind != _HEADER:
            raise ExportBroken("this export has no header: export again")
        self.header = _header(content)

    def blocks(self, skipped: int = 0) -> Iterator[ExportBlock]:
        """The blocks behind the first `skipped`, which are not decoded."""
        for content in self._contents():
            if self._number > skipped:
                yield decoded(content)

    def check(self) -> ExportEnd:
        """Read it to the end, and look at nothing but the checksums."""
        for _ in self._contents():
            pass
        assert self.end is not None
        return self.end

    def _contents(self) -> Iterator[bytes]:
        while True:
            self._number += 1
            kind, content = self._frame()
            if kind == _END:
                if self._file.read(1):
                    raise ExportBroken("there is more in this file behind the end of the export: use another copy")
                self.end = _end(content)
                return
            yield content

    def _frame(self) -> tuple[bytes, bytes]:
        head = self._file.read(FRAME.size)
        if len(head) < FRAME.size:
            raise self._cut()
        kind, number, size, checksum = FRAME.unpack(head)
        content = self._file.read(size) if kind in (_HEADER, _BLOCK, _END) else b""
        if len(content) < size and kind in (_HEADER, _BLOCK, _END):
            raise self._cut()
        if number != self._number or checksum != _checksum(kind, number, content):
            raise ExportBroken(f"block {self._number} of this export is damaged: use another copy, or export again")
        return kind, content

    def _cut(self) -> ExportBroken:
        return ExportBroken(
            f"this export ends in its block {self._number}, before its end: it was cut, or the export was interrupted"
        )


def _header(content: bytes) -> ExportHeader:
    try:
        found = read_stored(content)
        if int(found.get("format", 0)) > FORMAT:
            raise ExportBroken(
                f"this export has format {found['format']}, and this PinLater reads up to {FORMAT}: use a newer one"
            )
        return msgspec.convert(found, ExportHeader)
    except (ValueError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise ExportBroken(f"the header of this export cannot be read ({error}): export again") from error


def _end(content: bytes) -> ExportEnd:
    try:
        found = read_stored(content)
        return ExportEnd(TransferTotals.load(found["totals"]), int(found["last_id"]))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ExportBroken(f"the end of this export cannot be read ({error}): export again") from error


def decoded(content: bytes) -> ExportBlock:
    try:
        kind, rows = _BLOCKS.decode(zlib.decompress(content))
    except (zlib.error, *UNREADABLE, ValueError) as error:
        raise ExportBroken(f"a block of this export cannot be read ({error}): export again") from error
    if kind not in KINDS:
        raise ExportBroken(f"this export holds {kind!r}, which this PinLater does not know: use a newer one")
    return ExportBlock(kind, rows)


_BLOCKS = msgspec.msgpack.Decoder(tuple[str, list[list[Any]]])
