"""Operations of a store, and the parts that group them: what the wrappers of a shard have to know about each.

To add an operation: the method in its part, with its row above it, and the method in each store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from pinlater.errors import PartMissing

M = TypeVar("M", bound=Callable[..., Any])


class Operation(NamedTuple):
    """A method of a part that goes to the store.

    `label` is its value in the metrics, which stays when the method gets another name; "" where it is not counted.
    `reads`: it changes nothing and may be sent again. `bulk`: it reads many jobs, or brings many bodies; such calls
    have a limit of their own. `urgent`: it waits for no other. `claims`: it hands out jobs, which go back where nobody
    waits for them any more; `claims_listed`: likewise those that it names, in ClaimAnswers. `batch` is the position of
    the argument that is a list of jobs, `batch_label` what these count as.
    """

    name: str
    label: str
    reads: bool = False
    bulk: bool = False
    urgent: bool = False
    claims: bool = False
    claims_listed: bool = False
    batch: int | None = None
    batch_label: str = ""


class StorePart:
    """Operations that a store has all of, or lacks all of. What it lacks is refused by the name of the part, or
    answered as by a store that holds nothing of the kind.
    """

    shard_id: str
    """1 to 16 letters and digits; stands in every descriptor this shard makes."""

    lacks: Sequence[type[StorePart]] = ()

    def __init_subclass__(cls, lacks: Sequence[type[StorePart]] = ()) -> None:
        """`lacks`: the parts that this store does not have, whatever it inherits."""
        super().__init_subclass__()
        if lacks:
            cls.lacks = lacks
            for part in lacks:
                for each in operations_of(part):
                    setattr(cls, each.name, vars(part)[each.name])


def operation(
    label: str | None = None, *, optional: bool = False, batch: int | None = None, batch_label: str = "", **row: bool
) -> Callable[[M], M]:
    """The row of an operation, above its method. `label` None: its name. A store that lacks the part answers as the
    method does where this is `optional`, and else refuses it: PartMissing.
    """

    def with_row(method: M) -> M:
        name = method.__name__
        counted_as = name if label is None else label

        @wraps(method)
        async def refuse(self: StorePart, *args: object, **kwargs: object) -> NoReturn:
            part = next(each for each in reversed(type(self).__mro__) if name in vars(each))
            raise PartMissing.in_store(self.shard_id, part.__name__, name)

        in_part = method if optional else cast(M, refuse)
        vars(in_part)["row"] = Operation(name, counted_as, batch=batch, batch_label=batch_label or counted_as, **row)
        return in_part

    return with_row


def operations_of(part: type[StorePart]) -> list[Operation]:
    """The operations that the part itself names, in their order."""
    return [method.row for method in vars(part).values() if hasattr(method, "row")]
