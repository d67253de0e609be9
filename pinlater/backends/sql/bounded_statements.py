"""The bound of a statement to MySQL or MariaDB, which a connection of either driver keeps by itself."""

from __future__ import annotations

from functools import partialmethod
from importlib import import_module
from typing import Any

from pinlater.errors import BodyTooLarge
from pinlater.model.word_enum import WordEnum

BESIDE_A_BODY = 32 << 10
"""More than all that goes with a body takes in its statement: its job's numbers, keys and status."""


class BoundedStatements:
    """Part of a connection of either driver: it sends no statement that the server does not take.

    A server that is sent one may just hang up, which says nothing, and takes the calls of others with it.
    """

    max_packet = 0
    """The store's max_allowed_packet, in bytes; 0: not known yet."""

    def learn_bound(self) -> int:
        """Read `max_allowed_packet` in bytes, as it is for this session, whatever becomes of the server's."""
        cursor = self.cursor()  # type: ignore[attr-defined]
        cursor.execute("SELECT @@max_allowed_packet")
        ((max_packet,),) = cursor.fetchall()
        cursor.close()
        self.max_packet = int(max_packet)
        return self.max_packet

    def query(self, statement: str | bytes, *args: Any, **kwargs: Any) -> Any:
        """BodyTooLarge, with the size of a body that fits."""
        # PyMySQL before 1.2 writes the bytes of a value as surrogates
        data = statement.encode("utf-8", "surrogateescape") if isinstance(statement, str) else statement
        if 0 < self.max_packet <= len(data) + 1:
            raise BodyTooLarge(
                f"a statement of {len(data)} bytes is needed, and the store's max_allowed_packet is {self.max_packet}: "
                f"a body of {(self.max_packet - BESIDE_A_BODY) // 2} bytes fits whatever is in it; raise it there for "
                "larger ones"
            )
        return super().query(data, *args, **kwargs)  # type: ignore[misc]


def bounded_connection(driver: Any) -> type[BoundedStatements]:
    """The connection of a driver, PyMySQL or mysqlclient, with the bound. It sends values of enums as their numbers:
    both drivers send what they do not know as the text that it reads as.
    """
    module, converters = (import_module(f"{driver.__name__}.{name}") for name in ("connections", "converters"))
    known = converters.conversions | dict.fromkeys(WordEnum.__subclasses__(), lambda value, _: f"{value:d}")
    begin = partialmethod(module.Connection.__init__, conv=known)
    return type("BoundedConnection", (BoundedStatements, module.Connection), {"__init__": begin})
