"""The jobs that a call of a client names: `[descriptor, …]`, or `queue, [descriptor, …]`, which must be of that queue,
or `queue` and keys of jobs there.

A server leaves out of a lookup what is no descriptor at all, as older callers expect; a client of ours says so before
anything is sent, since it is a mistake of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.errors import RequestInvalid
from pinlater.model import KeyRef, is_descriptor

_EXAMPLE = "descriptors as an enqueue or dequeue gave them, such as 'mail:s1:p1:1790000000000000'"
_SHOWN = 3


def named_jobs(
    named: Sequence[str | Sequence[str]],
    queue: str | None = None,
    descriptors: Sequence[str] | None = None,
    keys: Sequence[KeyRef] = (),
) -> tuple[str | None, Sequence[str]]:
    """The queue, where one is named, and the descriptors, whichever way they were given: in places, or by name.
    RequestInvalid.
    """
    if len(named) == 2 or (len(named) == 1 and (keys or descriptors is not None) and isinstance(named[0], str)):
        queue, named = named[0], named[1:]  # type: ignore[assignment]
    if named:
        descriptors = named[0]
    if keys and descriptors is None:
        descriptors = ()
    if keys and not queue:
        raise RequestInvalid("keys name jobs of one queue: say which one, as in queue='mail'")
    if descriptors is None or isinstance(descriptors, str | bytes) or not isinstance(queue, str | None):
        raise RequestInvalid.of("jobDescriptors", descriptors, f"a list of {_EXAMPLE}")
    wrong = [each for each in descriptors if not isinstance(each, str) or not is_descriptor(each)]
    if wrong:
        shown = ", ".join(repr(each)[:100] for each in wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise RequestInvalid(f"no descriptor: {shown}{more}; allowed: {_EXAMPLE}")
    return queue or None, descriptors


def by_queue(descriptors: Sequence[str]) -> dict[str, list[str]]:
    """
    >>> by_queue(["mail:s1:p1:17", "images:s1:p1:18", "mail:s2:p1:19"])
    {'mail': ['mail:s1:p1:17', 'mail:s2:p1:19'], 'images': ['images:s1:p1:18']}
    """
    found: dict[str, list[str]] = {}
    for each in descriptors:
        found.setdefault(each.partition(":")[0], []).append(each)
    return found
