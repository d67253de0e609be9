"""The reader of calls about jobs: enqueue, dequeue, ack, checkpoint, heartbeat, lookup, scan, cancel and reschedule.

An answer is read as the interface file has it; a field or a value that is not known says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from math import inf
from typing import Any

from pinlater.history.checker.call_parts import (
    acked_jobs,
    enum_member,
    field_of,
    follows,
    key_of,
    queues_of,
    structs,
    texts,
)
from pinlater.history.checker.change_observations import ObservedCancel, ObservedEnqueue, ObservedReschedule
from pinlater.history.checker.claim_observations import (
    ObservedAck,
    ObservedCheckpoint,
    ObservedClaim,
    ObservedHeartbeat,
)
from pinlater.history.checker.flow_ends import FlowEnds
from pinlater.history.checker.group_turns import GroupTurns
from pinlater.history.checker.hand_out_order import HandOutOrder
from pinlater.history.checker.history_judge import Handling, HistoryJudge, OpenCall, queue_in, shard_in
from pinlater.history.checker.job_machine import Change, ManyChanged, whole_ms
from pinlater.history.checker.job_names import JobNames
from pinlater.history.checker.key_rules import KeyRules
from pinlater.history.checker.look_observations import ObservedDryRun, ObservedLookup, seen_job
from pinlater.history.checker.observations import Observation
from pinlater.history.checker.queue_limit_rules import QueueLimitRules
from pinlater.history.checker.schedule_firings import ScheduleFirings
from pinlater.history.checker.shown_jobs import ShownJobs
from pinlater.history.checker.stored_once import StoredOnce
from pinlater.history.checker.verdict import Violation
from pinlater.model import (
    AckOutcome,
    CancelOutcome,
    EnqueueOutcome,
    HeartbeatOutcome,
    OnDuplicate,
    ReplaceRunning,
    RescheduleOutcome,
)

_ATTEMPTS = 2
"""Of an enqueue that names none."""

_KEYS = frozenset(("dedupeKey", "sendId", "serializeKey"))
_HAD_AN_EFFECT = (AckOutcome.SUCCEEDED, AckOutcome.RETRIED, AckOutcome.FAILED, AckOutcome.CANCELLED)
_CLAIMED = 0
"""The outcome of an assignItem that claimed its item."""


class JobCallReader:
    """Tells the judge what each of these calls says, and the parts that judge several jobs together."""

    def __init__(
        self,
        judge: HistoryJudge,
        keys: KeyRules,
        limits: QueueLimitRules,
        order: HandOutOrder,
        turns: GroupTurns,
        firings: ScheduleFirings,
        flows: FlowEnds,
    ) -> None:
        self._judge = judge
        self._keys = keys
        self._limits = limits
        self._order = order
        self._turns = turns
        self._firings = firings
        self._flows = flows
        self._names = JobNames(judge)
        self._once = StoredOnce(judge)
        self._shown = ShownJobs(judge)
        self._rescheduled_last: dict[str, OpenCall] = {}
        self._bare: dict[str, float] = {}
        """When the lookup ended that found the body of a job missing."""

        judge.handle(
            {
                "enqueueJobs": Handling(self._enqueued, self._not_enqueued, keys.sending),
                "dequeueJobs": Handling(self._dequeued, self._not_dequeued, self._dequeue_begins),
                "dequeueFromQueues": Handling(
                    self._dequeued_from_queues, self._not_dequeued_from_queues, self._dequeue_begins
                ),
                "ackJobs": Handling(self._acked, self._not_acked, self._acks_begin),
                "ackDequeuedJobs": Handling(self._acked, self._not_acked, self._acks_begin),
                "checkpointJobs": Handling(self._checkpointed, self._not_checkpointed, self._checkpoints_begin),
                "heartbeatJobs": Handling(self._heard, self._not_heard),
                "lookupJobs": Handling(self._found_jobs),
                "scanJobs": Handling(self._scanned),
                "searchJobs": Handling(self._searched),
                "cancelJobs": Handling(self._cancelled, self._not_cancelled, self._cancel_begins),
                "rescheduleJobs": Handling(self._rescheduled, self._not_rescheduled),
                "assignItem": Handling(self._assigned, flows.not_handed_out),
            }
        )

    # -- producers ---------------------------------------------------------------------------------------------------

    def _enqueued(self, call: OpenCall, answer: Any) -> None:
        request, jobs = call.request, structs(call.request.get("jobs"))
        descriptors = texts(field_of(answer, "jobDescriptors"))
        outcomes = field_of(answer, "outcomes") or [EnqueueOutcome.STORED] * len(jobs)
        queue = request.get("queueName", "")
        places: Counter[str] = Counter()
        self._once.enqueued(call, jobs, descriptors)
        self._limits.groups.enqueued(call, descriptors, list(outcomes))
        for job, descriptor, outcome in zip(jobs, descriptors, outcomes, strict=False):
            if not _KEYS.isdisjoint(job):
                send_id = job.get("sendId", "")
                self._keys.answered(call, queue, job, places[send_id], descriptor, outcome)
                places[send_id] += 1
            if outcome in (EnqueueOutcome.STORED, EnqueueOutcome.REPLACED):
                self._may_follow(call, queue, job)
            if outcome == EnqueueOutcome.STORED:
                self._stored(call, queue, job, descriptor)
            elif outcome == EnqueueOutcome.REPLACED:
                self._replaced(call, job, descriptor)

    def _stored(self, call: OpenCall, queue: str, job: Mapping[str, Any], descriptor: str) -> None:
        due_ms = job.get("runAfterTimestampMillis")
        begin_ms, mark = self._keys.first_sent_ms(call, queue, job), call.mark
        if begin_ms < call.begin_ms:
            # a call before this one may have stored it
            mark = copy(mark)
            mark.began = -inf
        observation = ObservedEnqueue(
            mark,
            begin_ms,
            call.end_ms,
            due_ms=due_ms if due_ms is not None and due_ms > 0 else None,
            attempts=max(1, job.get("numAttemptsAllowed", _ATTEMPTS)),
            over_ms=job.get("expiresAtMillis", inf),
            body=job.get("body", ""),
            may_stand=bool(job.get("sendId")) or call.is_resent,
        )
        history = self._judge.observe(descriptor, observation, is_enqueued=True)
        self._names.is_there(call, descriptor)
        if history is not None:
            history.key = key_of(queue, job)
            history.group = job.get("group", "")
            self._turns.stored(call, job, descriptor)
            self._order.stored(call, job, descriptor)

    def _replaced(self, call: OpenCall, job: Mapping[str, Any], descriptor: str) -> None:
        due_ms = job.get("runAfterTimestampMillis")
        observation = ObservedReschedule(
            call.mark,
            call.begin_ms,
            call.end_ms,
            outcome=RescheduleOutcome.RESCHEDULED,
            due_ms=due_ms if due_ms is not None and due_ms > 0 else None,
            body=job.get("body", ""),
            attempts=max(1, job.get("numAttemptsAllowed", _ATTEMPTS)),
            is_bounded=job.get("replaceWithinMillis") is not None,
            replaces=True,
            is_resent=call.is_resent,
        )
        if job.get("sendId"):
            # the answer may be that of an earlier call with this id: then this one has changed nothing
            self._may_replace(call, call.request.get("queueName", ""), job)
        else:
            self._judge.observe(descriptor, observation)

    def _not_enqueued(self, call: OpenCall) -> None:
        queue, jobs, error = call.request.get("queueName", ""), structs(call.request.get("jobs")), call.error
        stored: Sequence[str] = () if error is None else error.job_descriptors or ()
        self._once.enqueued(call, jobs, ())
        self._limits.groups.not_enqueued(call)
        if error is None or error.reason != "DUPLICATE":
            for job, descriptor in zip(jobs, stored, strict=False):
                if descriptor and not job.get("dedupeKey"):
                    self._stored(call, queue, job, descriptor)
        if call.end_ms == inf or stored:
            for job in jobs:
                self._may_replace(call, queue, job)
                self._may_follow(call, queue, job)

    def _may_follow(self, call: OpenCall, queue: str, job: Mapping[str, Any]) -> None:
        """The job of its key may run, and have this one as its successor, or be asked to stop."""
        if not follows(job):
            return
        key, begin_ms = key_of(queue, job), self._keys.first_sent_ms(call, queue, job)
        self._judge.queue(queue).many_changed(ManyChanged(Change.FOLLOW, begin_ms, call.end_ms, key=key))
        if job.get("replaceRunning") == ReplaceRunning.CANCEL:
            self._judge.queue(queue).many_changed(ManyChanged(Change.STOP, begin_ms, call.end_ms, key=key))

    def _may_replace(self, call: OpenCall, queue: str, job: Mapping[str, Any]) -> None:
        key = key_of(queue, job)
        if key is None or job.get("onDuplicate") != OnDuplicate.REPLACE:
            return
        due_ms = job.get("runAfterTimestampMillis")
        self._judge.queue(queue).many_changed(
            ManyChanged(
                Change.RESCHEDULE,
                call.begin_ms,
                call.end_ms,
                key=key,
                due_ms=due_ms if due_ms is not None and due_ms > 0 else -inf,
                is_bounded=job.get("replaceWithinMillis") is not None,
                body=job.get("body", ""),
                attempts=max(1, job.get("numAttemptsAllowed", _ATTEMPTS)),
            )
        )

    # -- workers -----------------------------------------------------------------------------------------------------

    def _dequeue_begins(self, call: OpenCall) -> None:
        request = call.request
        self._order.begins(call, queues_of(request))
        for riding in (request.get("jobAckRequest"), *structs(request.get("acks"))):
            if riding:
                self._limits.may_end(acked_jobs(riding))

    def _acks_begin(self, call: OpenCall) -> None:
        self._limits.may_end(acked_jobs(call.request))

    def _checkpoints_begin(self, call: OpenCall) -> None:
        self._limits.may_end(each.get("jobDescriptor", "") for each in structs(call.request.get("requests")))

    def _cancel_begins(self, call: OpenCall) -> None:
        self._limits.may_end(texts(call.request.get("jobDescriptors")))

    def _dequeued(self, call: OpenCall, answer: Any) -> None:
        request = call.request
        riding = request.get("jobAckRequest")
        if riding:
            self._acks(call, riding, field_of(answer, "ackOutcomes"), must_act=field_of(answer, "ackOutcomes") is None)
        limit = request.get("limit", 0) + request.get("prefetch", 0)
        self._handed_out(call, answer, limit)

    def _dequeued_from_queues(self, call: OpenCall, answer: Any) -> None:
        request = call.request
        outcomes = field_of(answer, "ackOutcomes")
        for place, riding in enumerate(structs(request.get("acks"))):
            of_it = outcomes[place] if isinstance(outcomes, list) and place < len(outcomes) else None
            self._acks(call, riding, of_it, must_act=outcomes is None)
        prefetch = sum(share.get("prefetch", 0) for share in structs(request.get("queues")))
        self._handed_out(call, answer, request.get("limit", 0) + prefetch)

    def _handed_out(self, call: OpenCall, answer: Any, limit: int) -> None:
        request, jobs = call.request, field_of(answer, "jobs") or {}
        if call.is_resent:
            self._flows.not_handed_out(call)
        metadata = field_of(answer, "jobMetadata") or {}
        if len(jobs) > limit:
            text = f"{len(jobs)} jobs were handed out where {limit} were asked for"
            self._broken(call, "limit", request.get("queueName", call.method), text)
        if request.get("dryRun"):
            self._order.ends(call, queues_of(request))
            for descriptor in jobs:
                self._judge.observe(descriptor, ObservedDryRun(call.mark, call.begin_ms, call.end_ms))
            return
        is_bound, is_confirmed = request.get("releaseOnDisconnect", False), request.get("confirmsReceipt", False)
        observe = self._judge.observe
        observations: dict[str, ObservedClaim] = {}
        by_queue: dict[str, dict[str, Mapping[str, Any]]] = {}
        for descriptor, body in jobs.items():
            of_job = metadata.get(descriptor) or {}
            observation = ObservedClaim(
                call.mark,
                call.begin_ms,
                call.end_ms,
                claim=of_job.get("claimDescriptor", ""),
                expires_ms=of_job.get("claimExpiresAtMillis"),
                attempts=of_job.get("attemptsRemaining"),
                allowed=of_job.get("attemptsAllowed"),
                due_ms=of_job.get("runAfterMillis"),
                body=body,
                is_bound=is_bound,
                is_confirmed=is_confirmed,
            )
            observe(descriptor, observation)
            observations[descriptor] = observation
            self._flows.handed_out(call, descriptor, observation)
            self._names.is_there(call, descriptor)
            self._once.handed_out(call, descriptor, body)
            self._keys.handed_out(call, descriptor)
            by_queue.setdefault(queue_in(descriptor), {})[descriptor] = of_job
        self._turns.handed_out(call, observations)
        for queue, of_jobs in by_queue.items():
            self._limits.handed_out(call, queue, of_jobs)
        if self._order.ends(call, queues_of(request)):
            for queue, of_jobs in by_queue.items():
                self._order.handed_out(call, queue, of_jobs)

    def _not_dequeued(self, call: OpenCall) -> None:
        self._flows.not_handed_out(call)
        self._order.ends(call, queues_of(call.request))
        riding = call.request.get("jobAckRequest")
        if riding:
            self._maybe_acks(call, riding)

    def _not_dequeued_from_queues(self, call: OpenCall) -> None:
        self._flows.not_handed_out(call)
        self._order.ends(call, queues_of(call.request))
        for riding in structs(call.request.get("acks")):
            self._maybe_acks(call, riding)

    def _assigned(self, call: OpenCall, answer: Any) -> None:
        if call.is_resent:
            self._flows.not_handed_out(call)
        if field_of(answer, "outcome") == _CLAIMED:
            observation = ObservedClaim(
                call.mark,
                call.begin_ms,
                call.end_ms,
                claim=answer.get("claimDescriptor", ""),
                expires_ms=answer.get("expiresAtMillis"),
            )
            descriptor = answer.get("jobDescriptor", "")
            self._judge.observe(descriptor, observation)
            self._flows.handed_out(call, descriptor, observation)

    def _acked(self, call: OpenCall, answer: Any) -> None:
        self._acks(call, call.request, field_of(answer, "outcomes"))

    def _not_acked(self, call: OpenCall) -> None:
        self._maybe_acks(call, call.request)

    def _acks(self, call: OpenCall, request: Mapping[str, Any], outcomes: Any, *, must_act: bool = False) -> None:
        """`must_act`: the answer lists no outcomes, which says that all had an effect."""
        succeeded, failed = structs(request.get("jobsSucceeded")), structs(request.get("jobsFailed"))
        listed: Sequence[Any] = outcomes if isinstance(outcomes, list) else ()
        for place, ack in enumerate((*succeeded, *failed)):
            outcome = enum_member(AckOutcome, listed[place]) if place < len(listed) else None
            self._ack(call, ack, place < len(succeeded), outcome, must_act=must_act and not call.is_resent)

    def _maybe_acks(self, call: OpenCall, request: Mapping[str, Any]) -> None:
        succeeded, failed = structs(request.get("jobsSucceeded")), structs(request.get("jobsFailed"))
        for place, ack in enumerate((*succeeded, *failed)):
            self._ack(call, ack, place < len(succeeded), None, is_optional=True)

    def _ack(
        self,
        call: OpenCall,
        ack: Mapping[str, Any],
        succeeded: bool,
        outcome: AckOutcome | None,
        *,
        must_act: bool = False,
        is_optional: bool = False,
    ) -> None:
        observation = ObservedAck(
            call.mark,
            call.begin_ms,
            call.end_ms,
            claim=ack.get("claimDescriptor", ""),
            succeeded=succeeded,
            outcome=outcome,
            delay_ms=ack.get("retryDelayMillis", 0),
            is_permanent=ack.get("permanent", False),
            result=ack.get("result"),
            is_resent=call.is_resent,
            must_act=must_act,
            is_optional=is_optional,
        )
        descriptor = ack.get("jobDescriptor", "")
        self._judge.observe(descriptor, observation)
        self._turns.acked(call, descriptor, observation)
        if outcome in _HAD_AN_EFFECT:
            self._names.is_there(call, descriptor)
        if outcome is AckOutcome.SUCCEEDED and succeeded:
            self._flows.succeeded(call, descriptor, observation.claim)

    def _checkpointed(self, call: OpenCall, answer: Any) -> None:
        self._checkpoints(call)

    def _not_checkpointed(self, call: OpenCall) -> None:
        self._checkpoints(call, is_optional=True)

    def _checkpoints(self, call: OpenCall, *, is_optional: bool = False) -> None:
        for each in structs(call.request.get("requests")):
            body = each.get("newBodyBytes")
            body = each.get("newBody") if body is None else body
            self._once.given(body)
            if each.get("moveToPending"):
                self._flows.given_back(each.get("jobDescriptor", ""), each.get("claimDescriptor", ""))
            observation = ObservedCheckpoint(
                call.mark,
                call.begin_ms,
                call.end_ms,
                claim=each.get("claimDescriptor", ""),
                due_ms=each.get("runAfterTimestampMillis"),
                body=body,
                attempts=each.get("numOfAttemptsAllowed"),
                gives_back=each.get("moveToPending", False),
                is_resent=call.is_resent,
                is_optional=is_optional,
            )
            self._judge.observe(each.get("jobDescriptor", ""), observation)

    def _heard(self, call: OpenCall, answer: Any) -> None:
        outcomes = field_of(answer, "outcomes") or ()
        for each, number in zip(structs(call.request.get("heartbeats")), outcomes, strict=False):
            outcome = enum_member(HeartbeatOutcome, number)
            if outcome is not None:
                self._heartbeat(call, each, outcome)

    def _not_heard(self, call: OpenCall) -> None:
        for each in structs(call.request.get("heartbeats")):
            self._heartbeat(call, each, HeartbeatOutcome.UNREACHABLE, is_optional=True)

    def _heartbeat(
        self, call: OpenCall, each: Mapping[str, Any], outcome: HeartbeatOutcome, *, is_optional: bool = False
    ) -> None:
        observation = ObservedHeartbeat(
            call.mark,
            call.begin_ms,
            call.end_ms,
            claim=each.get("claimDescriptor", ""),
            outcome=outcome,
            is_optional=is_optional,
        )
        descriptor = each.get("jobDescriptor", "")
        self._judge.observe(descriptor, observation)
        if outcome in (HeartbeatOutcome.OK, HeartbeatOutcome.CANCEL):
            self._names.is_there(call, descriptor)

    # -- whoever asks ------------------------------------------------------------------------------------------------

    def _found_jobs(self, call: OpenCall, answer: Any) -> None:
        request = call.request
        found = answer if isinstance(answer, dict) else {}
        with_result = request.get("includeResult", False)
        named_jobs = texts(request.get("jobDescriptors"))
        for descriptor in named_jobs:
            if descriptor not in found:
                self._observe(call, descriptor, ObservedLookup(call.mark, call.begin_ms, call.end_ms, seen=None))
        keys = {key_of(request.get("queueName", ""), named) for named in structs(request.get("keys"))}
        for descriptor, info in found.items():
            self._see(call, descriptor, info, with_result=with_result)
            if request.get("includeBody") and not with_result:
                self._look_for_body(call, descriptor, info)
            key = key_of(queue_in(descriptor), info) if keys and descriptor not in named_jobs else None
            if key in keys and key is not None:
                self._keys.found(call, key, descriptor)

    def _look_for_body(self, call: OpenCall, descriptor: str, info: Mapping[str, Any]) -> None:
        """One that is missing twice is missing; once, the job may have been removed at that moment."""
        if "body" in info or info.get("bodyLeftOut") or self._judge.has_lost(shard_in(descriptor)):
            self._bare.pop(descriptor, None)
        elif self._bare.setdefault(descriptor, call.end_ms) < call.begin_ms:
            self._broken(call, "body", descriptor, "it has no body")

    def _scanned(self, call: OpenCall, answer: Any) -> None:
        self._shown.scanned(call, answer)
        self._see_all(call, structs(field_of(answer, "scannedJobs")))

    def _searched(self, call: OpenCall, answer: Any) -> None:
        self._shown.searched(call, answer)
        self._see_all(call, structs(field_of(answer, "jobs")))

    def _see_all(self, call: OpenCall, infos: Iterable[Mapping[str, Any]]) -> None:
        for info in infos:
            self._see(call, info.get("jobDescriptor", ""), info)

    def _see(self, call: OpenCall, descriptor: str, info: Mapping[str, Any], *, with_result: bool = False) -> None:
        seen = seen_job(info)
        if seen is not None:
            lookup = ObservedLookup(call.mark, call.begin_ms, call.end_ms, seen=seen, with_result=with_result)
            self._observe(call, descriptor, lookup)
            self._names.is_there(call, descriptor)
            if info.get("dedupeKey"):
                self._firings.seen(call, descriptor, info)

    def _cancelled(self, call: OpenCall, answer: Any) -> None:
        request = call.request
        stops = bool(request.get("mode"))
        outcomes = field_of(answer, "outcomes") or {}
        for descriptor, number in outcomes.items():
            outcome = enum_member(CancelOutcome, number)
            if outcome is not None:
                cancel = ObservedCancel(
                    call.mark,
                    call.begin_ms,
                    call.end_ms,
                    outcome=outcome,
                    stops=stops,
                    is_resent=call.is_resent,
                )
                self._observe(call, descriptor, cancel)
                if outcome is not CancelOutcome.NOT_FOUND:
                    self._names.is_there(call, descriptor)
        self._cancelled_by_key(call, stops)

    def _not_cancelled(self, call: OpenCall) -> None:
        stops = bool(call.request.get("mode"))
        for descriptor in texts(call.request.get("jobDescriptors")):
            cancel = ObservedCancel(
                call.mark,
                call.begin_ms,
                call.end_ms,
                outcome=CancelOutcome.NOT_FOUND,
                stops=stops,
                is_optional=True,
            )
            self._observe(call, descriptor, cancel)
        self._cancelled_by_key(call, stops)

    def _cancelled_by_key(self, call: OpenCall, stops: bool) -> None:
        queue = call.request.get("queueName", "")
        for named in structs(call.request.get("keys")):
            for change in (Change.CANCEL, Change.STOP) if stops else (Change.CANCEL,):
                many = ManyChanged(change, call.begin_ms, call.end_ms, key=key_of(queue, named))
                self._judge.queue(queue).many_changed(many)

    def _rescheduled(self, call: OpenCall, answer: Any) -> None:
        outcomes = field_of(answer, "outcomes") or ()
        for change, number in zip(structs(call.request.get("jobs")), outcomes, strict=False):
            outcome = enum_member(RescheduleOutcome, number)
            if outcome is not None:
                self._reschedule(call, change, outcome)

    def _not_rescheduled(self, call: OpenCall) -> None:
        for change in structs(call.request.get("jobs")):
            self._reschedule(call, change, RescheduleOutcome.NOT_FOUND, is_optional=True)

    def _reschedule(
        self, call: OpenCall, change: Mapping[str, Any], outcome: RescheduleOutcome, *, is_optional: bool = False
    ) -> None:
        due_ms, body = change.get("runAfterTimestampMillis"), change.get("body")
        self._once.given(body)
        attempts = change.get("numAttemptsAllowed")
        descriptor = change.get("jobDescriptor")
        if descriptor:
            observation = ObservedReschedule(
                call.mark,
                call.begin_ms,
                call.end_ms,
                outcome=outcome,
                due_ms=due_ms,
                body=body,
                attempts=attempts,
                has_condition=change.get("onlyIfUpdatedAtMillis") is not None,
                is_resent=call.is_resent,
                is_optional=is_optional,
            )
            self._observe(call, descriptor, observation)
            if outcome is not RescheduleOutcome.NOT_FOUND:
                self._names.is_there(call, descriptor)
            if outcome is RescheduleOutcome.RESCHEDULED and not is_optional:
                self._judge_condition(call, descriptor, change.get("onlyIfUpdatedAtMillis"))
        elif change.get("key"):
            queue = call.request.get("queueName", "")
            self._judge.queue(queue).many_changed(
                ManyChanged(
                    Change.RESCHEDULE,
                    call.begin_ms,
                    call.end_ms,
                    key=key_of(queue, change["key"]),
                    due_ms=due_ms,
                    body=body,
                    attempts=attempts,
                )
            )

    def _judge_condition(self, call: OpenCall, descriptor: str, updated_ms: Any) -> None:
        """It was rescheduled: where a time of its last update was named, nobody had changed it since."""
        last = self._rescheduled_last.get(descriptor)
        self._rescheduled_last[descriptor] = call
        if last is None or not isinstance(updated_ms, int):
            return
        is_before = last.mark.ended < call.mark.began and last.end_ms <= call.begin_ms
        if is_before and whole_ms(last.begin_ms) > updated_ms + self._judge.tolerance_ms:
            text = f"it was rescheduled as if nobody had changed it since {updated_ms}"
            changed = self._judge.line(last.begin_ms, last.end_ms, last.mark, "rescheduled it: RESCHEDULED")
            line = self._judge.line(call.begin_ms, call.end_ms, call.mark, text)
            numbers = (last.number, call.number)
            self._judge.violated(Violation("state", descriptor, text, call.end_ms, (changed, line), numbers))

    def _observe(self, call: OpenCall, descriptor: str, observation: Observation) -> None:
        """Callers may name what never was a job of this queue: the answer is then that it is not there."""
        self._judge.observe(descriptor, observation)

    def _broken(self, call: OpenCall, rule: str, subject: str, text: str) -> None:
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, text)
        self._judge.violated(Violation(rule, subject, text, call.end_ms, (line,), (call.number,)))
