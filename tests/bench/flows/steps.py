"""The two steps, which do nothing but make their results."""

from __future__ import annotations

QUEUES = ("calculate", "pay")


def calculate(user: int) -> dict[str, int]:
    return {"amount": 7 * user}


def pay(user: int, amount: int) -> dict[str, int]:
    return {"paid": amount}
