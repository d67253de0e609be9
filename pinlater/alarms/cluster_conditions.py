"""The conditions of shards, servers, and what the cluster does by itself. Pure functions of the evidence."""

from __future__ import annotations

from collections.abc import Iterator

from pinlater.alarms.condition import Finding
from pinlater.alarms.evidence import Evidence, GoneServer
from pinlater.durations import age_text, spaced
from pinlater.errors import WIPED_OR_REPLACED
from pinlater.model import ShardView
from pinlater.model.alarm_views import Severity
from pinlater.schedules.firer import UnfiredCause

COUNT_AGE_MS = 60_000
"""The age up to which counts are current."""

CERTIFICATE_MS = 14 * 86_400_000
LAST_DAY_MS = 86_400_000
SEAL_MS = 3_600_000
SERVER_GONE_MS = 15_000
"""After its lease ran out; where a store stood still, those of all are renewed by then."""

WEBHOOK_TRIES = 5
"""Of a POST in a row, before its receiver counts as failing."""

_CLUSTER_PAGE = "/dashboard/cluster"
_DRAINS = ("draining", "starting")


def cause_text(shard: ShardView) -> str:
    """Why a shard cannot be used, as a sentence without the name of the shard before it."""
    text = shard.trouble.removeprefix(f"shard {shard.id}: ").strip()
    return text or f"It is {shard.state}."


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _jobs(number: int) -> str:
    return f"{number:,} job{'' if number == 1 else 's'}"


def shard_out(evidence: Evidence) -> Iterator[Finding]:
    """By the leases of all processes: the one that judges may be the only one that cannot reach it."""
    now = evidence.now
    for shard in now.shards:
        seen_out = [f"{each.server}/{each.process}" for each in now.servers if shard.id in each.shards_out]
        is_out = shard.state != "in"
        if not is_out and not seen_out:
            continue
        subject = shard.id or shard.store
        is_out_everywhere = is_out and len(seen_out) in (0, len(now.servers))  # the leases of others are a little late
        before = evidence.standing.get(("shard_out", subject))
        if not shard.id:  # a store that no one has opened yet: its id is in it
            title = f"A shard cannot be opened: {shard.store}"
        elif is_out_everywhere:
            title = f"Shard {shard.id} is out"
        else:
            title = f"Shard {shard.id} is out at {', '.join(seen_out)}"
        held = shard.jobs
        if held is None and before is not None and before.size:  # who judges now may never have read it
            held = before.size
        refused = now.refused.get(shard.id, 0)
        impact = [f"{_jobs(held)} that had not ended {_be(held)} held there"] if is_out and held is not None else []
        if refused:
            impact.append(f"{refused:,} call{'' if refused == 1 else 's'} with keys that live there were refused")
        elif impact and shard.is_home:
            impact.append("jobs with keys that live there are refused until it is back")
        action, command = _remedy(shard)
        yield Finding(
            subject=subject,
            title=title,
            severity=None if now.is_any_shard_in else Severity.CRITICAL,
            size=held or 0,
            why=cause_text(shard),
            impact="; ".join(impact),
            action=action,
            command=command,
            path=_CLUSTER_PAGE,
        )


def _remedy(shard: ShardView) -> tuple[str, str]:
    """What to do for a shard that is out, and by which command."""
    shard_id = shard.id or "ID"
    if WIPED_OR_REPLACED in shard.trouble:
        return (
            "Bring back the store that was there. Where its jobs are lost, or it was replaced on purpose, start each "
            "server once so that it takes the new store.",
            f"pinlater serve --accept-new-store {shard_id}",
        )
    return (
        "Start its store again, or repair the way to it; it comes back by itself then. Only where it is lost for good: "
        f"pinlater shard give-up {shard_id}",
        "pinlater shard health",
    )


def shard_full(evidence: Evidence) -> Iterator[Finding]:
    now = evidence.now
    takers = [shard for shard in now.shards if shard.state == "in" and not shard.dequeue_only]
    is_last = bool(takers) and all(shard.is_full for shard in takers)
    for shard in now.shards:
        if shard.state == "in" and shard.is_full:
            yield Finding(
                subject=shard.id,
                title=f"Shard {shard.id} is full and takes no new jobs",
                severity=Severity.CRITICAL if is_last else None,
                why=cause_text(shard),
                action="Give its store more room, or let jobs that ended go sooner (succeeded_ttl, failed_ttl).",
                command="pinlater shard health",
                path=_CLUSTER_PAGE,
            )


def server_unready(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.now.servers:
        if not each.is_ready and each.trouble not in _DRAINS:
            name = f"{each.server}/{each.process}"
            yield Finding(
                subject=name,
                title=f"Server process {name} is not ready",
                why=each.trouble,
                action=f"Read its log, at {each.address}.",
                command="pinlater cluster status",
                path=_CLUSTER_PAGE,
            )


def server_problem(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.now.servers:
        if each.is_ready and each.trouble:
            name = f"{each.server}/{each.process}"
            yield Finding(
                subject=name,
                title=f"Server process {name}: {each.trouble}",
                why="The process reports this in its lease.",
                action="Set the clock of that machine right, best by NTP.",
                command="pinlater cluster status",
                path=_CLUSTER_PAGE,
            )


def server_gone(evidence: Evidence) -> Iterator[Finding]:
    """A server whose lease ran out, and no server of its name or address is there."""
    now = evidence.now
    here = {name for each in now.servers for name in (each.server, each.address)}
    gone: dict[str, list[GoneServer]] = {}
    for each in now.gone_servers:
        is_back = each.server.server in here or each.server.address in here
        if not is_back and now.now_ms - each.missing_since_ms >= SERVER_GONE_MS:
            gone.setdefault(each.server.server, []).append(each)
    left = len({each.server for each in now.servers})
    for name, processes in gone.items():
        last = max(processes, key=lambda each: each.server.seen_ms).server
        yield Finding(
            subject=name,
            title=f"Server {name} at {last.address} is gone",
            severity=Severity.WARNING if left < 2 else None,
            since_ms=last.seen_ms,
            size=len(processes),
            why="Its lease ran out, and it announced no stop: it was killed, its machine is away, or it reaches "
            "no store.",
            impact=f"{left:,} server{' is' if left == 1 else 's are'} left",
            action="See on that machine why it ended, and start it again. Where it is away for good, nothing is to be "
            "done: the others have taken over its work.",
            command="pinlater cluster status",
            path=_CLUSTER_PAGE,
        )


def homes_stuck(evidence: Evidence) -> Iterator[Finding]:
    if evidence.now.homes_problem:
        yield Finding(
            subject="",
            title="Keys cannot move to other shards",
            why=evidence.now.homes_problem,
            action="Bring back what keeps them, or give a shard up that is lost.",
            command="pinlater shard list",
            path=_CLUSTER_PAGE,
        )


def chain_blocked(evidence: Evidence) -> Iterator[Finding]:
    for shard in evidence.now.shards:
        for chain in shard.blocked_chains:
            queue = chain.first.partition(":")[0]
            others = "1 other" if chain.waiting == 1 else f"{chain.waiting:,} others"
            yield Finding(
                subject=f"{queue}/{chain.serialize_key}",
                title=f"{queue}: {chain.first} keeps {others} of serialize key {chain.serialize_key!r} waiting",
                queue=queue,
                since_ms=chain.since_ms,
                size=chain.waiting,
                why="Jobs of one serialize key run one after the other.",
                action="See why the first job does not end; where it never will: pinlater job cancel --running "
                f"{chain.first}",
                command=f"pinlater job get {chain.first}",
                path=f"/dashboard/jobs/{chain.first}",
            )


def counts_old(evidence: Evidence) -> Iterator[Finding]:
    now = evidence.now
    if not now.is_any_shard_in:
        return
    old = {
        each.name: now.now_ms - each.counted_at_ms
        for each in now.queues.values()
        if each.counted_at_ms and now.now_ms - each.counted_at_ms > COUNT_AGE_MS
    }
    if old:
        oldest_ms = max(old.values())
        yield Finding(
            subject="",
            title=f"The counts of {len(old):,} queue{'' if len(old) == 1 else 's'} are old: "
            f"the oldest of {spaced(age_text(oldest_ms))} ago",
            since_ms=now.now_ms - oldest_ms + COUNT_AGE_MS,
            size=len(old),
            why="A store counts slowly, or the server that counts it is busy or away.",
            action="See which shard is slow.",
            command="pinlater shard health",
            path=_CLUSTER_PAGE,
        )


def schedule_silent(evidence: Evidence) -> Iterator[Finding]:
    for name, (queue, problem) in sorted(evidence.now.schedule_problems.items()):
        action, command = _way_to_fire(name, evidence.now.schedule_causes.get(name))
        yield Finding(
            subject=name,
            title=f"Schedule {name} does not fire",
            queue=queue,
            why=problem,
            impact="its jobs are not stored",
            action=action,
            command=command,
            path=f"/dashboard/schedules/{name}",
            has_own_cause=name not in evidence.now.schedules_of_shards,
        )


def _way_to_fire(name: str, cause: str | None) -> tuple[str, str]:
    """What to do for a schedule that does not fire, and by which command."""
    if cause == UnfiredCause.CLOCK_AHEAD:
        return (
            "Set the clocks of the servers right, then resume it: the times from then on count.",
            f"pinlater schedule resume {name}",
        )
    if cause == UnfiredCause.TIMETABLE:
        return (
            "Bring the time zones of the servers up to date, or the servers to one version; else give it another zone "
            "or other times.",
            f"pinlater schedule set {name} --timezone ZONE",
        )
    return "Correct the schedule, or what keeps its jobs from being stored.", f"pinlater schedule show {name}"


def overflow_used(evidence: Evidence) -> Iterator[Finding]:
    jobs: dict[str, int] = {}
    for each in evidence.now.servers:
        if each.overflow_jobs:
            jobs[each.server] = max(jobs.get(each.server, 0), each.overflow_jobs)
    for server, kept in jobs.items():
        yield Finding(
            subject=server,
            title=f"Server {server} keeps jobs on its own disk",
            size=kept,
            why="No shard took them. They are handed out from there, and move to a shard as soon as one takes jobs.",
            impact=f"{_jobs(kept)} would be lost with that disk",
            action="Bring a shard back, or give the stores more room.",
            command="pinlater shard health",
            path=_CLUSTER_PAGE,
        )


def disk_low(evidence: Evidence) -> Iterator[Finding]:
    for server, (free, total) in sorted(evidence.now.low_disks.items()):
        unit, name = (2**30, "GiB") if total >= 2**30 else (2**20, "MiB")
        yield Finding(
            subject=server,
            title=f"Server {server}: {free / total:.0%} of the disk of its data folder is free",
            size=round(100 * (1 - free / total)),
            why=f"{free / unit:,.1f} of {total / unit:,.1f} {name} are free. Without room the embedded store takes no "
            "new jobs, and jobs that no shard takes cannot be kept.",
            action="Make room there, or let jobs that ended go sooner (succeeded_ttl, failed_ttl).",
            command="df -h",
            path=_CLUSTER_PAGE,
        )


def flow_stuck(evidence: Evidence) -> Iterator[Finding]:
    for flow in evidence.now.flows.stuck:
        title = f"Flow {flow.name} cannot go on" if flow.is_whole else f"Flow {flow.name} cannot go on with some items"
        yield Finding(
            subject=flow.id,
            title=title,
            queue=flow.queue,
            size=flow.childless,
            why=flow.why,
            impact=f"{flow.childless:,} item{' has' if flow.childless == 1 else 's have'} no children"
            if flow.childless
            else "",
            action="Correct the expression of that stage, or what keeps its callback, and resume the flow.",
            command=f"pinlater flow resume {flow.id}",
            path=f"/dashboard/flows/{flow.id}",
        )


def flows_away(evidence: Evidence) -> Iterator[Finding]:
    """The database of flows does not answer, and there are queues of flows."""
    if evidence.now.flows.problem:
        yield Finding(
            subject="",
            title="The database of flows cannot be used",
            why=evidence.now.flows.problem,
            impact="flows do not go on, and jobs of their items cannot end",
            action="Start that database again, or repair the way to it; flows go on by themselves then.",
            command="pinlater flow list",
            path="/dashboard/flows",
        )


def callback_lost(evidence: Evidence) -> Iterator[Finding]:
    """A completion callback that was given up in the last hour."""
    for each in evidence.now.lost_callbacks:
        yield Finding(
            subject=each.flow_id,
            title=f"The callback of flow {each.flow} was given up",
            queue=each.queue,
            since_ms=each.at_ms,
            size=1,
            why=f"Its receiver did not learn that the flow is over: {each.why}",
            action="Mend the receiver, and resume the flow: its callback is tried again.",
            command=f"pinlater flow resume {each.flow_id}",
            path=f"/dashboard/flows/{each.flow_id}",
        )


def stage_unsealed(evidence: Evidence) -> Iterator[Finding]:
    """A stage that nothing but its seal keeps open, for long."""
    now = evidence.now
    for each in now.flows.unsealed:
        if now.now_ms - each.since_ms >= SEAL_MS:
            yield Finding(
                subject=f"{each.flow_id}/{each.stage}",
                title=f"Flow {each.flow} waits for a seal of its stage {each.stage}",
                queue=each.queue,
                since_ms=each.since_ms + SEAL_MS,
                size=each.items,
                why=f"All {each.items:,} items there have ended, no more came for {spaced(age_text(SEAL_MS))}, and no "
                "seal says that these were all.",
                action="Seal the stage where no more items come.",
                command=f"pinlater flow seal {each.flow_id} {each.stage}",
                path=f"/dashboard/flows/{each.flow_id}",
            )


def tier_away(evidence: Evidence) -> Iterator[Finding]:
    for tier, reasons in sorted(evidence.now.tiers_away.items()):
        yield Finding(
            subject=tier,
            title=f"Tier {tier} of bodies cannot be used at {', '.join(sorted(reasons))}",
            size=len(reasons),
            why=next(iter(reasons.values())),
            impact="jobs whose bodies are there wait; new large bodies stay in their shards",
            action="Repair it, or the way to it; it is tried again by itself.",
            command="pinlater bodies status",
            path=_CLUSTER_PAGE,
        )


def shard_slow(evidence: Evidence) -> Iterator[Finding]:
    """A shard that is in and at which many calls fail or are late."""
    states = {shard.id: shard.state for shard in evidence.now.shards}
    for shard, names in sorted(evidence.now.slow_shards.items()):
        if states.get(shard, "in") == "in":
            yield Finding(
                subject=shard,
                title=f"Shard {shard} is slow at {', '.join(sorted(names))}",
                size=len(names),
                why="Of the last 100 calls there 10 or more failed, or took longer than half of their deadline. With "
                "more than 25 it is taken out.",
                impact="calls of clients wait, or are sent again",
                action="See what its store is busy with: disk, locks, other users of that machine.",
                command="pinlater shard health",
                path=_CLUSTER_PAGE,
            )


def certificate_ends(evidence: Evidence) -> Iterator[Finding]:
    now = evidence.now
    for server, ends_ms in sorted(now.certificates.items()):
        left_ms = ends_ms - now.now_ms
        if left_ms >= CERTIFICATE_MS:
            continue
        days = left_ms // 86_400_000
        when = f"ends in {days:,} day{'' if days == 1 else 's'}" if left_ms > 0 else "has ended"
        yield Finding(
            subject=server,
            title=f"The certificate of server {server} {when}",
            severity=Severity.WARNING if left_ms > LAST_DAY_MS else Severity.CRITICAL,
            since_ms=ends_ms - CERTIFICATE_MS,
            why="Callers that check certificates cannot connect from then on.",
            action="Put a new certificate and key in place of the files; the server takes them without a restart.",
            command="pinlater cluster status",
            path=_CLUSTER_PAGE,
        )


def webhook_failing(evidence: Evidence) -> Iterator[Finding]:
    for host, problem in sorted(evidence.now.webhook_problems.items()):
        yield Finding(
            subject=host,
            title=f"No alarm arrives at the webhook of {host}",
            why=f"The last {WEBHOOK_TRIES} tries failed: {problem}. It is tried again once a minute.",
            impact="alarms are not sent there",
            action="Repair the receiver, or the way to it; what it missed is sent then.",
            command="pinlater alarms",
            path=_CLUSTER_PAGE,
        )


def exposed(evidence: Evidence) -> Iterator[Finding]:
    for text in sorted({each.exposed for each in evidence.now.servers} - {""}):
        names = sorted({each.server for each in evidence.now.servers if each.exposed == text})
        yield Finding(
            subject=text[:100],
            title=text,
            size=len(names),
            why=f"This holds at {', '.join(names)}.",
            action="Set an admin password, or rules.",
            command="pinlater access show",
            path=_CLUSTER_PAGE,
        )
