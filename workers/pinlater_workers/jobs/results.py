"""The results of jobs, written and read as bodies are: a first line with the encoding, then the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pinlater.job_body import CONTENT_TYPES, FIRST_LINE, UNREADABLE, VERSION, Encoding, named_encoding
from pinlater_workers.envelope import plain
from pinlater_workers.errors import BodyInvalid, ConfigurationError, ResultInvalid
from pinlater_workers.jobs.arguments import Annotation

RESULT_HEADER = "pinlater-result"
"""Of a job whose producer said another `keep_result` than its type: "1" or "0"."""

MAX_RESULT_BYTES = 16 << 20
"""A server would break the connection over it. What is kept is bounded by the queue's max_result."""

UNASKED_BYTES = 4_096
"""For a result up to this size no server is asked for the bound: its ack is refused for good if it is too large."""

TOO_LARGE = "RESULT_TOO_LARGE"
"""In the status of a job whose result was."""

_WRITE: dict[Encoding, Callable[[Any], bytes]] = {
    "json": msgspec.json.Encoder(enc_hook=plain).encode,
    "msgpack": msgspec.msgpack.Encoder(enc_hook=plain).encode,
}
_READ: dict[Encoding, Callable[[memoryview], Any]] = {"json": msgspec.json.decode, "msgpack": msgspec.msgpack.decode}


def written_json(value: Any) -> bytes:
    """TypeError, ValueError, OverflowError or RecursionError: what JSON does not have."""
    return _WRITE["json"](value)


class ResultCodec:
    """The results of one type of job."""

    def __init__(self, hint: Any, job: str, *, is_open: bool = True) -> None:
        """`hint`: what the function is annotated to return; `is_open`: that it can be annotated. ConfigurationError:
        what cannot be written and read.
        """
        self._job = job
        try:
            self._annotation = Annotation(hint, is_open=is_open)
        except TypeError as error:
            raise ConfigurationError(
                f"job {job!r} has keep_result, and returns {hint!r}: {error}; allowed: what can be an argument too"
            ) from error

    def write(self, result: Any, encoding: Encoding) -> bytes:
        """ResultInvalid: what is not as annotated, cannot be written, or is too large for any server."""
        return self._write(result, encoding, f"PINLATER/{VERSION} {CONTENT_TYPES[encoding]}\n".encode())

    def write_json(self, result: Any) -> bytes:
        """That of an item of a flow: JSON, with no first line. ResultInvalid."""
        return self._write(result, "json", b"")

    def _write(self, result: Any, encoding: Encoding, first_line: bytes) -> bytes:
        try:
            self._annotation.check_written(result, encoding)
            written = first_line + _WRITE[encoding](result)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ResultInvalid(
                f"job {self._job!r} returned {type(result).__qualname__}, which cannot be kept: {error}; allowed: "
                f"{self._annotation.shown}"
            ) from error
        if len(written) > MAX_RESULT_BYTES:
            raise ResultInvalid(
                f"{TOO_LARGE}: {len(written)} bytes; store it elsewhere, and return where it is; no queue takes more "
                f"than {MAX_RESULT_BYTES}"
            )
        return written

    def read(self, written: bytes) -> Any:
        """BodyInvalid: nothing of ours, or not as annotated here."""
        match = FIRST_LINE.match(written)
        encoding = None if match is None else named_encoding(match)
        if match is None or encoding is None:
            raise BodyInvalid(f"a result of job {self._job!r} that is not the framework's: {written[:40]!r}")
        return self._read(memoryview(written)[match.end() :], encoding)

    def read_json(self, written: bytes) -> Any:
        """That of an item of a flow. BodyInvalid: not as annotated here."""
        return self._read(memoryview(written), "json")

    def _read(self, written: memoryview, encoding: Encoding) -> Any:
        try:
            return self._annotation.read(_READ[encoding](written), encoding)
        except (*UNREADABLE, ValueError) as error:
            raise BodyInvalid(f"a result of job {self._job!r} that cannot be read: {error}") from error
