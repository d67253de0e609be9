"""The results of jobs, written and read as bodies are: a first line that says the encoding, then the value."""

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

TOO_LARGE = "RESULT_TOO_LARGE"
"""In the status of a job whose result was."""

_WRITE: dict[Encoding, Callable[[Any], bytes]] = {
    "json": msgspec.json.Encoder(enc_hook=plain).encode,
    "msgpack": msgspec.msgpack.Encoder(enc_hook=plain).encode,
}
_READ: dict[Encoding, Callable[[memoryview], Any]] = {"json": msgspec.json.decode, "msgpack": msgspec.msgpack.decode}


class ResultCodec:
    """The results of one type of job."""

    def __init__(self, hint: Any, job: str) -> None:
        """`hint`: what the function is annotated to return. ConfigurationError: what cannot be written and read."""
        self._job = job
        try:
            self._annotation = Annotation(hint)
        except TypeError as error:
            raise ConfigurationError(
                f"job {job!r} has keep_result, and returns {hint!r}: {error}; allowed: what can be an argument too"
            ) from error

    def write(self, result: Any, encoding: Encoding) -> bytes:
        """ResultInvalid: what is not as annotated, cannot be written, or is too large for any server."""
        try:
            self._annotation.check_written(result, encoding)
            written = f"PINLATER/{VERSION} {CONTENT_TYPES[encoding]}\n".encode() + _WRITE[encoding](result)
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
        try:
            value = _READ[encoding](memoryview(written)[match.end() :])
            return self._annotation.read(value, encoding)
        except (*UNREADABLE, ValueError) as error:
            raise BodyInvalid(f"a result of job {self._job!r} that cannot be read: {error}") from error
