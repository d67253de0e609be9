"""Why no plan finds it, in a sentence, of the guards that were looked into one by one."""

from __future__ import annotations

from collections.abc import Mapping

WHY: Mapping[str, tuple[str, ...]] = {
    "counts that are too high are not judged, since servers bring jobs by themselves": (
        "sqlite count_between: priority = ? -> priority >= ?",
        "sqlite count_between: queue_id = ? -> queue_id >= ?",
    ),
    "a millisecond early lies within the time that the answer takes, which the checker allows": (
        "sqlite candidates: run_after_ms <= ? -> run_after_ms <= ? + 1",
        "sqlite expired_claims: claim_expires_at_ms < ? -> claim_expires_at_ms <= ?",
        "sqlite expired_claims_of_others: claim_expires_at_ms < ? -> claim_expires_at_ms <= ?",
        "sqlite expired_claims_of: claim_expires_at_ms < ? -> claim_expires_at_ms <= ?",
    ),
    "a job that comes a millisecond late breaks no rule": ("sqlite candidates: run_after_ms <= ? -> run_after_ms < ?",),
    "what counts and scans leave out is judged only of jobs whose time has long come": (
        "sqlite count_between: run_after_ms <= ? -> run_after_ms < ?",
        "sqlite count_between: run_after_ms >= ? -> run_after_ms > ?",
        "sqlite scan_between: run_after_ms <= ? -> run_after_ms < ?",
        "sqlite queries: return (now_ms + 1, MAX_TIME_MS) -> return (now_ms, MAX_TIME_MS)",
    ),
    "a claim passes over a job whose time is over, and a later round of maintenance ends it": (
        "sqlite expired_jobs: expiry.expires_at_ms <= ? -> expiry.expires_at_ms < ?",
    ),
    "which of the failed jobs a call takes is not judged, only how many": (
        "sqlite oldest: ORDER BY run_after_ms, id -> ORDER BY id",
    ),
    "the checker knows the smallest crash budget that a queue may have had, and allows more": (
        "sqlite attempts: 0 < rules.crash_budget <= crashes -> 0 < rules.crash_budget < crash",
        "sqlite attempts: rules.get(names[row[1]]) -> rules.default",
    ),
    "no rule says that a job that fails must have a dead letter": (
        "sqlite attempts: if rules.dead_letters: -> if False:",
        'sqlite attempts: DEAD_LETTER_PENDING_MS if name == "fail_and_mark"  -> None',
        'sqlite attempts: "fail_and_mark" if rules.dead_letters else "fail" -> "fail"',
        "sqlite admin: [letters.going[job_id] for job_id in ids if job_id -> []",
    ),
    "each round of maintenance copies the same jobs anew, for ever at one moment": (
        "sqlite clear_dead_letter_pending: claim_expires_at_ms = NULL -> claim_expires_at_ms = claim_ex",
    ),
    "no part names a letter twice in one call: the service sends each name once": (
        "sqlite dead_letters: del rows[job.id]  # named twice -> pass  # named twice",
    ),
    "none of these plans drains a shard on which dead letters wait, so no letter lies elsewhere": (
        "sqlite dead_letters: if ref is not None and ref.shard == session.shard_ -> if ref is not None",
        "sqlite dead_letters: for row, letter_elsewhere in _originals(session, l -> for row, letter_elsewhere in (",
    ),
    "it shows beside servers of a version before, and all simulated ones are of this one": (
        "sqlite dead_letters: if marks_originals: -> if True:",
    ),
    "how long a job is kept whose dead letter was sent back is not judged": (
        'sqlite dead_letters: session.run_of("note_cancelled", (), [job_id]) -> pass',
    ),
    "no rule ties a job to the one that its dead letter was sent back as": (
        "sqlite admin: for row in rows if row[2] != REPLAYED] -> for row in rows]",
    ),
    "the dead letters of the parts have no dead-letter queue of their own, so no letter has a copy": (
        "sqlite dead_letters: (ref.id not in links or links[ref.id][MOVED_TO] is -> True",
    ),
    "no plan changes the homes of keys while operators retry or send back": (
        "sqlite admin: queue_by_homes(session, queue, homes_version), _li -> session.queue_id(queue), _list",
        "sqlite dead_letters: queue_by_homes(session, queue, homes_version) -> nothing",
    ),
    "a search holds each job against all its tags again, so a wider index only reads more": (
        "sqlite tagged: tagged.tag = ? -> tagged.tag >= ?",
    ),
    "pages then leave out jobs, and what a search leaves out is not judged": (
        "sqlite tagged: ORDER BY tagged.job_id DESC -> ORDER BY 1",
    ),
    "only an item is claimed by its name, alone, and the service has looked it up before": (
        "sqlite listed: queue_id = ? -> queue_id > 0 * ?",
        "sqlite ready_jobs: if row and row[1] != job.priority: -> if False:",
        "sqlite ready_jobs: rows[job.id] = (*row, _IN_PROGRESS) -> nothing",
        "sqlite ready_jobs: elif job.id not in alive: -> elif False:",
        "sqlite ready_jobs: elif state == WAITING: -> elif False:",
        "sqlite ready_jobs: elif row[2] > now_ms: -> elif False:",
        "sqlite ready_jobs: elif row[2] > now_ms: -> elif row[2] >= now_ms:",
        "sqlite ready_jobs: elif len(batch) >= room or -> elif len(batch) > room or",
    ),
    "no part retries a job that was stored with a send id": (
        "sqlite forget_send_ids: until_ms <= ? -> until_ms <= 0 * ?",
        "sqlite forget_send_ids: until_ms <= ? -> until_ms >= 0 * ?",
    ),
    "no bound of pending jobs is judged: servers count them seconds late": (
        "service.job_lifecycle: a full queue takes jobs",
        "service.job_lifecycle: a full group takes jobs",
    ),
    "no part sends a dead letter with a body in a tier back": (
        "sqlite dead_letters: share(session, {new_id: job.id}) -> pass",
    ),
    "a claim that is bound to a connection may end at any time, since no history shows that one broke": (
        "sqlite attempts: and row[LAST_SEEN_AT] == claim.last_seen_ms -> nothing",
        "sqlite attempts: row[LAST_SEEN_AT] == claim.last_seen_ms -> row[LAST_SEEN_AT] <= claim.las",
    ),
    "what the acks free comes with the next claim, and how soon it comes is not judged": (
        "sqlite ready_jobs: outcomes = ack(session, freed, queue, acks, now_ms -> claims = claim(session, queue,",
    ),
    "a dead letter may go with any retry in the queue of its job, since no rule ties it to that job": (
        "sqlite admin: [letters.going[job_id] for job_id in ids if job_id -> list(letters.going.values())",
    ),
    "it changes who is named as the one who asked first": (
        "sqlite admin: for job_id in stop_requests(session, stopping) if  -> for job_id in ():",
        "sqlite keyed_jobs: (not by or stop_requests(self._session, [job_id])) -> not by",
    ),
    "a job that waits then expires when its turn comes, and how soon it does is not judged": (
        "sqlite expired_jobs: job.state IN (0, 4, 8) -> job.state IN (0, 8)",
    ),
    "a letter whose key another one has is then not retried, and which jobs a retry leaves alone is not judged": (
        "sqlite admin: if flags & COUNTS_AGAIN] -> ]",
    ),
    "all dequeues are for the same priorities, so one group has all requests of a call": (
        "sqlite ready_jobs: room -= sum(map(len, batches)) -> pass",
    ),
    "nobody reads of a claim that is listed whether its job is to stop: whoever ends it is told": (
        "sqlite attempts: claim[1] in to_stop -> False",
        "sqlite attempts: stop_requests(session, stopping) if stopping else  -> set(stopping)",
    ),
    "a server offers a shard what that lacks, and goes by the newest entry of all shards": (
        "sqlite coordination: entry.version > here -> True",
    ),
    "an entry that is there already is written once more": (
        "sqlite coordination: entry.version > here -> entry.version >= here",
    ),
    "a home is told a mark only where it has none or a lower one, so a firing has to come in between": (
        "sqlite put_firings: max(mark, excluded.mark) -> excluded.mark",
    ),
    "two servers divide the quotas of a queue at once, as when one stood still, and what both give is used at once": (
        "sqlite coordination: version <= version_here -> version < version_here",
        "sqlite coordination: expected_version in (None, version) -> True",
    ),
    "the mover claims the job again at once, and moves it for ever": (
        "homes.job_mover: a job that has left the overflow shard stays there, too",
    ),
    "an entry whose job was never stored counts as over, so its key is free all the same": (
        'sqlite keyed_jobs: session.run_in("untake_keys", (self._queue_id,), [ -> nothing',
    ),
    "a window that ends a millisecond late does so within the time that the calls take": (
        "sqlite extensions: return self.until_ms is None or self.until_ms > no -> return self.until_ms is None o",
    ),
    "no part sends a request again ten minutes after its end, in the seconds until the entry is removed": (
        "sqlite keyed_jobs: if sent is not None and sent.stands(self._now_ms): -> if sent is not None:",
    ),
    "the client asks to keep such a job, and rejects by the answer what was kept": (
        "sqlite keyed_jobs: if job.on_duplicate == OnDuplicate.REJECT: -> if False:",
    ),
    "a chain has to get another barrier between a look and the lift: none of 23 that were lifted had": (
        "sqlite chains: chain.behind == named[key] -> True",
    ),
    "the row says that nobody waits, which only the list of blocked chains shows": (
        "sqlite drop_unblocked: waiting <= 0 -> waiting < 0",
    ),
    "a retry leaves the job as it is then, and which jobs a retry takes is not judged": (
        "sqlite keyed_jobs: entry is not None and entry.until_ms is None and e -> entry is not None and entry.jo",
    ),
    "the former home is asked first, so a window meets no entry at the new one: none of 560 that moved did": (
        "sqlite key_entries: if name not in stand -> nothing",
    ),
    "a window has to change between a list and its removal: none of 560 that were removed had": (
        "sqlite drop_window: AND until_ms = ? -> AND until_ms > 0 * ?",
    ),
    "each call that brings a body makes a reference of its own, and no server sends such a call twice": (
        "sqlite held_references: if bytes(reference) != keeping] -> ]",
    ),
    "the object of a result that is gone stays in its tier, which no caller sees": (
        "sqlite key_entries: if size & REFERENCE_BIT] -> if False]",
    ),
    "a job that replaces by less than it asked for may come at any time before that": (
        "sqlite keyed_jobs: if job.replace_within_ms is not None: -> if False:",
    ),
    "a running job that has had a successor may end as cancelled, also when that is gone or it has no attempt left": (
        "sqlite keyed_jobs: flags, state = flags | STOPPING, WAITING -> state = WAITING",
        "sqlite successors: return bool(successors(session, job.queue_id, [job -> return True",
        "sqlite attempts: goes_on=remaining > 0) -> goes_on=True)",
    ),
    "all jobs of a key have the same priority": (
        "sqlite keyed_jobs: and offered.outcome is not OfferOutcome.DIFFERENT -> nothing",
    ),
    "which of two jobs waits for the other is shown to operators": (
        "sqlite queries: if entry.job_id != job.job_id: -> if True:",
    ),
    "no history shows when a connection breaks, so the checker allows that turns go back, and that they do not": (
        'sqlite group_lines: sorted(groups):\n        session.run("give -> []:\n        session.run("give',
        "sqlite group_lines: time = max(time, self._times.get(priority, 0.0)) -> nothing",
    ),
    "whoever comes when nobody waits gets one turn before the group that was served last, which the bound allows": (
        'sqlite group_lines: time = max(time, session.rows("last_past_turn", (* -> pass',
    ),
    "a shard that is not told of a permit asks for room again after five seconds": (
        "sqlite group_permits: state.waiting[permits:] + state.waiting[:permits] -> state.waiting",
        "sqlite group_permits: max(self.full_at_ms, self.until_ms) if self.waitin -> self.full_at_ms",
    ),
    "a permit that no ack took back is taken back when it is checked, seconds later": (
        'sqlite group_permits: in ("", claim_descriptor): -> in (claim_descriptor,):',
    ),
    "permits are checked each second, instead of each ten": (
        "sqlite put_permits_off: SET check_at_ms = ? -> SET check_at_ms = check_at_ms ",
    ),
    "what a shard claims beyond its room gets no permit, and goes back": (
        "sqlite group_lines: jobs=max(0, room.jobs - count) -> jobs=room.jobs",
        "sqlite group_lines: room is None else room.jobs) - of_others -> room is None else room.jobs)",
        "sqlite group_permits: if group in with_jobs or not jobs -> if group in with_jobs",
    ),
    "a job whose last claim has a permit still waits until a check takes that back": (
        "sqlite group_permits: known.get(holder) == group -> False",
    ),
    "a server has to stand still between the claim and the permit, while the job is claimed by another one": (
        "sqlite group_permits: zip(own[:granted], -> zip(own,",
    ),
    "the job has to be claimed again between the check of its claim and the end of the permit": (
        'sqlite group_permits: if by_holder[bytes(holder)].claim_descriptor in (" -> if True:',
    ),
    "a bucket that is full again each second gives hardly more than the rate, which the bound allows": (
        "sqlite past_permit_groups: until_ms <= ? -> until_ms > 0 * ?",
    ),
    "a worker reports to each server in turn, and so to the one that was asked": (
        "cluster.worker_commands: only workers of the server that was asked get an order",
    ),
    "no part gives a group a maximum and a rate at once": (
        "sqlite group_permits: take(state.bucket, wanted, -> take(state.bucket, len(request",
    ),
}
