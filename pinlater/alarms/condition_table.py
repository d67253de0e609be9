"""The conditions of alarms, one table, causes before effects: the judge and docs/alarms.md use it."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.alarms import cluster_conditions as of_cluster
from pinlater.alarms import queue_conditions as of_queues
from pinlater.alarms import worker_conditions as of_workers
from pinlater.alarms.condition import Condition
from pinlater.alarms.evidence import UNKNOWN_FOR_MS
from pinlater.durations import duration_text
from pinlater.model.alarm_views import Severity

CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
_NOT_WORKED_ON = "dead-letter queues (queues that another one names), paused queues, queues without ready jobs"
_GOAL = f"`latency_goal` of the queue, else {duration_text(of_queues.LATENCY_MS)}"

CONDITIONS: tuple[Condition, ...] = (
    Condition(
        name="shard_out",
        severity=WARNING,
        holds="A shard is out, at all server processes or at some. Critical where none is left.",
        threshold="at once; see [operations.md](operations.md) for when a shard is taken out",
        not_for="a store that is only being opened for the first time",
        remedy="Start its store again, or repair the way to it. It comes back by itself. `pinlater shard give-up ID` "
        "is for one that is lost for good.",
        find=of_cluster.shard_out,
        absorbs=("overflow_used", "homes_stuck", "counts_old", "schedule_silent", "outbox_not_relayed"),
    ),
    Condition(
        name="shard_full",
        severity=WARNING,
        holds="The store of a shard has no room for new jobs. Critical where no shard has.",
        threshold="at once",
        remedy="Give the store more room, or let jobs that ended go sooner (`succeeded_ttl`, `failed_ttl`).",
        find=of_cluster.shard_full,
        absorbs=("overflow_used",),
    ),
    Condition(
        name="shard_slow",
        severity=WARNING,
        holds="Many calls to a shard that is in fail, or take longer than half of their deadline, at some server "
        "processes.",
        threshold="10 of the last 100 calls of a process",
        not_for="shards that are out",
        remedy="See what its store is busy with: disk, locks, other users of that machine.",
        find=of_cluster.shard_slow,
        quiet_ms=60_000,
        absorbs=("counts_old",),
    ),
    Condition(
        name="tier_away",
        severity=WARNING,
        holds="A server process cannot use a tier of bodies.",
        threshold="5 calls in a row that failed, the last within 5 minutes; or it could not be opened",
        not_for="bodies that are not there",
        remedy="Repair it, or the way to it; it is tried again by itself.",
        find=of_cluster.tier_away,
    ),
    Condition(
        name="certificate_ends",
        severity=WARNING,
        holds="The certificate of a server ends soon. Critical on its last day.",
        threshold=f"{of_cluster.CERTIFICATE_MS // 86_400_000} days",
        remedy="Put a new certificate and key in place of the files; the server takes them without a restart.",
        find=of_cluster.certificate_ends,
    ),
    Condition(
        name="disk_low",
        severity=WARNING,
        holds="Little is free on the disk of a server's data folder.",
        threshold="10 %",
        remedy="Make room there, or let jobs that ended go sooner (`succeeded_ttl`, `failed_ttl`).",
        find=of_cluster.disk_low,
        quiet_ms=60_000,
    ),
    Condition(
        name="server_unready",
        severity=WARNING,
        holds="A server process is alive and not ready.",
        threshold="at once",
        not_for="a process that starts or drains",
        remedy="Read its log.",
        find=of_cluster.server_unready,
    ),
    Condition(
        name="server_gone",
        severity=INFO,
        holds="The lease of a server ran out, and it announced no stop. Warning where one server alone is left.",
        threshold=f"{duration_text(of_cluster.SERVER_GONE_MS)} after its lease ran out; shown for an hour",
        not_for="servers that stop in order; one of the same name or address in place; a process of a server that has "
        "others",
        remedy="See on that machine why it ended, and start it again.",
        find=of_cluster.server_gone,
    ),
    Condition(
        name="server_problem",
        severity=WARNING,
        holds="Something is wrong with a server process that is ready: its clock is off.",
        threshold="`clock-tolerance`",
        set_where="the server's configuration",
        remedy="Set the clock of that machine right.",
        find=of_cluster.server_problem,
    ),
    Condition(
        name="worker_gone",
        severity=CRITICAL,
        holds="A worker that was there is gone, and announced no stop. One alarm for each queue it took from. "
        "Info where others are left.",
        threshold="15s after its connection broke, else a minute after its last report; shown for 15 minutes where "
        "others are left",
        not_for="workers that stop orderly, as in a deploy, or rest; one of the same name in place; dead-letter queues",
        remedy="See on that machine why it ended, and start it again.",
        find=of_workers.worker_gone,
        of_queue=True,
        absorbs=("throttled", "no_worker", "jobs_crashed", "waits_long", "backlog_grows", "jobs_expired"),
    ),
    Condition(
        name="throttled",
        severity=WARNING,
        holds="The limits of a queue let nothing through although jobs are ready: they are 0; as many jobs are in "
        "progress as may be, and none ends; or the rate is below a job in that time.",
        threshold=f"nothing handed out for {duration_text(of_queues.THROTTLED_MS)} where a limit is 0, else for "
        f"{_GOAL}",
        set_where="`pinlater queue set QUEUE max_jobs_per_second=… max_in_progress=… latency_goal=…`",
        not_for="queues whose limits let jobs through, however slowly; dead-letter queues, paused queues",
        remedy="Raise or take away the limits, or see why the jobs in progress do not end.",
        find=of_queues.throttled,
        of_queue=True,
        absorbs=("waits_long", "backlog_grows", "jobs_expired"),
    ),
    Condition(
        name="no_worker",
        severity=CRITICAL,
        holds="No worker takes from a queue with ready jobs, and nothing was handed out.",
        threshold=f"the oldest ready job waits for {duration_text(of_queues.NO_WORKER_MS)}",
        not_for=f"{_NOT_WORKED_ON}, queues whose limits let no worker take a job",
        remedy="Start a worker for the queue, or pause the queue.",
        find=of_queues.no_worker,
        of_queue=True,
        absorbs=("waits_long", "backlog_grows", "jobs_expired"),
    ),
    Condition(
        name="breaker_open",
        severity=CRITICAL,
        holds="The circuit breaker of a queue is open: too many of its attempts failed, and no job is handed out but "
        "one now and then, until one succeeds.",
        threshold="[`pause_on_failures`](queues.md#the-circuit-breaker) of the queue",
        set_where="`pinlater queue set QUEUE pause_on_failures=50%/100/1m/30s`",
        not_for="queues without that setting, and those that an operator has paused",
        remedy="Mend what the jobs fail at: it closes by itself then. `pinlater queue resume QUEUE` closes it at once.",
        find=of_queues.breaker_open,
        of_queue=True,
        absorbs=("failing", "attempts_failing", "jobs_crashed", "jobs_expired"),
        quiet_ms=60_000,
    ),
    Condition(
        name="failing",
        severity=CRITICAL,
        holds="Of 10 jobs or more that ended in 5 minutes, 20 % failed for good: of one type where bodies name it, "
        "as those of the worker framework do (estimated from a sample), else of the queue.",
        threshold="20 % of 10 jobs in 5 minutes; ends below 10 % for 5 minutes",
        not_for="single jobs, jobs that expired",
        remedy="Read the errors, and retry the jobs when the cause is mended.",
        find=of_queues.failing,
        of_queue=True,
        absorbs=("attempts_failing", "jobs_crashed"),
        quiet_ms=300_000,
    ),
    Condition(
        name="attempts_failing",
        severity=WARNING,
        holds="20 % of the attempts of 5 minutes failed, and twice as large a part as in the hour before.",
        threshold="20 % of 10 attempts in 5 minutes; ends below 10 % for 5 minutes",
        not_for="what fails as often all the time",
        remedy="Read the errors of jobs that wait for their next attempt.",
        find=of_queues.attempts_failing,
        of_queue=True,
        quiet_ms=300_000,
    ),
    Condition(
        name="jobs_crashed",
        severity=WARNING,
        holds="Jobs failed for good because their workers were lost, or renewed no claim for longer than the claim "
        "time-out, until the crash budget or the attempts were used up; the alarm says which, of the jobs examined.",
        threshold="1 job; ends 15 minutes after the last one",
        not_for="jobs that are tried again",
        remedy="See what ends the workers, or raise `claim_timeout`; then retry the jobs.",
        find=of_queues.jobs_crashed,
        of_queue=True,
        quiet_ms=600_000,
    ),
    Condition(
        name="worker_silent",
        severity=WARNING,
        holds="The process of a worker is there, and its event loop does not move.",
        threshold="as its heartbeat process says",
        remedy="See what keeps it busy.",
        find=of_workers.worker_silent,
    ),
    Condition(
        name="slots_stuck",
        severity=WARNING,
        holds="Jobs did not end when they were to stop, and keep slots of workers.",
        threshold="1 slot",
        remedy="See what these jobs wait for. The slots come back with a restart of the worker.",
        find=of_workers.slots_stuck,
    ),
    Condition(
        name="type_unknown",
        severity=WARNING,
        holds="Workers meet jobs of a type that no worker of their queue knows.",
        threshold=f"1 job, for {duration_text(of_workers.UNKNOWN_MS)}; ends when a worker knows the type, or none met "
        f"such a job for {duration_text(UNKNOWN_FOR_MS)}",
        not_for="types that one of the workers of the queue knows, as in a deploy; workers of other frameworks, which "
        "do not say what they know",
        remedy="Start workers that know the type, or correct the queue that the jobs are enqueued into.",
        find=of_workers.type_unknown,
        of_queue=True,
    ),
    Condition(
        name="outbox_not_relayed",
        severity=WARNING,
        holds="Jobs of an [outbox](workers-outbox.md) are not handed over: its relay is gone, announced no "
        "stop, and no other one runs (critical); or the oldest job there waits for too long.",
        threshold="15s after the relay's connection broke, else a minute after its last report; `--goal` of the relay "
        "for the oldest job, else 5m",
        set_where="`pinlater-worker outbox --goal 1m`",
        not_for="relays that stop orderly; outboxes that another relay of the same name empties; `--once`",
        remedy="Start a relay again, or see what keeps the jobs: `pinlater-worker outbox status`.",
        find=of_workers.outbox_not_relayed,
    ),
    Condition(
        name="chain_blocked",
        severity=WARNING,
        holds="The first job of a serialize key keeps too many others waiting, or for too long.",
        threshold="`blocked-chain-jobs`, `blocked-chain-age`",
        set_where="the server's configuration",
        remedy="See why that job does not end; cancel it where it never will.",
        find=of_cluster.chain_blocked,
    ),
    Condition(
        name="backlog_grows",
        severity=WARNING,
        holds="A backlog of 100 ready jobs or more grew for 10 minutes, by 5 % at least.",
        threshold="10 minutes",
        not_for=_NOT_WORKED_ON,
        remedy="Start more workers for the queue, or slow down who enqueues.",
        find=of_queues.backlog_grows,
        of_queue=True,
        quiet_ms=120_000,
        absorbs=("waits_long", "jobs_expired"),
    ),
    Condition(
        name="waits_long",
        severity=WARNING,
        holds="The oldest ready job of a queue waits for too long; or, where the queue has a `latency_goal`, one in "
        "twenty of those that were handed out in 5 minutes had (of a sample of 20 to 200 jobs that succeeded and are "
        "kept, without those of serialize keys).",
        threshold=_GOAL,
        set_where="`pinlater queue set QUEUE latency_goal=30s`",
        not_for=f"{_NOT_WORKED_ON}, scheduled jobs",
        remedy="Start more workers for the queue, or see what its jobs wait for.",
        find=of_queues.waits_long,
        of_queue=True,
        absorbs=("jobs_expired",),
    ),
    Condition(
        name="jobs_expired",
        severity=WARNING,
        holds="Jobs failed since they were not handed out in time. Critical where 10 or more did in 5 minutes, and "
        "20 % of those that ended.",
        threshold="1 job; ends 15 minutes after the last one",
        not_for="jobs whose time is not over",
        remedy="Start more workers for the queue, or give its jobs more time; retry those that are still wanted.",
        find=of_queues.jobs_expired,
        of_queue=True,
        quiet_ms=600_000,
    ),
    Condition(
        name="schedule_silent",
        severity=WARNING,
        holds="A schedule cannot be fired; its last firing lies ahead, since a clock was ahead then, and silences it "
        "until that time; or its timetable cannot be read, as one whose time zone the server does not know.",
        threshold="1 time; a minute ahead",
        not_for="schedules that are paused",
        remedy="Correct the schedule, or what keeps its jobs from being stored. Where a clock was ahead: set the "
        "clocks right, then `pinlater schedule resume`.",
        find=of_cluster.schedule_silent,
    ),
    Condition(
        name="flows_away",
        severity=CRITICAL,
        holds="The database of flows does not answer, and there are queues of flows.",
        threshold="3 questions in a row, of one every 10 s",
        not_for="a database that is only being opened",
        remedy="Start that database again, or repair the way to it; flows go on by themselves then.",
        find=of_cluster.flows_away,
    ),
    Condition(
        name="callback_lost",
        severity=WARNING,
        holds="The completion callback of a flow was given up.",
        threshold="1; shown for an hour, or until it is made",
        not_for="callbacks that are tried again",
        remedy="Mend the receiver, and resume the flow.",
        find=of_cluster.callback_lost,
    ),
    Condition(
        name="stage_unsealed",
        severity=INFO,
        holds="Nothing but its seal keeps a stage of a flow open, and no items come.",
        threshold=f"{duration_text(of_cluster.SEAL_MS)}, as the judge has seen it; of the 100 flows that were made "
        "last and run",
        not_for="stages with items that have not ended, and those that are sealed with their parent",
        remedy="Seal the stage where no more items come: `pinlater flow seal`.",
        find=of_cluster.stage_unsealed,
    ),
    Condition(
        name="flow_stuck",
        severity=WARNING,
        holds="A flow cannot go on, or not with all of its items: children of items could not be made.",
        threshold="1 flow, of the 100 that were made last and run; seen within 15 s",
        not_for="flows whose items wait for workers, and flows whose database is only being opened",
        remedy="Correct the expression of that stage, and resume the flow.",
        find=of_cluster.flow_stuck,
    ),
    Condition(
        name="overflow_used",
        severity=WARNING,
        holds="Jobs lie on a server's own disk, since no shard took them.",
        threshold="1 job",
        remedy="Bring a shard back, or give the stores more room.",
        find=of_cluster.overflow_used,
    ),
    Condition(
        name="homes_stuck",
        severity=WARNING,
        holds="Keys cannot move to other shards as they should.",
        threshold="at once",
        remedy="Bring back what keeps them, or give a shard up that is lost.",
        find=of_cluster.homes_stuck,
    ),
    Condition(
        name="counts_old",
        severity=WARNING,
        holds="Counts of queues are old, so alarms and autoscalers that stand on them are late.",
        threshold=duration_text(of_cluster.COUNT_AGE_MS),
        remedy="See which shard is slow.",
        find=of_cluster.counts_old,
    ),
    Condition(
        name="paused_long",
        severity=INFO,
        holds="A queue with ready jobs is paused for long, with no end.",
        threshold=duration_text(of_queues.PAUSED_MS),
        not_for="pauses that end by themselves (`pinlater queue pause --for`), open circuit breakers",
        remedy="Resume the queue if the reason is gone.",
        find=of_queues.paused_long,
        of_queue=True,
    ),
    Condition(
        name="webhook_failing",
        severity=WARNING,
        holds="A webhook does not take alarms.",
        threshold=f"{of_cluster.WEBHOOK_TRIES} tries in a row",
        remedy="Repair the receiver, or the way to it; what it missed is sent then.",
        find=of_cluster.webhook_failing,
        quiet_ms=60_000,
    ),
    Condition(
        name="exposed",
        severity=INFO,
        holds="Callers may do more at a server than an operator may want.",
        threshold="at once",
        remedy="Set an admin password, or rules.",
        find=of_cluster.exposed,
    ),
)
BY_NAME: Mapping[str, Condition] = {each.name: each for each in CONDITIONS}
