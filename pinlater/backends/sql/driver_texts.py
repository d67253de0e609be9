"""The words of databases and their drivers about an error, without the values of statements.

One statement carries the values of many callers, and its error may be told to all of them, to a log and to a page.
"""

from __future__ import annotations

import re
from typing import Any

_QUOTED_BY_POSTGRES = re.compile(
    r"""["'«»„“”\u2018\u2019「].*["'«»“”\u2018\u2019」]""",
    re.DOTALL,
)
"""What PostgreSQL quotes, in whatever language it speaks (`lc_messages`)."""

_QUOTED_BY_MYSQL = re.compile(r"'.*'", re.DOTALL)
_OF_VALUES = ("22", "42601")
"""The errors of PostgreSQL that quote values: of data, and of what stands in the way in a statement."""

_OF_THINGS = frozenset(
    (
        *(3, 1021, 1026, 1030, 1040, 1044, 1045, 1048, 1049, 1053, 1114, 1130, 1142, 1143, 1146, 1153, 1203, 1226),
        *(1264, 1265, 1290, 1406, 1698, 1927, 4031, *range(2000, 3000)),
    )
)
"""Errors of MariaDB and its client that quote names of tables, columns, users, hosts, files and settings alone."""


def driver_text(error: BaseException) -> str:
    """What a driver says of an error, in one line, without the values of the statement.

    >>> driver_text(OSError(1366, "Incorrect string value: 'a'b' for column `jobs`.`body`"))
    "1366: Incorrect string value: '…' for column `jobs`.`body`"
    >>> driver_text(OSError(1045, "Access denied for user 'app'@'localhost'"))
    "1045: Access denied for user 'app'@'localhost'"
    """
    code, report = getattr(error, "sqlstate", None), getattr(error, "diag", None)
    if code and report is not None:  # its DETAIL and CONTEXT have whole rows
        text = report.message_primary or str(code)
        return _line(_QUOTED_BY_POSTGRES.sub('"…"', text) if str(code).startswith(_OF_VALUES) else text)
    arguments: tuple[Any, ...] = error.args
    if len(arguments) > 1 and isinstance(arguments[0], int):
        number, text = arguments[0], str(arguments[1])
        return _line(f"{number}: " + (text if number in _OF_THINGS else _QUOTED_BY_MYSQL.sub("'…'", text)))
    return _line(str(error))


def _line(text: str) -> str:
    return " ".join(text.split())
