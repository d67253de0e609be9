"""What is wrong with bytes that are not the contract."""

from __future__ import annotations

from enum import IntEnum

from pinlater.errors import ProtocolError


class ApplicationErrorKind(IntEnum):
    """The kinds of TApplicationException that this server sends."""

    UNKNOWN_METHOD = 1
    INVALID_MESSAGE_TYPE = 2
    INTERNAL_ERROR = 6
    PROTOCOL_ERROR = 7


class WireError(ProtocolError):
    """A message that cannot be decoded. `kind` is what an answer to it says."""

    def __init__(self, message: str, *, kind: ApplicationErrorKind = ApplicationErrorKind.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.kind = kind
