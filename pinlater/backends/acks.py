"""Acks in the order given, kept by what they have in common: most acks of a call differ in the job alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

from pinlater.backends.base import AckRequest


class AckKind(NamedTuple):
    """All of an ack but its job's id."""

    priority: int
    succeeded: bool
    append_status: str
    retry_delay_ms: int
    claim_descriptor: str
    permanent: bool
    result: bytes | None = None


class Acks(Sequence[AckRequest]):
    """A sequence of acks, which are made when they are looked at one by one; `runs` has kinds and the ids of each."""

    def __init__(self) -> None:
        self.runs: list[tuple[AckKind, list[int]]] = []

    @classmethod
    def of(cls, acks: Sequence[AckRequest]) -> Acks:
        if isinstance(acks, Acks):
            return acks
        made = cls()
        for ack in acks:
            kind = AckKind(
                ack.priority,
                ack.succeeded,
                ack.append_status,
                ack.retry_delay_ms,
                ack.claim_descriptor,
                ack.permanent,
                ack.result,
            )
            made.run(kind).append(ack.id)
        return made

    @classmethod
    def joined(cls, several: Iterable[Sequence[AckRequest]]) -> Acks:
        """One after the other."""
        made = cls()
        for acks in several:
            for kind, ids in cls.of(acks).runs:
                made.run(kind).extend(ids)
        return made

    def run(self, kind: AckKind) -> list[int]:
        """The list for the ids of the next acks, all of this kind. Nothing is added once the sequence was read."""
        if not self.runs or self.runs[-1][0] != kind:
            self.runs.append((kind, []))
        return self.runs[-1][1]

    def retry_at_once_from(self, before_ms: int) -> None:
        """What is to be retried without a delay becomes eligible so long before the now of the call."""
        self.runs = [
            (kind if kind.succeeded or kind.retry_delay_ms else kind._replace(retry_delay_ms=-before_ms), ids)
            for kind, ids in self.runs
        ]

    @property
    def has_failures(self) -> bool:
        return any(not kind.succeeded for kind, _ in self.runs)

    @property
    def ids(self) -> list[int]:
        return self.runs[0][1] if len(self.runs) == 1 else [job_id for _, ids in self.runs for job_id in ids]

    @cached_property
    def _each(self) -> list[AckRequest]:
        return [AckRequest(kind.priority, job_id, *kind[1:]) for kind, ids in self.runs for job_id in ids]

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __len__(self) -> int:
        amount = 0
        for _, ids in self.runs:
            amount += len(ids)
        return amount

    @overload
    def __getitem__(self, index: int) -> AckRequest: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AckRequest]: ...
    def __getitem__(self, index: int | slice) -> AckRequest | Sequence[AckRequest]:
        return self._each[index]

    def __iter__(self) -> Iterator[AckRequest]:
        return iter(self._each)
