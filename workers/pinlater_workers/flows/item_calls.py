"""Items of flows as calls carry them: there, as many as a call takes; back, the ended ones of a stage as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.model.flow_words import FlowItem, FlowItemsPage, FlowStatus, ItemFailure, ItemState, NewItem
from pinlater_workers.errors import ItemFailed

ResultT = TypeVar("ResultT")

ITEMS_PER_CALL = 1_000
BYTES_PER_CALL = 4 * 1024 * 1024
PAGE = 500


def in_calls(items: Sequence[NewItem]) -> list[list[NewItem]]:
    """The items in order, in as few calls as the bounds of a call allow."""
    calls: list[list[NewItem]] = []
    size = 0
    for item in items:
        if not calls or len(calls[-1]) == ITEMS_PER_CALL or size + len(item.payload) > BYTES_PER_CALL:
            calls.append([])
            size = 0
        calls[-1].append(item)
        size += len(item.payload)
    return calls


@dataclass(frozen=True, slots=True)
class EndedItem(Generic[ResultT]):
    """An item that has ended. `payload` is a plain value of JSON. `failures`: those before a success too."""

    number: int
    stage: str
    payload: Any
    failures: Sequence[ItemFailure]
    key: str
    succeeded: bool
    _result: ResultT | None = field(repr=False)

    @property
    def result(self) -> ResultT:
        """What its job returned. ItemFailed: it failed, with the last reason."""
        if not self.succeeded:
            raise ItemFailed(str(self.number), self.failures[-1].reason if self.failures else "")
        return self._result  # type: ignore[return-value]


class EndedItems:
    """The items of some stages that have ended, each told once: which pages to ask for, and what is new in them.

    A look costs by what has ended behind the first item that has not. `read` makes a value of a result, by its stage.
    """

    def __init__(self, stages: Sequence[str], read: Callable[[str, bytes], Any]) -> None:
        self._stages = stages
        self._read = read
        self._reported: dict[str, set[int]] = {stage: set() for stage in stages}
        self._below = dict.fromkeys(stages, 0)
        """All items up to this number have been told."""
        self._ended = dict.fromkeys(stages, 0)
        self._page: FlowItemsPage | None = None

    def requests(self, status: FlowStatus) -> Iterator[dict[str, Any]]:
        """The arguments of get_flow_items, one page after the other; each answer goes to `take` first."""
        for each in status.stages:
            stage, ended = each.stage.name, each.succeeded + each.failed
            if stage not in self._reported or ended == self._ended[stage]:
                continue
            yield {"stage": stage, "state": ItemState.PENDING, "limit": 1, "include_body": False}
            pending = self._answer().items
            for state in (ItemState.SUCCEEDED, ItemState.FAILED):
                after = str(self._below[stage]) if self._below[stage] else CONTINUATION_START
                while after != CONTINUATION_END:
                    yield {"stage": stage, "state": state, "limit": PAGE, "continuation": after}
                    after = self._answer().continuation
            reported = self._reported[stage]
            self._below[stage] = pending[0].number - 1 if pending else max(reported, default=self._below[stage])
            self._reported[stage] = {number for number in reported if number > self._below[stage]}
            self._ended[stage] = ended  # at last: a look that is broken off is made anew

    def take(self, page: FlowItemsPage) -> Iterator[EndedItem[Any]]:
        """Those that were not told before."""
        self._page = page
        for item in page.items:
            reported = self._reported[item.stage]
            if item.state is not ItemState.PENDING and item.number not in reported:
                reported.add(item.number)
                yield self._ended_item(item)

    def _answer(self) -> FlowItemsPage:
        assert self._page is not None
        return self._page

    def _ended_item(self, item: FlowItem) -> EndedItem[Any]:
        result = None if item.result is None else self._read(item.stage, item.result)
        payload = msgspec.json.decode(item.payload)
        succeeded = item.state is ItemState.SUCCEEDED
        return EndedItem(item.number, item.stage, payload, item.failures, item.dedupe_key, succeeded, result)
