"""The guards above the stores: each is taken out by one change of one module, and has a name of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tests.conformance.mutation import Change


@dataclass(frozen=True)
class Guard(Change):
    """`what`: how the product goes wrong without it."""

    what: str

    @property
    def name(self) -> str:
        return f"{self.place.removeprefix('pinlater.')}: {self.what}"


def _guard(what: str, module: str, old: str, new: str) -> Guard:
    return Guard("sqlite", f"pinlater.{module}", old, new, what, is_module=True)


CLAIMS = [
    _guard(
        "jobs are handed out five seconds early",
        "shards.resilience",
        "as seen from the end of time it stays, whatever it is now\n            now_ms = clock.now_ms()\n",
        "as seen from the end of time it stays\n            now_ms = clock.now_ms() + 5_000\n",
    ),
    _guard(
        "an ack counts for whichever claim there is",
        "service.descriptors",
        "own = (ack.append_status, ack.retry_delay_ms, ack.claim_descriptor, ack.permanent, ack.result)",
        'own = (ack.append_status, ack.retry_delay_ms, "", ack.permanent, ack.result)',
    ),
    _guard(
        "an ack is answered although its call of the store failed",
        "service.job_lifecycle",
        "return self.settle(prepared, all_answered(outcomes), refused=prepared.errors.count - before)",
        "done = [[AckOutcome.SUCCEEDED] * len(acks) for acks in prepared.by_shard.values()]\n"
        "        fine = [d if isinstance(o, PinLaterError) else o for o, d in zip(outcomes, done, strict=True)]\n"
        "        return self.settle(prepared, fine, refused=prepared.errors.count - before)",
    ),
    _guard(
        "the acks of a dequeue that failed are said to be carried out",
        "service.dequeuer",
        "error.acks_applied = riding.acked is not None or bool(error.acks_applied)",
        "error.acks_applied = True",
    ),
    _guard(
        "claims expire three seconds early",
        "maintenance.tasks",
        "shard.expire_claims(limit, self._clock.now_ms(), ",
        "shard.expire_claims(limit, self._clock.now_ms() + 3_000, ",
    ),
    _guard(
        "jobs that were received are taken back as undelivered",
        "server.deliveries",
        "if not self._open or not self._is_traced:",
        "if True:",
    ),
    _guard(
        "nobody looks after shard 1",
        "cluster.membership",
        "return self._may_own() and self.owner(shard_id) == self.me.lease_name",
        'return shard_id != "1" and self._may_own() and self.owner(shard_id) == self.me.lease_name',
    ),
    _guard(
        "every server looks after every shard",
        "cluster.membership",
        "return self._may_own() and self.owner(shard_id) == self.me.lease_name",
        "return self._may_own()",
    ),
    _guard(
        "the time is that of the server's own clock, whatever the others say",
        "cluster.clocks",
        "if 2 * len(near) > len(everyone):",
        "if True:",
    ),
]

JOBS = [
    _guard(
        "an enqueue of which nobody knows whether it was stored is stored on another shard",
        "shards.router",
        "except (NothingStored, QueueNotFound) as error:",
        "except (NothingStored, OutcomeUnknown, QueueNotFound) as error:",
    ),
    _guard(
        "a request to stop is forgotten",
        "service.job_commands",
        "now_ms, by))\n            for shard_id, named in groups.items()\n        ]\n"
        "        for (shard_id, named), results in zip(groups.items(), await self._router.call_by_shard(calls), "
        "strict=True):\n"
        "            for (descriptor, _), outcome in zip(named, results or (), strict=False):\n"
        "                outcomes[descriptor] = outcome\n",
        'now_ms, ""))\n            for shard_id, named in groups.items()\n        ]\n'
        "        for (shard_id, named), results in zip(groups.items(), await self._router.call_by_shard(calls), "
        "strict=True):\n"
        "            for (descriptor, _), outcome in zip(named, results or (), strict=False):\n"
        "                requested = bool(by) and outcome is CancelOutcome.IN_PROGRESS\n"
        "                outcomes[descriptor] = CancelOutcome.REQUESTED if requested else outcome\n",
    ),
    _guard(
        "heartbeats do not tell of a request to stop",
        "service.heartbeats",
        "                answers[place] = answer\n",
        "                answers[place] = HeartbeatAnswer(HeartbeatOutcome.OK)\n",
    ),
    _guard("results are dropped", "service.descriptors", "if result is None:", "if True:"),
    _guard(
        "ended jobs are removed a week early",
        "maintenance.tasks",
        "shard.prune(limit, now_ms, ",
        "shard.prune(limit, now_ms + 604_800_000, ",
    ),
    _guard(
        "the keys of a job are left out",
        "service.job_lifecycle",
        "extended = extended_jobs(checked, self._validator.max_claim_timeout_ms)",
        "checked = [Job(job.body, job.priority, job.run_after_ms, job.attempts_allowed) for job in checked]",
    ),
    _guard(
        "a key has its home by chance",
        "shards.keys.homes_record",
        'home = rendezvous_pick(f"slot/{slot}", members)',
        'home = __import__("random").choice(members)',
    ),
    _guard(
        "a body is deleted although its job may be stored",
        "bodies.tiered_shard",
        "        except _NO_CHANGE:\n            self._discard(bodies)\n",
        "        except PinLaterError:\n            self._discard(bodies)\n",
    ),
    _guard(
        "a body is deleted as soon as its job is stored",
        "bodies.tiered_shard",
        "            return await call\n        except _NO_CHANGE:\n",
        "            stored = await call\n            self._discard(bodies)\n            return stored\n"
        "        except _NO_CHANGE:\n",
    ),
    _guard(
        "a job that has left the overflow shard stays there, too",
        "homes.job_mover",
        "await self._store.mark_moved(queue, pairs, now_ms)",
        "await self._store.requeue(queue, [key for key, _ in pairs], now_ms)",
    ),
]

LIMITS = [
    _guard(
        "each shard has the whole maximum in progress",
        "queues.rebalance",
        "quotas = {shard_id: min(target, self.held[shard_id]) for shard_id, target in self._targets.items()}",
        "quotas = dict.fromkeys(self._targets, self.maximum)",
    ),
    _guard(
        "claims do not ask for the quota of their shard",
        "service.queue_limits",
        "enforce_quota = settings.max_in_progress is not None\n        wanted = ",
        "enforce_quota = False\n        wanted = ",
    ),
    _guard(
        "jobs are handed out without tokens",
        "service.queue_limits",
        "if per_second is not None:\n            granted, retry_after_ms = await",
        "if False:\n            granted, retry_after_ms = await",
    ),
    _guard(
        "a pause is overlooked",
        "queues.directory",
        "if until_ms is None or self._clock.now_ms() < until_ms:",
        "if until_ms is not None and self._clock.now_ms() < until_ms:",
    ),
    _guard(
        "two servers take the slot of a probe",
        "queues.breaker_probes",
        "self._clock.now_ms(), expected_version=expected\n",
        "self._clock.now_ms()\n",
    ),
    _guard(
        "a probe that is out does not keep the next one back",
        "queues.breaker_record",
        "if self.state is SlotState.OUT:\n            return None",
        "if False:\n            return None",
    ),
    _guard(
        "a probe that succeeded closes no breaker",
        "queues.breakers",
        "for queue, opened in await self.probes.follow(owns):",
        "for queue, opened in (await self.probes.follow(owns))[:0]:",
    ),
    _guard(
        "a full queue takes jobs",
        "service.job_lifecycle",
        "            if max_pending is not None:\n                self._pending.check(",
        "            if False:\n                self._pending.check(",
    ),
]

GROUP_LIMITS = [
    _guard(
        "jobs of a group without permits are handed out",
        "queues.group_limits",
        "if refused:\n            claims[:]",
        "if False:\n            claims[:]",
    ),
    _guard(
        "while the home of permits is out, groups have no limits",
        "queues.group_limits",
        "if answers else PermitAnswer(0, UNCOUNTED_MS)",
        "if answers else PermitAnswer(len(jobs))",
    ),
    _guard(
        "jobs of a group without permits stay claimed",
        "queues.group_limits",
        "await self._router.requeue(queue, shard_id, hold.jobs, self._clock.now_ms())\n        self.on_ready",
        "self.on_ready",
    ),
    _guard(
        "acks give no permits back",
        "queues.group_limits",
        "        self._end_later(queue, ended)\n",
        "",
    ),
    _guard(
        "permits of claims that ended without a word stay",
        "queues.group_limits",
        "            await self._check(queue, due)\n",
        "",
    ),
    _guard(
        "permits of jobs that are in progress are taken back",
        "queues.group_limits",
        "if info is None or info.state is not JobState.IN_PROGRESS",
        "if True",
    ),
    _guard(
        "permits of claims on a shard that is out are taken back",
        "queues.group_limits",
        "            return keys\n        except PinLaterError:\n            return ()",
        "            return keys\n        except PinLaterError:\n            return keys",
    ),
    _guard(
        "permits of claims on a shard that is given up stay",
        "queues.group_limits",
        "if self._gone.is_gone(shard_id):\n            return keys",
        "if False:\n            return keys",
    ),
    _guard(
        "the home of permits stays on a shard that is given up",
        "queues.group_limits",
        "if shard_id and not self._gone.is_gone(shard_id):",
        "if shard_id:",
    ),
    _guard(
        "limits of a group of its own, or of a pattern, are overlooked",
        "queues.group_rules_book",
        "limit = _limit(self._texts(queue, group, paused=False)[1], of_all)",
        "limit = of_all",
    ),
    _guard(
        "the limit of a group stays as it was first",
        "queues.group_rules_book",
        "self._limits[queue] = _Limits(self._rules[queue])",
        "self._limits.setdefault(queue, _Limits(self._rules[queue]))",
    ),
    _guard(
        "a full group takes jobs",
        "service.job_lifecycle",
        "self._pending.groups.check(queue, due, settings.group_max_pending)",
        "pass",
    ),
    _guard(
        "a group is full of the jobs of others",
        "queues.group_pending_counts",
        "waiting = 0 if level is None else level.counted + level.added",
        "waiting = sum(each.counted + each.added for each in levels.values())",
    ),
    _guard(
        "jobs of a group that were counted count again",
        "queues.group_pending_counts",
        "            level.added -= added\n",
        "",
    ),
]

SCHEDULES_AND_FLOWS = [
    _guard(
        "a firing leaves no mark",
        "shards.keys.key_router",
        "offer = Offer(job, slot, schedule=schedule, mark=mark, by=by)",
        "offer = Offer(job, slot)",
    ),
    _guard(
        "a schedule fires two seconds early",
        "schedules.firer",
        "if following is None or following > now_ms:",
        "if following is None or following > now_ms + 2_000:",
    ),
    _guard(
        "the end of an item is not recorded",
        "service.job_lifecycle",
        "        if queue in self._queues.flow_queues:\n            prepared = await",
        "        if False:\n            prepared = await",
    ),
    _guard(
        "an item that has ended ends again",
        "flows.end_records",
        "            if not is_pending:\n                return RecordedEnd(EndOutcome.ENDED)\n            below",
        "            below",
    ),
    _guard(
        "a failure that is reported twice counts twice",
        "flows.end_records",
        'if end.claim and (item["number"], _claim(end)) in self._counted:',
        "if False:",
    ),
]

WORKERS = [
    _guard(
        "an order to go on never comes",
        "cluster.worker_commands",
        "return None if found is None or found[1] <= self._clock.now_ms() else found[0]",
        "return None if found is None or found[0].command is WorkerCommand.RESUME else found[0]",
    ),
    _guard(
        "only workers of the server that was asked get an order",
        "cluster.worker_commands",
        "        if self._has_news():\n",
        "        if False:\n",
    ),
    _guard(
        "a worker gets what another one is to do",
        "cluster.worker_commands",
        "found = self._known.get(key)\n        return",
        "found = self._known.get(key) or next(iter(self._known.values()), None)\n        return",
    ),
]

GUARDS = [*CLAIMS, *JOBS, *LIMITS, *GROUP_LIMITS, *SCHEDULES_AND_FLOWS, *WORKERS]
