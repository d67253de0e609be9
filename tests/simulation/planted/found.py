"""The planted faults that a plan finds, by the names of the plans: the rule that is broken then (of the checker, or the
word with which a judge of a run begins), and within how many minutes of virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping

FOUND: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "groups at their limits": {
        "sqlite group_permits: request.concurrency - held[group]) -> request.concurrency)": ("permit", 8),
        "queues.group_limits: jobs of a group without permits are handed out": ("ack", 2),
        "queues.group_limits: jobs of a group without permits stay claimed": ("attempts", 8),
        "queues.group_rules_book: limits of a group of its own, or of a pattern, are overlooked": ("stuck", 24),
        "queues.group_rules_book: the limit of a group stays as it was first": ("stuck", 24),
        "queues.group_pending_counts: a group is full of the jobs of others": ("full", 8),
    },
    "groups at their limits amid kills": {
        "queues.group_limits: permits of claims that ended without a word stay": ("stuck", 24),
    },
    "long jobs of groups": {
        "queues.group_limits: permits of jobs that are in progress are taken back": ("permit", 8),
    },
    "long jobs of groups, shards away": {
        "queues.group_limits: permits of claims on a shard that is out are taken back": ("permit", 24),
    },
    "few jobs of groups": {
        "queues.group_pending_counts: jobs of a group that were counted count again": ("full", 8),
    },
    "the home of permits is away": {
        "queues.group_limits: while the home of permits is out, groups have no limits": ("permit", 8),
    },
    "a shard of groups is given up": {
        "queues.group_limits: permits of claims on a shard that is given up stay": ("stuck", 24),
    },
    "the home of permits is given up": {
        "queues.group_limits: the home of permits stays on a shard that is given up": ("stuck", 24),
    },
    "plain": {
        "sqlite candidates: state = 0 AND -> state <= 1 AND": ("twice", 2),
        'sqlite attempts: each.claim_descriptor not in ("", row[CLAIM]) -> False': ("ack", 2),
        "sqlite attempts: attempts_remaining <= 1 -> attempts_remaining <= 0": ("ended", 8),
        "sqlite attempts: each.permanent or -> nothing": ("attempts", 2),
        "shards.resilience: jobs are handed out five seconds early": ("early", 2),
        "service.descriptors: an ack counts for whichever claim there is": ("ack", 2),
        "maintenance.tasks: claims expire three seconds early": ("ack", 2),
        "server.deliveries: jobs that were received are taken back as undelivered": ("twice", 8),
        "cluster.membership: nobody looks after shard 1": ("stuck", 8),
        "sqlite attempts: 0 < rules.crash_budget <= crashes -> rules.crash_budget <= crashes": ("state", 8),
    },
    "keyed": {
        'sqlite keyed_jobs: if session.put("add_live_keys", new) == len(new): -> if session.put("add_live_keys"': (
            "key",
            2,
        ),
        "sqlite keyed_jobs: or offer.job.on_duplicate is OnDuplicate.REPLACE -> nothing": ("key", 8),
        "sqlite untake_keys: job_id >= ? -> job_id >= 0 * ?": ("key", 2),
        "sqlite untake_chains: job_id >= ? -> job_id >= 0 * ?": ("chain", 8),
        "sqlite chains: if self._session.put(self._put, rows) < len(rows)  -> self._session.put(self._put, r": (
            "chain",
            8,
        ),
        "sqlite keys: entry.until_ms IS NULL AND -> nothing": ("key", 2),
        "sqlite keys: NOT IN (0, 1, 4, 8) THEN -> NOT IN (1, 4, 8) THEN": ("key", 2),
        "sqlite keys: NOT IN (0, 1, 4, 8) THEN -> NOT IN (0, 4, 8) THEN": ("key", 2),
        "sqlite keys: NOT IN (0, 1, 4, 8) THEN -> NOT IN (0, 1, 8) THEN": ("key", 2),
        "sqlite keys: entry.queue_id = ? -> entry.queue_id >= ?": ("key", 2),
        "sqlite extensions: return self.until_ms is None or self.until_ms > no -> return self.until_ms is None": (
            "key",
            2,
        ),
        "sqlite keyed_jobs: if sent is not None and sent.stands(self._now_ms): -> if False:": ("send", 2),
        "sqlite keyed_jobs: if state in STATES_OF[JobState.PENDING]: -> if True:": ("ack", 2),
        "sqlite end_keys: CASE WHEN window_ms < 0 THEN -> CASE WHEN 1 = 0 THEN": ("key", 2),
        "sqlite end_keys: CASE WHEN is_send_id = 1 THEN -> CASE WHEN 1 = 1 THEN": ("key", 2),
        "sqlite keyed_jobs: if send or window_ms: -> if send:": ("key", 2),
        "sqlite job_ends: live if each.flags & HAS_ENTRY and each.flags & HA -> live if False]": ("key", 2),
        "sqlite drop_keys_over: AND job_id IN (SELECT value FROM json_each(?)) -> AND 5 NOT IN (SELECT value FRO": (
            "key",
            2,
        ),
        "sqlite chains: if chain.place in per_key[key] -> if True": ("chain", 8),
        "sqlite chains: for head in heads if head.waiting -> for head in heads if False": ("chain", 8),
        "sqlite next_in_chains: MIN(first.place) -> MAX(first.place)": ("chain", 2),
        "sqlite ready_jobs: each.expires_at_ms <= now_ms} -> False}": ("expired", 2),
        "sqlite expired_jobs: job.state IN (0, 4, 8) -> job.state IN (0, 1, 4, 8)": ("state", 24),
        "service.job_lifecycle: the keys of a job are left out": ("key", 2),
        "sqlite job_ends: [] if stays is Stays.JOB else [each.job_id for eac -> []": ("key", 8),
    },
    "results": {
        "maintenance.tasks: ended jobs are removed a week early": ("lost", 2),
        "service.descriptors: results are dropped": ("result", 2),
    },
    "cancels": {
        "sqlite attempts: if flags and outcome is not AckOutcome.SUCCEEDED a -> if False and ends_cancelled(": (
            "stop",
            2,
        ),
        "sqlite attempts: if flags and outcome is not AckOutcome.SUCCEEDED a -> if flags and ends_cancelled(": (
            "stop",
            2,
        ),
        "service.job_commands: a request to stop is forgotten": ("stop", 2),
        "service.heartbeats: heartbeats do not tell of a request to stop": ("stop", 2),
        "sqlite admin: if outcome is CancelOutcome.CANCELLED: -> if True:": ("lost", 2),
        "sqlite attempts: if flags and ends_cancelled(session, row[0], flags -> if False:": ("state", 8),
        "sqlite attempts: if row[EXTENDED] and ends_cancelled(session, row[I -> if False:": ("ended", 8),
        "sqlite admin: stopped = sorted(job_id for job_id in states if fl -> stopped: list[int] = []": ("stop", 8),
        "sqlite admin: each.only_if_updated_at_ms not in (None, updated[e -> False:": ("state", 2),
    },
    "dead_letters": {
        "sqlite dead_letters: row[2] in GOES and ( -> True and (": ("ack", 8),
        "sqlite keys: NOT IN (0, 1, 4, 8) THEN 0 -> NOT IN (0, 1, 4, 8) THEN NULL": ("key", 8),
        "sqlite keyed_jobs: entry is not None and entry.until_ms is None and e -> False:": ("key", 24),
        "sqlite oldest: state = ? -> state >= ?": ("ack", 8),
    },
    "bodies": {
        "sqlite held_references: flags ^= TIERED -> nothing": ("body", 8),
        "bodies.tiered_shard: a body is deleted as soon as its job is stored": ("body", 2),
        "sqlite held_references: if left >= 0: -> if False:": ("body", 2),
    },
    "limits": {
        "sqlite coordination: quota - _in_progress(session, queue_id, quota) -> quota": ("quota", 8),
        "sqlite in_progress_up_to: state = 1 -> state = 0": ("stuck", 8),
        "queues.rebalance: each shard has the whole maximum in progress": ("quota", 8),
        "service.queue_limits: claims do not ask for the quota of their shard": ("quota", 2),
        "sqlite in_progress_up_to: queue_id = ? -> queue_id <= ?": ("stuck", 8),
    },
    "flows": {
        "service.job_lifecycle: the end of an item is not recorded": ("stuck", 8),
        "flows.end_records: an item that has ended ends again": ("flow", 8),
    },
    "strangers": {
        "sqlite attempts: and row[CLAIM] == claim.claim_descriptor -> nothing": ("ack", 8),
        "sqlite in_progress: state = 1 -> state >= 0": ("ack", 2),
        "sqlite when_claimed: queue_id = (SELECT id FROM pinlater_queues WHERE n -> CAST(? AS CHAR) IS NOT NULL": (
            "twice",
            2,
        ),
        "sqlite in_progress: queue_id = (SELECT id FROM pinlater_queues WHERE n -> CAST(? AS CHAR) IS NOT NULL": (
            "id",
            2,
        ),
        "sqlite named: queue_id = (SELECT id FROM pinlater_queues WHERE n -> CAST(? AS CHAR) IS NOT NULL": ("id", 2),
        "sqlite infos: queue_id = (SELECT id FROM pinlater_queues WHERE n -> CAST(? AS CHAR) IS NOT NULL": ("id", 2),
        "sqlite attempts: row[PRIORITY] != each.priority or -> nothing": ("id", 2),
        "sqlite attempts: if row[PRIORITY] != each.priority: -> if False:": ("twice", 2),
        "sqlite attempts: bool(row[CLAIM] == each.claim_descriptor) -> True": ("ack", 2),
        "sqlite admin: row is None or row[1] != job.priority -> row is None": ("id", 2),
        "sqlite queries: row is not None and row[2] == job.priority -> row is not None": ("id", 2),
        "sqlite when_claimed: state = 1 -> state >= 1": ("ended", 8),
    },
    "noise at one shard": {
        "service.dequeuer: the acks of a dequeue that failed are said to be carried out": ("ended", 24),
    },
    "noise": {
        "service.job_lifecycle: an ack is answered although its call of the store failed": ("ack", 8),
        "shards.router: an enqueue of which nobody knows whether it was stored is stored on another shard": ("once", 8),
    },
    "counts": {
        "sqlite scan_at: id > ? -> id >= ?": ("shown", 2),
        "sqlite scan_at: state = ? -> state >= ?": ("shown", 8),
        "sqlite scan_between: state = ? -> state >= ?": ("shown", 2),
        "sqlite scan_between: priority = ? -> priority >= ?": ("shown", 2),
        "sqlite tagged: tagged.job_id < ? -> tagged.job_id <= ?": ("shown", 2),
        "sqlite queries: if state in states and -> if": ("shown", 2),
        "sqlite queries: and low <= run_after_ms <= high -> nothing": ("shown", 2),
        "sqlite queries: priority in request.priorities and -> nothing": ("shown", 2),
        "sqlite count_between: state = ? -> state >= ?": ("stuck", 8),
    },
    "one worker": {
        "sqlite candidates: ORDER BY run_after_ms, id -> ORDER BY id": ("order", 8),
        "sqlite candidates: ORDER BY run_after_ms, id -> ORDER BY run_after_ms, id DESC": ("order", 8),
    },
    "many queues": {
        "sqlite candidates: queue_id = ? -> queue_id >= ?": ("id", 2),
        "sqlite ready_jobs: rows[start : start + request.limit] -> rows[start:]": ("limit", 8),
    },
    "operators": {
        "sqlite oldest: priority = ? -> priority >= ?": ("attempts", 8),
        "sqlite oldest: ORDER BY run_after_ms, id LIMIT ? -> AND ? > 0": ("limit", 8),
        "sqlite clear_moved_to: moved_to = NULL -> moved_to = moved_to": ("state", 8),
        "sqlite dead_letters: row[2] in GOES and link -> link": ("ack", 8),
        "sqlite oldest: queue_id = ? -> queue_id >= ?": ("lost", 8),
    },
    "operators in a crowd": {
        "sqlite admin: row[1] == job.priority and row[2] in STATES_OF[sta -> row[1] == job.priority": ("ack", 8),
        "sqlite admin: row[1] == job.priority and row[2] in STATES_OF[sta -> True": ("ack", 8),
    },
    "schedules": {
        "shards.keys.key_router: a firing leaves no mark": ("schedule", 8),
        "schedules.firer: a schedule fires two seconds early": ("schedule", 2),
        "sqlite keyed_jobs: if offer.schedule and offered.outcome <= OfferOutc -> if False:": ("schedule", 2),
    },
    "a long pause": {
        "queues.directory: a pause is overlooked": ("paused", 8),
    },
    "clocks within the tolerance": {
        "sqlite allocate_ids: max(next_id, ?) -> max(0, ?)": ("chain", 8),
    },
    "slow flows": {
        "sqlite attempts: and bool(row[EXPIRES_AT] == claim.expires_at_ms) -> nothing": ("ended", 8),
    },
    "flows away": {
        "sqlite attempts: and row[1] not in left_alone -> nothing": ("flow", 8),
    },
    "acks twice": {
        "flows.end_records: a failure that is reported twice counts twice": ("flow", 8),
    },
    "a wrong clock": {
        "cluster.clocks: the time is that of the server's own clock, whatever the others say": ("early", 8),
    },
    "keyed on two servers": {
        "shards.keys.homes_record: a key has its home by chance": ("key", 2),
    },
    "a steady pace": {
        "service.queue_limits: jobs are handed out without tokens": ("rate", 8),
    },
    "a further shard": {
        "sqlite keyed_jobs: bool(offer.only_if_known or offer.schedule) -> bool(offer.schedule)": ("chain", 8),
    },
    "contested": {
        "sqlite keyed_jobs: self._chains.untake(first_id) -> nothing": ("stuck", 8),
        "sqlite keyed_jobs: if priority != job.priority: -> if False:": ("key", 8),
        "sqlite keyed_jobs: self._note_not_replaced(running) -> nothing": ("stuck", 2),
        "sqlite keyed_jobs: if send and offered.outcome in (OfferOutcome.KEPT, -> if False:": ("send", 2),
        "sqlite job_ends: [each for each in going if each.keys.flags & HAS_W -> []": ("send", 2),
        "sqlite keyed_jobs: if send or window_ms: -> if window_ms:": ("send", 2),
        "sqlite drop_keys: is_send_id = 0 AND -> nothing": ("send", 2),
        "sqlite drop_keys_over: until_ms >= 9007199254740991 -> 1 = 0": ("stuck", 8),
        "sqlite drop_keys_over: THEN window_ms <= 0 ELSE -> THEN TRUE ELSE": ("key", 2),
        "sqlite job_ends: if stays is Stays.WINDOWS: -> if stays is not Stays.JOB:": ("key", 2),
        "sqlite drop_keys: AND job_id IN (SELECT value FROM json_each(?)) -> AND 5 NOT IN (SELECT value FRO": (
            "key",
            8,
        ),
    },
    "a provider that comes and goes": {
        "queues.breaker_probes: two servers take the slot of a probe": ("probe", 8),
        "queues.breaker_record: a probe that is out does not keep the next one back": ("probe", 8),
        "queues.breakers: a probe that succeeded closes no breaker": ("stuck", 8),
    },
    "latest": {
        "sqlite keyed_jobs: stands = self._successors.get(keys[2], entry) -> stands = entry": ("stuck", 8),
        "sqlite keyed_jobs: elif job.replace_running is ReplaceRunning.KEEP: -> elif False:": ("key", 2),
        "sqlite keyed_jobs: flags, state = flags | STOPPING, WAITING -> flags |= STOPPING": ("ack", 2),
        "sqlite keyed_jobs: self._successors.get(name, entry) if is_newer else -> entry": ("send", 2),
        "sqlite successors: or not goes_on or -> or": ("stop", 8),
        "sqlite successors: if not own_flags & IN_CHAIN -> if True": ("chain", 2),
        "sqlite successors: if entry.job_id == own[name].job_id] -> if False]": ("chain", 8),
        "sqlite job_ends: if paired: -> if False:": ("stuck", 8),
        "sqlite attempts: goes_on = outcome is AckOutcome.RETRIED -> goes_on = False": ("chain", 8),
        "sqlite attempts: row[EXTENDED], goes_on=True) -> row[EXTENDED], goes_on=False)": ("chain", 8),
        "sqlite attempts: goes_on=remaining > 0) -> goes_on=False)": ("chain", 8),
        "sqlite attempts: (cancelled_by := known[each.id].cancelled_by) -> (cancelled_by := known[each.id": ("stop", 2),
        "sqlite admin: for job_id in stop_requests(session, stopping) if  -> for job_id in stopping:": ("state", 24),
    },
    "latest that moves": {
        "sqlite keyed_jobs: elif offer.takes_no_jobs: -> elif False:": ("state", 24),
    },
    "homes that move": {
        "sqlite keyed_jobs: elif offer.only_if_known and not (serialize and se -> elif False:": ("key", 2),
        "sqlite keyed_jobs: elif offer.only_if_known and offer.takes_no_jobs: -> elif False:": ("key", 8),
    },
    "homes behind a freeze": {
        'sqlite keyed_jobs: if (version or "") > homes_version: -> if False:': ("state", 8),
        "sqlite key_entries: if entry.stands(now_ms)} -> }": ("key", 8),
    },
    "chains that move": {
        "sqlite chains: return bool(member.behind) -> return False": ("chain", 2),
        "sqlite chains: if not behind[row[0]]], freed) -> ], freed)": ("state", 8),
    },
    "schedules amid freezes and noise": {
        'sqlite keyed_jobs: self._fired.get(offer.schedule, "") >= offer.mark: -> self._fired.get(offer.schedule': (
            "schedule",
            24,
        ),
    },
    "noise at bodies": {
        "bodies.tiered_shard: a body is deleted although its job may be stored": ("body", 8),
    },
    "a flood beside tenants": {
        "sqlite first_turns: ORDER BY turn, grp -> ORDER BY grp": ("turn", 8),
        "sqlite first_in_line: ORDER BY run_after_ms, job_id -> ORDER BY job_id": ("order", 8),
        "sqlite await_turns: max(pinlater_turns.turn, excluded.turn) -> excluded.turn": ("turn", 8),
        "sqlite group_lines: group, time, 1) for -> group, 0.0, 1) for": ("turn", 8),
        "sqlite group_lines: line.turn + count * self._stride(priority, group) -> line.turn + self._stride(prior": (
            "turn",
            8,
        ),
        "sqlite group_lines: self.enter_due([each for -> self.enter_due([0 for": ("stuck", 8),
        "sqlite times_for_claim: state = 0 -> state = -1": ("stuck", 8),
        "sqlite attempts: leave(session, sorted(each.job_id for each in ends -> nothing": ("stuck", 8),
        "sqlite attempts: leave(session, sorted(row[0] for row in rows if ro -> nothing": ("stuck", 8),
        "sqlite admin: put_back(session, sorted(moved)) -> nothing": ("early", 8),
        "sqlite keyed_jobs: if state == IN_LINE: -> if False:": ("order", 8),
    },
    "tenants on two shards": {
        "sqlite ready_jobs: counts[priority] += count -> pass": ("stuck", 8),
        "sqlite group_lines: heap = list(groups)\n        heapify -> heap = [each for each in group": ("turn", 24),
        "sqlite ready_jobs: if turns is not None and turns.pass_over(over, MOS -> if False": ("turn", 24),
    },
    "orders to workers": {
        "cluster.worker_commands: an order to go on never comes": ("stuck", 8),
        "cluster.worker_commands: a worker gets what another one is to do": ("stuck", 8),
    },
}
