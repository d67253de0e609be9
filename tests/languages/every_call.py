"""One worker's life through all calls, for any Python client whose classes come from the interface file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

LATER_MS = 4_000_000_000_000
SOURCE = "languages"


class EveryCall:
    """The calls in order. `client` has a method per call, `types` a class per struct; the server has one shard."""

    def __init__(self, client: Any, types: Any, queue: str, password: str) -> None:
        self.client = client
        self.types = types
        self.queue = queue
        self.password = password
        self.context = types.RequestContext(source=SOURCE)

    def run(self) -> None:
        """createQueue, getQueueNames, then all that has a queue, then deleteQueue."""
        self.client.createQueue(self.context, self.queue)
        self.client.createQueue(self.context, self.queue)
        assert self.queue in self.client.getQueueNames(self.context)
        now, failing, later = self._enqueue()
        self._count()
        claims = self._dequeue(now, failing)
        self._checkpoint(now, claims)
        self._ack(now, failing, claims)
        self._scan(now)
        self._retry(failing)
        self._dequeue_from_queues(failing)
        self._cancel(now, later)
        self._name()
        self._plan()
        self._flow()
        self._identify()
        self._steer(now)
        self._say_who_works()
        self._delete()

    def refused(self, call: Callable[..., object], *arguments: object) -> str:
        """The name of the error code that a call is refused with."""
        with pytest.raises(self.types.PinLaterException) as refusal:
            call(self.context, *arguments)
        assert refusal.value.message
        codes = vars(self.types.ErrorCode).items()
        return next(name for name, value in codes if value == refusal.value.errorCode)

    def refuses_password(self, call: Callable[..., object], *arguments: object) -> bool:
        """Whether a call with a wrong password is; after others' at this address, it is not even checked."""
        with pytest.raises(self.types.PinLaterException) as refusal:
            call(self.context, *arguments)
        return refusal.value.errorCode == self.types.ErrorCode.PASSWORD_INVALID or refusal.value.reason == "OVERLOADED"

    def count(self, state: int, **more: object) -> int:
        request = self.types.PinLaterGetJobCountRequest(queueName=self.queue, jobState=state, **more)
        answer = self.client.getJobCount(self.context, request)
        assert isinstance(answer, int)
        return answer

    def dequeue(self, **more: object) -> Any:
        request = self.types.PinLaterDequeueRequest(queueName=self.queue, limit=10, **more)
        return self.client.dequeueJobs(self.context, request)

    def _enqueue(self) -> tuple[str, str, str]:
        job, request = self.types.PinLaterJob, self.types.PinLaterEnqueueRequest
        jobs = [
            job(body=b"now", priority=1, customStatus="born"),
            job(body=b"failing \x00\xff", priority=2),
            job(body=b"later", priority=3, runAfterTimestampMillis=LATER_MS, numAttemptsAllowed=7),
        ]
        answer = self.client.enqueueJobs(self.context, request(queueName=self.queue, jobs=jobs))
        descriptors = answer.jobDescriptors
        prefixes = [descriptor.rpartition(":")[0].rpartition(":")[2] for descriptor in descriptors]
        assert prefixes == ["p1", "p2", "p3"]
        assert self.refused(self.client.enqueueJobs, request(queueName="nowhere", jobs=jobs)) == "QUEUE_NOT_FOUND"
        bad = request(queueName=self.queue, jobs=[job(body=b"", priority=99)])
        assert self.refused(self.client.enqueueJobs, bad) == "PRIORITY_NOT_SUPPORTED"
        now, failing, later = descriptors
        return now, failing, later

    def _count(self) -> None:
        pending = self.types.PinLaterJobState.PENDING
        assert self.count(pending) == 2
        assert self.count(pending, priority=1) == 1
        assert self.count(pending, countFutureJobs=True) == 1
        assert self.count(pending, bodyRegexToMatch="^fail") == 1

    def _dequeue(self, now: str, failing: str) -> Any:
        shown = self.dequeue(dryRun=True)
        assert shown.jobs == {now: b"now", failing: b"failing \x00\xff"}
        answer = self.dequeue(waitMillis=1000, claimTimeoutMillis=60_000)
        assert answer.jobs == shown.jobs
        assert (answer.jobMetadata[now].attemptsAllowed, answer.jobMetadata[now].attemptsRemaining) == (2, 2)
        assert answer.jobMetadata[failing].priority == 2
        assert answer.jobMetadata[now].claimDescriptor.endswith(f":{SOURCE}")
        assert answer.jobMetadata[now].claimExpiresAtMillis > answer.jobMetadata[now].enqueuedAtMillis
        return {name: metadata.claimDescriptor for name, metadata in answer.jobMetadata.items()}

    def _checkpoint(self, now: str, claims: Any) -> None:
        one = self.types.PinLaterCheckpointJobRequest(
            jobDescriptor=now, newBodyBytes=b"half \xff", prependCustomStatus="half done; ", claimDescriptor=claims[now]
        )
        self.client.checkpointJobs(
            self.context, self.types.PinLaterCheckpointJobsRequest(queueName=self.queue, requests=[one])
        )
        info = self.lookup(now)
        assert (info.body, info.customStatus) == (b"half \xff", "half done; born")
        assert (info.jobState, info.claimDescriptor) == (self.types.PinLaterJobState.IN_PROGRESS, claims[now])

    def lookup(self, descriptor: str) -> Any:
        request = self.types.PinLaterLookupJobRequest(jobDescriptors=[descriptor, "no descriptor"], includeBody=True)
        found = self.client.lookupJobs(self.context, request)
        assert list(found) == [descriptor]
        return found[descriptor]

    def _ack(self, now: str, failing: str, claims: Any) -> None:
        info, states = self.types.PinLaterJobAckInfo, self.types.PinLaterJobState
        stale = info(jobDescriptor=now, claimDescriptor="somebody:else:1:2:3")
        self.client.ackDequeuedJobs(
            self.context, self.types.PinLaterJobAckRequest(queueName=self.queue, jobsSucceeded=[stale])
        )
        assert self.lookup(now).jobState == states.IN_PROGRESS
        assert self._ack_jobs(stale, stale) == [self.types.AckOutcome.IGNORED] * 2
        acks = self.types.PinLaterJobAckRequest(
            queueName=self.queue,
            jobsSucceeded=[info(jobDescriptor=now, appendCustomStatus="; done")],
            jobsFailed=[info(jobDescriptor=failing, claimDescriptor=claims[failing], permanent=True)],
        )
        answer = self.dequeue(jobAckRequest=acks)
        assert (answer.jobs, answer.ackOutcomes) == ({}, None)
        assert self.dequeue(jobAckRequest=acks).ackOutcomes == [self.types.AckOutcome.IGNORED] * 2
        assert (self.lookup(now).jobState, self.lookup(now).customStatus) == (states.SUCCEEDED, "half done; born; done")
        assert (self.lookup(failing).jobState, self.lookup(failing).attemptsRemaining) == (states.FAILED, 0)

    def _ack_jobs(self, succeeded: Any, failed: Any) -> list[int]:
        request = self.types.PinLaterJobAckRequest(queueName=self.queue, jobsSucceeded=[succeeded], jobsFailed=[failed])
        return list(self.client.ackJobs(self.context, request).outcomes)

    def _scan(self, now: str) -> None:
        request = self.types.PinLaterScanJobsRequest(
            queueName=self.queue, jobState=self.types.PinLaterJobState.SUCCEEDED, bodyRegexToMatch="half"
        )
        page = self.client.scanJobs(self.context, request)
        assert [job.jobDescriptor for job in page.scannedJobs] == [now]
        assert page.continuation == "-1"
        request.continuation = "gibberish"
        assert self.refused(self.client.scanJobs, request) == "CONTINUATION_INVALID"

    def _retry(self, failing: str) -> None:
        request = self.types.PinLaterRetryFailedJobsRequest(queueName=self.queue, priority=2, attemptsToAllow=5)
        assert self.client.retryFailedJobs(self.context, request) == 1
        again = self.dequeue()
        assert list(again.jobs) == [failing]
        assert again.jobMetadata[failing].attemptsRemaining == 5

    def _dequeue_from_queues(self, failing: str) -> None:
        """A failure that is retried rides on the call, which brings that job again."""
        types = self.types
        failed = types.PinLaterJobAckRequest(
            queueName=self.queue, jobsFailed=[types.PinLaterJobAckInfo(jobDescriptor=failing)]
        )
        shares = [types.QueueShare(queueName=self.queue, weight=3), types.QueueShare(queueName="nowhere")]
        request = types.DequeueFromQueuesRequest(queues=shares, limit=2, acks=[failed], waitMillis=1000)
        answer = self.client.dequeueFromQueues(self.context, request)
        assert list(answer.jobs) == [failing]
        assert answer.jobMetadata[failing].attemptsRemaining == 4
        (error,) = answer.queueErrors
        assert (error.queueName, error.reason, error.retryable) == ("nowhere", "QUEUE_NOT_FOUND", False)
        assert answer.ackOutcomes is None
        again = types.DequeueFromQueuesRequest(queues=shares[:1], limit=1, acks=[failed, failed])
        ignored, retried = self.types.AckOutcome.IGNORED, self.types.AckOutcome.RETRIED
        answer = self.client.dequeueFromQueues(self.context, again)
        assert ([list(each) for each in answer.ackOutcomes], list(answer.jobs)) == ([[retried], [ignored]], [failing])

    def _cancel(self, now: str, later: str) -> None:
        asked = self.types.ExplainJobsRequest(jobDescriptors=[later, now])
        (hold,) = self.client.explainJobs(self.context, asked).holds
        assert (hold.jobDescriptor, hold.reason) == (later, self.types.HoldReason.NOT_DUE)
        assert (hold.untilMillis, hold.behind) == (LATER_MS, None)
        request = self.types.CancelJobsRequest(queueName=self.queue, jobDescriptors=[later, now])
        outcomes = self.client.cancelJobs(self.context, request).outcomes
        assert outcomes == {later: self.types.CancelOutcome.CANCELLED, now: self.types.CancelOutcome.ENDED}
        assert self.count(self.types.PinLaterJobState.PENDING, countFutureJobs=True) == 0

    def _name(self) -> None:
        """A job that has a name, an order and a result, and one that is to stop; both are gone at the end."""
        types, client, context = self.types, self.client, self.context
        keys = {"dedupeKey": "näme", "serializeKey": "order"}
        job = types.PinLaterJob(body=b"1", sendId="random", expiresAtMillis=LATER_MS, **keys)
        request = types.PinLaterEnqueueRequest(queueName=self.queue, jobs=[job])
        first = client.enqueueJobs(context, request)
        (named,) = first.jobDescriptors
        assert first.outcomes is None
        assert client.enqueueJobs(context, request) == first
        job.sendId, job.onDuplicate = None, types.OnDuplicate.KEEP
        assert client.enqueueJobs(context, request).outcomes == [types.EnqueueOutcome.KEPT]
        job.onDuplicate = types.OnDuplicate.REJECT
        assert self.refused(client.enqueueJobs, request) == "ENQUEUE_REJECTED"
        key = types.KeyRef(**keys)
        change = types.RescheduleJob(key=key, body=b"2", numAttemptsAllowed=3)
        asked = types.RescheduleJobsRequest(queueName=self.queue, jobs=[change])
        assert client.rescheduleJobs(context, asked).outcomes == [types.RescheduleOutcome.RESCHEDULED]
        answer = self.dequeue()
        assert answer.jobs == {named: b"2"}
        claim = answer.jobMetadata[named].claimDescriptor
        job.onDuplicate, job.replaceRunning = types.OnDuplicate.REPLACE, types.ReplaceRunning.ENQUEUE
        job.replaceWithinMillis = 60_000
        (newer,) = client.enqueueJobs(context, request).jobDescriptors
        found = client.lookupJobs(context, types.PinLaterLookupJobRequest(jobDescriptors=[named]))
        assert found[named].successor == newer != named
        stop = types.CancelJobsRequest(
            queueName=self.queue, jobDescriptors=[], keys=[key], mode=types.CancelMode.ALSO_RUNNING
        )
        assert client.cancelJobs(context, stop).keyOutcomes == [types.CancelOutcome.REQUESTED]
        beat = types.JobHeartbeat(jobDescriptor=named, claimDescriptor=claim, fraction=0.25, text="a quarter")
        beats = types.HeartbeatJobsRequest(queueName=self.queue, heartbeats=[beat])
        heard = client.heartbeatJobs(context, beats)
        assert (heard.outcomes, heard.cancelledBy) == ([types.HeartbeatOutcome.CANCEL], {named: SOURCE})
        done = types.PinLaterJobAckInfo(jobDescriptor=named, claimDescriptor=claim, result=b"\x00\xff")
        client.ackJobs(context, types.PinLaterJobAckRequest(queueName=self.queue, jobsSucceeded=[done]))
        wanted = types.PinLaterLookupJobRequest(
            jobDescriptors=[], keys=[key], queueName=self.queue, waitMillis=1000, includeResult=True
        )
        info = client.lookupJobs(context, wanted)[named]
        assert (info.jobState, info.result, info.dedupeKey) == (
            types.PinLaterJobState.SUCCEEDED,
            b"\x00\xff",
            "näme",
        )
        assert (info.progress.fraction, info.progress.text) == (0.25, "a quarter")
        gone = types.ChangeJobsRequest(
            queueName=self.queue, action=types.JobAction.DELETE, jobState=info.jobState, bodyRegexToMatch="^2$"
        )
        assert client.changeJobs(context, gone).changed == 1

    def _plan(self) -> None:
        types, client, context = self.types, self.client, self.context
        name = f"{self.queue}.nightly"
        schedule = types.Schedule(name=name, queueName=self.queue, body=b"nightly", everyMillis=3_600_000)
        wrong = types.UpdateScheduleRequest(schedule=schedule, password="wrong")
        assert self.refuses_password(client.updateSchedule, wrong)
        asked = types.UpdateScheduleRequest(schedule=schedule, password=self.password)
        assert client.updateSchedule(context, asked).view.nextMillis
        wanted = types.GetSchedulesRequest(names=[name], includeBody=True)
        (found,) = client.getSchedules(context, wanted).schedules
        assert (found.schedule.body, found.updatedBy) == (b"nightly", SOURCE)
        client.deleteSchedule(context, types.DeleteScheduleRequest(name=name, password=self.password))
        assert client.getSchedules(context, wanted).schedules == []

    def _flow(self) -> None:
        types, client, context = self.types, self.client, self.context
        steps = f"{self.queue}_steps"
        stage = types.FlowStage(name="add", queueName=steps)
        asked = types.CreateFlowRequest(name="sums", stages=[stage], metadata={"month": "11"})
        made = client.createFlow(context, asked)
        added = types.AddFlowItemsRequest(
            flowId=made.id, stage="add", items=[types.NewFlowItem(payload=b"[1, 2]")], seal=False
        )
        (number,) = client.addFlowItems(context, added).numbers
        taken = client.assignItem(context, types.AssignItemRequest(number=number, claimTimeoutMillis=60_000))
        assert (made.isNew, taken.outcome, taken.payload) == (True, types.AssignOutcome.CLAIMED, b"[1, 2]")
        result = types.PinLaterJobAckInfo(
            jobDescriptor=taken.jobDescriptor, claimDescriptor=taken.claimDescriptor, result=b"3"
        )
        done = types.PinLaterJobAckRequest(queueName=steps, jobsSucceeded=[result], jobsFailed=[])
        client.ackJobs(context, done)
        client.sealStage(context, types.SealStageRequest(flowId=made.id))
        status = client.getFlow(context, types.GetFlowRequest(flowId=made.id, waitMillis=5_000))
        assert (status.state, status.metadata, status.stages[0].succeeded) == (
            types.FlowState.COMPLETE,
            {"month": "11"},
            1,
        )
        wanted = types.GetFlowItemsRequest(flowId=made.id, stage="add", numbers=[number])
        assert [each.result for each in client.getFlowItems(context, wanted).items] == [b"3"]
        named = types.FlowIdRequest(flowId=made.id)
        assert client.resumeFlow(context, types.ResumeFlowRequest(flowId=made.id)).id == made.id
        assert client.cancelFlow(context, named).state == types.FlowState.COMPLETE
        again = types.RetryFlowItemsRequest(flowId=made.id, numbers=[number], andFollows=True)
        came = client.retryFlowItems(context, again)
        assert (came.retried, came.removed, came.flow.ends, came.flow.state) == (1, 0, 1, types.FlowState.RUNNING)
        client.deleteFlow(context, named)
        assert not client.getFlows(context, types.GetFlowsRequest(dedupeKey=made.id)).flows
        assert self.refused(client.getFlow, types.GetFlowRequest(flowId=made.id)) == "UNKNOWN"

    def _identify(self) -> None:
        types, client, context = self.types, self.client, self.context
        token = f"plt_{self.queue}"
        hashed = hashlib.sha256(token.encode()).hexdigest()
        asked = {"name": self.queue, "tokenHash": hashed, "roles": ["viewer"]}
        assert self.refuses_password(client.updateToken, types.UpdateTokenRequest(password="wrong", **asked))
        assert client.updateToken(context, types.UpdateTokenRequest(password=self.password, **asked)).missedShards == []
        assert [each.roles for each in client.getTokens(context).tokens if each.name == self.queue] == [["viewer"]]
        assert client.getAccess(context).identity == "anonymous"
        assert client.getUsage(context).identities == []
        named = types.RequestContext(source=SOURCE, token=token)
        assert client.getAccess(named).identity == f"token:{self.queue}"
        client.deleteToken(context, types.DeleteTokenRequest(name=self.queue, password=self.password))

    def _steer(self, now: str) -> None:
        types, client, context = self.types, self.client, self.context
        pause = {"queueName": self.queue, "settings": {"paused": "true", "paused_why": "späne"}}
        wrong = types.UpdateQueueRequest(password="wrong", **pause)
        assert self.refuses_password(client.updateQueue, wrong)
        assert client.updateQueue(context, types.UpdateQueueRequest(password=self.password, **pause)).missedShards == []
        again = types.PinLaterDequeueRequest(queueName=self.queue, limit=1)
        assert self.refused(client.dequeueJobs, again) == "DEQUEUE_RATE_LIMITED"
        (view,) = client.getQueues(context, types.GetQueuesRequest(queueNames=[self.queue])).queues
        assert (view.settings["paused_why"].value, view.settings["paused_why"].source) == ("späne", "queue")
        client.updateQueue(
            context, types.UpdateQueueRequest(queueName=self.queue, password=self.password, unset=["paused"])
        )
        succeeded = types.PinLaterJobState.SUCCEEDED
        request = types.ChangeJobsRequest(
            queueName=self.queue, action=types.JobAction.DELETE, jobState=succeeded, dryRun=True
        )
        found = client.changeJobs(context, request)
        assert (found.changed, [job.jobDescriptor for job in found.samples]) == (1, [now])
        none = types.TextCondition(regex="no such status")
        selection = types.JobSelection(
            queueName=self.queue, phases=[types.JobPhase.SUCCEEDED], bodyConditions=[types.TextCondition(regex="^")]
        )
        page = client.searchJobs(context, types.SearchJobsRequest(selection=selection, includeBody=True))
        assert ([job.jobDescriptor for job in page.jobs], page.lookedAt) == ([now], 1)
        selection.statusConditions = [none]
        change = types.ChangeFoundJobsRequest(selection=selection, action=types.JobAction.DELETE, note="späne")
        assert client.changeFoundJobs(context, change).changed == 0
        client.updateShard(context, types.UpdateShardRequest(shardId="1", password=self.password, dequeueOnly=False))
        status = client.getClusterStatus(context, types.GetClusterStatusRequest(queueNames=[self.queue]))
        assert [(shard.id, shard.state) for shard in status.shards] == [("1", "in")]
        mute = types.MuteAlarmRequest(name="no_worker", forMillis=60_000, reason="späne", password=self.password)
        client.muteAlarm(context, mute)
        assert client.getAlarms(context, types.GetAlarmsRequest(ended=True)).nowMillis > 0
        entries = client.getAudit(context, types.GetAuditRequest(limit=1000)).entries
        assert any(entry.target == self.queue and entry.who == SOURCE for entry in entries)

        assert client.getBodyTiers(context).tiers == []
        sweep = types.ChangeBodiesRequest(action=types.BodiesAction.SWEEP, dryRun=True)
        assert self.refused(client.changeBodies, sweep) == "UNKNOWN"

    def _say_who_works(self) -> None:
        client, context, types = self.client, self.context, self.types
        job = types.WorkerJob(jobDescriptor=f"{self.queue}:s1:p1:1790000000000000", jobType="send", runningMillis=2_000)
        report = types.WorkerReport(
            id=f"id of {self.queue}",
            name="wörker",
            upMillis=60_000,
            queues={self.queue: 2},
            slots=4,
            busySlots=1,
            running=[job],
        )
        nothing = types.PinLaterCheckpointJobsRequest(queueName=self.queue, requests=[], worker=report)
        client.checkpointJobs(context, nothing)
        wanted = types.GetWorkersRequest(queueName=self.queue, includeRunning=True)
        found = client.getWorkers(context, wanted)
        (worker,) = found.workers
        assert (found.total, found.slots, worker.name, worker.queues) == (1, 4, "wörker", {self.queue: 2})
        assert [(each.jobType, worker.seenMillis - each.sinceMillis) for each in worker.running] == [("send", 2_000)]
        quiet = types.CommandWorkersRequest(command=types.WorkerCommand.QUIET, workers=[report.id])
        assert client.commandWorkers(context, quiet).workers[0].outcome == types.CommandOutcome.TOO_OLD
        report.upMillis, report.isQuiet = 60_001, False
        beat = types.HeartbeatJobsRequest(queueName=self.queue, heartbeats=[], worker=report)
        assert client.heartbeatJobs(context, beat).command is None
        assert client.commandWorkers(context, quiet).workers[0].outcome == types.CommandOutcome.TAKEN
        assert client.heartbeatJobs(context, beat).command == types.WorkerCommand.QUIET
        report.upMillis, report.hasStopped = 60_002, True
        client.dequeueJobs(context, types.PinLaterDequeueRequest(queueName=self.queue, limit=1, worker=report))
        assert client.getWorkers(context, wanted).workers == []

    def _delete(self) -> None:
        succeeded = self.types.PinLaterJobState.SUCCEEDED
        request = self.types.PinLaterDeleteJobsRequest(queueName=self.queue, jobState=succeeded, priority=1)
        assert self.client.deleteJobs(self.context, request) == 1
        assert self.refuses_password(self.client.deleteQueue, self.queue, "wrong")
        self.client.deleteQueue(self.context, self.queue, self.password)
        assert self.queue not in self.client.getQueueNames(self.context)
