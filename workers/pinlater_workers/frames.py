"""Messages as bytes between two processes of a worker: a length of four bytes, then the message."""

from __future__ import annotations

_LENGTH_BYTES = 4


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


class Frames:
    """Bytes as they come in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now; what is left waits for the rest."""
        buffer = self._buffer
        buffer += data
        messages: list[bytes] = []
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(buffer[start:body], "big")
            if len(buffer) < end:
                break
            messages.append(bytes(buffer[body:end]))
            start = end
        del buffer[:start]
        return messages
