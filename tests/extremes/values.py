"""Extreme values of every type of the interface: zero, one, the ends, the longest, every odd character."""

from __future__ import annotations

from pinlater.wire.interface import BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, Node

EXACT_MS = 2**53 - 1
"""The last whole number that every language counts to."""

YEAR_9999_MS = 253_402_300_799_999
"""The last millisecond that a datetime of Python has."""

ODD = "".join(
    [
        *map(chr, range(0x20)),  # C0, NUL among them
        *map(chr, range(0x7F, 0xA1)),  # DEL, C1, a space that does not break
        "\u200b\u200e\u202e\u2028\u2029\u2066\ufeff",  # no width, turned around, line separators
        "\ufffd\uffff\U0010ffff\U0001f600e\u0301\u0130\u1e9e",  # stand-ins, beyond two bytes, combined, changing length
        "'\"`\\<b>&amp;%_*?${x}{{x}}#;|/../,=:@[](~)",  # what means something to a shell, SQL, HTML, a template
    ]
)
LONGEST = "\U0001f600" * 70_000
"""Beyond 64 KiB in every encoding, and no character of it in two bytes."""

LARGE = b"\xff'" * 300_000
"""Between half and all of a megabyte."""

MEGABYTE = bytes(2**20)
"""The largest body that a server takes which was not told otherwise, of what is longest when it is escaped."""

NUMBERS = {
    BYTE: (-(2**7), 0, 1, 2**7 - 1),
    I16: (-(2**15), 0, 1, 2**15 - 1),
    I32: (-(2**31), -1, 0, 1, 2**31 - 1),
    I64: (-(2**63), 0, 1, YEAR_9999_MS, YEAR_9999_MS + 1, EXACT_MS, 2**63 - 1),
}
TEXTS = ("", ODD, LONGEST)
BODIES = (b"", bytes(range(256)), LARGE, MEGABYTE, MEGABYTE + b"\0")
FRACTIONS = (float("-inf"), float("nan"), float("inf"), -0.0, 1.0, 5e-324)
WAITS = (-(2**31), -1, 0, 1)
"""Longer ones are waited for."""


def extremes_of(node: Node, attribute: str) -> tuple[object, ...]:
    """Those of a field that is neither a struct nor made of others."""
    if attribute == "wait_ms":
        return WAITS
    if node.ttype == BOOL:
        return (False, True)
    if node.ttype == DOUBLE:
        return FRACTIONS
    if node.ttype == STRING:
        return TEXTS if node.text else BODIES
    return NUMBERS[node.ttype]
