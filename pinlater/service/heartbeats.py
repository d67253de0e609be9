"""The heartbeats of claims, and their answers: whether the claim stands, and whether the job is to stop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from pinlater.backends.base import Shard
from pinlater.backends.extended import HeartbeatRequest
from pinlater.errors import PinLaterError
from pinlater.model import (
    MAX_LOG_LINE_BYTES,
    MAX_LOG_LINES,
    MAX_PROGRESS_CHARS,
    MAX_TIME_MS,
    Ack,
    ConnectionRef,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    LogLine,
    ReportingAck,
)
from pinlater.service.connection_claims import ConnectionClaims
from pinlater.service.overflow_calls import NamesOverflow
from pinlater.service.service_context import ServiceContext

_LOST = HeartbeatAnswer(HeartbeatOutcome.LOST)
_UNREACHABLE = HeartbeatAnswer(HeartbeatOutcome.UNREACHABLE)


class ClaimHeartbeats:
    """Heartbeats of claims, for one service."""

    def __init__(self, context: ServiceContext, connection_claims: ConnectionClaims) -> None:
        self._router = context.router
        self._clock = context.clock
        self._validator = context.validator
        self._parser = context.parser
        self._connection_claims = connection_claims

    async def beat(
        self, queue: str, heartbeats: Sequence[Heartbeat], connection: ConnectionRef | None
    ) -> list[HeartbeatAnswer]:
        """An answer for each, in order, in slices of `max_jobs`: one shard that fails keeps no other from answering.
        `connection`: the one by which they come.
        """
        self._parser.require_shards(each.descriptor for each in heartbeats)
        answers: list[HeartbeatAnswer] = []
        most = self._validator.max_jobs
        for start in range(0, len(heartbeats), most):
            answers += await self._beat(queue, heartbeats[start : start + most], connection)
        return answers

    async def report(self, queue: str, acks: Iterable[Ack]) -> None:
        """Tell the last progress and the log lines of jobs, before their acks are carried out. It never fails these:
        what a store does not take now is lost.
        """
        beats = []
        for ack in acks:
            if isinstance(ack, ReportingAck) and ack.claim_descriptor and (ack.progress or ack.log_lines):
                fraction, text = (None, None) if ack.progress is None else ack.progress[:2]
                beats.append(Heartbeat(ack.descriptor, ack.claim_descriptor, fraction, text, ack.log_lines))
        if beats:
            with suppress(PinLaterError, NamesOverflow):
                await self.beat(queue, beats, None)

    async def _beat(
        self, queue: str, heartbeats: Sequence[Heartbeat], connection: ConnectionRef | None
    ) -> list[HeartbeatAnswer]:
        from_ms = self._clock.now_ms() + self._clock.uncertainty_ms
        has_progress = any(each.fraction is not None or each.text is not None for each in heartbeats)
        keeps_progress = has_progress and self._router.keys.are_known()  # an older server would misread such a job
        answers = [_LOST] * len(heartbeats)
        places: dict[str, list[int]] = {}
        requests: dict[str, list[HeartbeatRequest]] = {}
        for place, each in enumerate(heartbeats):
            ref = self._parser.parse(each.descriptor)
            if ref is not None and ref.queue == queue:
                progress = _progress(each) if keeps_progress else (None, None)
                request = HeartbeatRequest(ref.priority, ref.id, each.claim_descriptor, *progress)
                if each.log_lines:
                    request.log_lines = kept_lines(each.log_lines, from_ms)
                places.setdefault(ref.shard, []).append(place)
                requests.setdefault(ref.shard, []).append(request)
        calls = [(shard_id, partial(_beat_on, queue, some, from_ms)) for shard_id, some in requests.items()]
        for shard_id, answered in zip(requests, await self._router.ask_by_shard(calls), strict=True):
            if isinstance(answered, PinLaterError):
                answered = [_UNREACHABLE] * len(requests[shard_id])
            elif answered is None:
                continue
            else:
                stands = [answer.outcome is not HeartbeatOutcome.LOST for answer in answered]
                self._connection_claims.on_heartbeats(connection, queue, shard_id, requests[shard_id], stands, from_ms)
            for place, answer in zip(places[shard_id], answered, strict=True):
                answers[place] = answer
        return answers


def kept_lines(lines: Sequence[LogLine], now_ms: int) -> list[LogLine]:
    """The last lines that a log holds, each cut; one without a time that can be has now."""
    return [
        LogLine(_cut(line.text), line.at_ms if 0 < line.at_ms <= MAX_TIME_MS else now_ms)
        for line in lines[-MAX_LOG_LINES:]
    ]


def _cut(text: str) -> str:
    raw = text.encode(errors="replace")
    return raw[:MAX_LOG_LINE_BYTES].decode(errors="ignore")


async def _beat_on(
    queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int, shard: Shard
) -> list[HeartbeatAnswer]:
    return await shard.heartbeat(queue, heartbeats, now_ms)


def _progress(heartbeat: Heartbeat) -> tuple[float | None, str | None]:
    fraction, text = heartbeat.fraction, heartbeat.text
    if fraction is not None:
        fraction = None if math.isnan(fraction) else min(max(fraction, 0.0), 1.0)
    return fraction, None if text is None else text[:MAX_PROGRESS_CHARS]
