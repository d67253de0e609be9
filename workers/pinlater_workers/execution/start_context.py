"""The context that each attempt begins in: that of the worker's start.

A context that is copied has the same objects in its variables. Values that are only ever replaced are apart so; the
arithmetic of `decimal` is one object that is changed in place, so each attempt gets its own.
"""

from __future__ import annotations

import decimal
from contextvars import Context, copy_context

_ARITHMETIC = "decimal_context"
"""What decimal calls its variable, which it does not export."""


class StartContext:
    """The context variables as they are when this is made. Any thread may ask for a fresh copy."""

    def __init__(self) -> None:
        self.kept = copy_context()
        """For what is not an attempt: the work of the pool itself."""
        self._has_arithmetic = any(variable.name == _ARITHMETIC for variable in self.kept)

    def fresh(self) -> Context:
        """A copy, in which nothing that an earlier attempt has set or changed is left."""
        context = self.kept.copy()
        if self._has_arithmetic:
            context.run(_own_arithmetic)
        return context


def _own_arithmetic() -> None:
    decimal.setcontext(decimal.getcontext().copy())
