"""Lines of groups in SQL: due jobs wait in the line of their group, and groups take turns (see group_store.py).

Who changes lines or turns of a priority has locked its virtual time first, behind the rows of jobs: a claim holds that
lock and skips jobs that are locked, so it waits for nobody who waits for it. A queue has a virtual time once a job with
a group came in; before, none of this is looked at.

A group that is paused, or has no room (permit_store.py), is held back by the first claim that comes to it: then no
claim passes over it. It waits for its turn again from the end of that time on, or from the change of its rule or its
room.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import NamedTuple

from pinlater.backends.group_rules import GROUP_RULES_PREFIX, NO_GROUP_RULES, GroupRules, read_group_rules
from pinlater.backends.group_store import ENTERED, HELD_AT_ONCE, TURN, WEIGHED
from pinlater.backends.permit_store import GroupRoom
from pinlater.backends.requests import GroupSpread
from pinlater.backends.sql.extensions import split_group
from pinlater.backends.sql.session import Row, Session, in_slices
from pinlater.model import MAX_TIME_MS

_NO_BOUND = 2**53
GROUPS_PER_STATEMENT = 64
"""Lines whose first jobs are read at once."""

CLEARING = 0
"""No priority: its virtual time is there while the groups of a queue are taken off its jobs (cleared_groups.py), and no
job with a group has come in since. Meanwhile no job comes into line.
"""


DueJob = tuple[int, int, bytes]
"""A due job on its way into a line: its id, run_after and group."""


class _Line(NamedTuple):
    """The first jobs of a group's line, which may have more, and the group's turn."""

    turn: float
    jobs: Sequence[int]
    has_more: bool


class _Turn(NamedTuple):
    """What is written of a group: its next turn, and `waits` as in the tables."""

    group: bytes
    turn: float
    waits: int


class Turns:
    """The jobs of one claim of a queue with groups, by turns. With `looks` it changes and locks nothing.

    `candidates` may be asked again for more, or for others than what it was told to pass over; `serve` is told what was
    handed out. `most` and `spread` are those of a ClaimRequest.
    """

    def __init__(
        self,
        session: Session,
        queue_id: int,
        rules: GroupRules,
        *,
        most: int = 0,
        spread: GroupSpread | None = None,
        looks: bool = False,
    ) -> None:
        self._session = session
        self._queue_id = queue_id
        self._rules = rules
        self._most = most
        self._spread = {
            (priority, group.encode()): shards
            for priority, groups in (spread or {}).items()
            for group, shards in groups.items()
        }
        self._looks = looks
        self._times: dict[int, float] = {}
        """The virtual time of each priority, locked."""

        self._aside: set[int] = set()
        """The priorities where groups may be that wait for no turn: they have no job, or are held back."""

        self._waiting: dict[int, set[bytes]] = {}
        """By priority, the groups that wait for turns, where all of them were read."""

        self._lines: dict[tuple[int, bytes], _Line] = {}
        self._picked: dict[int, tuple[int, bytes, float]] = {}
        """By job: its priority, its group, and the turn at which it was picked."""

        self._rows: dict[int, Row] = {}
        """Those of candidates, locked, by id: who asks again, for more, reads no job twice."""

        self._rooms: dict[bytes, GroupRoom | None] = {}
        """What groups have room for, of those that were come to; None: no bound is known."""

        self._used_rooms: set[bytes] = set()
        self._in_hand: dict[int, Counter[bytes]] = {}
        """By priority, how many jobs of each group were picked last."""

        self._handed_out: Counter[bytes] = Counter()
        """How many jobs of each group this claim has handed out."""

        self._passed_over: set[int] = set()
        self._is_clearing = False

    def groups(self) -> dict[int, str]:
        """The groups of the jobs that were picked, by id; one that was not in line is left out."""
        names = {group: group.decode() for _, group in self._lines}
        return dict(zip(self._picked, map(names.__getitem__, map(itemgetter(1), self._picked.values())), strict=True))

    def candidates(self, queue_id: int, priorities: Sequence[int], limit: int, now_ms: int) -> list[Row]:
        """As `Session.candidates`."""
        session, found = self._session, list[Row]()
        if not self._looks:
            self.enter_due([each for each in priorities if each not in self._times], now_ms)
        for priority in priorities:
            left = limit - len(found)
            if left <= 0:
                break
            ids = self._pick(priority, left, now_ms)
            statement = "candidates_in_line" if self._looks else "claim_in_line"
            rows = self._rows
            rows |= {row[0]: row for row in session.rows_of(statement, (), sorted(set(ids).difference(rows)))}
            found += [rows[job_id] for job_id in ids if job_id in rows]
            if (self._looks or self._is_clearing) and limit > len(found):
                found += session.candidates(queue_id, [priority], limit - len(found), now_ms)
        return found

    def pass_over(self, ids: Collection[int], most: int) -> bool:
        """These jobs take no turns, since their time is over, unless there are `most` already. Whether some are new."""
        before = len(self._passed_over)
        if before < most:
            self._passed_over.update(ids)
        return len(self._passed_over) > before

    def enter_due(self, priorities: Sequence[int], now_ms: int) -> Mapping[int, float]:
        """Up to ENTERED due jobs of each priority come into their lines. The virtual times that are locked by now."""
        session, queue_id = self._session, self._queue_id
        if not priorities:
            return self._times
        wanted = session.bound([CLEARING, *priorities])
        found = session.rows("times_for_claim", (queue_id, wanted, now_ms, queue_id, wanted))
        self._times |= {priority: turn for priority, turn, *_ in found}
        if not self._times and not session.rows("times_of_queue", (queue_id,)):
            self._is_clearing = True  # it was done while this claim waited
        self._is_clearing |= CLEARING in self._times
        for priority, turn, any_held, _ in found:
            if any_held:
                _free_held(session, queue_id, priority, self._rules, turn, now_ms, until_ms=now_ms)
        due = priorities if not found or found[0][-1] else ()
        for priority in () if self._is_clearing else due:
            rows = session.rows("due_jobs", (queue_id, priority, now_ms, ENTERED))
            if rows:
                if priority not in self._times:
                    self._times |= make_times(session, queue_id, [priority])
                entries = [(job_id, time_ms, _group_in(keys)) for job_id, time_ms, keys in rows]
                session.run_of("into_line", (), sorted(job_id for job_id, _, _ in entries))
                enter(session, queue_id, priority, entries, self._times[priority])
        return self._times

    def _pick(self, priority: int, limit: int, now_ms: int) -> list[int]:
        """Up to `limit` jobs of a priority, by the turns of their groups."""
        groups = self._next_groups(priority, limit + len(self._passed_over), now_ms)
        order, wanted = self._in_turn(priority, groups, limit)
        lines = self._first_in_lines(priority, wanted)
        if not self._passed_over and all(
            group in lines and len(lines[group].jobs) == count and count <= self._left(priority, group)
            for group, (_, count) in wanted.items()
        ):  # no line ends before
            jobs = {group: iter(line.jobs) for group, line in lines.items()}
            picked = [next(jobs[group]) for _, group in order]
            self._in_hand[priority] = Counter({group: count for group, (_, count) in wanted.items()})
            self._picked |= {
                job_id: (priority, group, turn) for job_id, (turn, group) in zip(picked, order, strict=True)
            }
        else:
            picked = self._pick_singly(priority, groups, lines, limit)
        self._lines |= {(priority, group): line for group, line in lines.items()}
        return picked

    def _pick_singly(
        self, priority: int, groups: Sequence[tuple[float, bytes]], lines: dict[bytes, _Line], limit: int
    ) -> list[int]:
        """The same where lines end, or are passed over; further ones are read as they are come to."""
        picked: list[int] = []
        places: dict[bytes, int] = {}
        in_hand = self._in_hand[priority] = Counter()
        heap = list(groups)
        heapify(heap)
        while heap and len(picked) < limit:
            turn, group = heap[0]
            if group not in lines:  # the jobs of others ended sooner than was expected
                unread = [each for each in groups if each[1] not in lines]
                lines |= self._first_in_lines(priority, self._in_turn(priority, unread, limit - len(picked))[1])
                if group not in lines:
                    heappop(heap)
                continue
            if self._most and in_hand[group] == self._left(priority, group):
                heappop(heap)
                continue
            line, place = lines[group], places.get(group, 0)
            if place == len(line.jobs):
                if not line.has_more:
                    heappop(heap)
                    continue
                more = self._first_in_lines(priority, {group: (line.turn, place + limit - len(picked))})
                line = lines[group] = more[group]
            places[group] = place + 1
            if line.jobs[place] in self._passed_over:
                continue
            picked.append(line.jobs[place])
            in_hand[group] += 1
            self._picked[line.jobs[place]] = priority, group, turn
            heapreplace(heap, (turn + self._stride(priority, group), group))
        return picked

    def _next_groups(self, priority: int, limit: int, now_ms: int) -> list[tuple[float, bytes]]:
        """The first groups that may run, by turn; those that are paused, or have no room, are held back from now on."""
        session, which, wanted = self._session, (self._queue_id, priority), limit
        while True:
            rows = session.rows("first_turns", (*which, *which, *which, wanted))
            groups = [(turn, bytes(group)) for turn, group, _ in rows]
            if rows and rows[0][2]:
                self._aside.add(priority)
            is_all = len(groups) < wanted
            if is_all:
                self._waiting[priority] = {group for _, group in groups}
            if self._looks:  # a claim would free these first
                over = session.rows("held_turns", (*which, now_ms, HELD_AT_ONCE))
                groups = sorted([*groups, *[(turn, bytes(group)) for group, turn, _ in over]])
            if not (self._rules.any_paused or self._most):
                return groups
            until = self._held_until([group for _, group in groups], now_ms)
            if until and not self._looks:
                self._aside.add(priority)
                held = [(*which, group, turn, until[group]) for turn, group in groups if group in until]
                session.put("put_turns", held[:HELD_AT_ONCE])
                continue
            may_run = [
                (turn, group) for turn, group in groups if group not in until and self._left(priority, group) > 0
            ]
            if is_all or len(may_run) >= limit:
                return may_run[:limit]
            wanted += len(groups) - len(may_run)

    def _held_until(self, groups: Sequence[bytes], now_ms: int) -> dict[bytes, int]:
        """Of these groups those that are paused, or have no room; until then."""
        until = {group: self._rules.of(group).paused_until_ms for group in groups} if self._rules.any_paused else {}
        if self._most:
            new = [group for group in groups if group not in self._rooms]
            self._rooms |= dict.fromkeys(new)
            for group, jobs, until_ms in self._session.rows_in("rooms", (self._queue_id,), new):
                if until_ms > now_ms:
                    self._rooms[bytes(group)] = GroupRoom(jobs, until_ms)
            for group in groups:
                room = self._rooms[group]
                if room is not None and not room.jobs:
                    until[group] = max(room.until_ms, until.get(group, 0))
        return {group: until_ms for group, until_ms in until.items() if until_ms > now_ms}

    def _left(self, priority: int, group: bytes) -> int:
        """How many more jobs of a group may be picked of this priority."""
        if not (self._most and group):
            return _NO_BOUND
        room = self._rooms.get(group)
        of_others = sum(in_hand[group] for other, in_hand in self._in_hand.items() if other != priority)
        return (self._most - self._handed_out[group] if room is None else room.jobs) - of_others

    def _stride(self, priority: int, group: bytes) -> float:
        return TURN * self._spread.get((priority, group), 1) / self._rules.of(group).weight

    def _in_turn(
        self, priority: int, groups: Sequence[tuple[float, bytes]], limit: int
    ) -> tuple[list[tuple[float, bytes]], dict[bytes, tuple[float, int]]]:
        """The turns of so many hand-outs, if no line ended, in order; and of each group its first turn, and how many it
        has of them. Groups come by turn.
        """
        order: list[tuple[float, bytes]] = []
        strides: dict[bytes, float] = {}
        heap = list(groups)
        for _ in range(limit if heap else 0):
            first = turn, group = heap[0]
            order.append(first)
            stride = strides.get(group)
            if stride is None:
                stride = strides[group] = self._stride(priority, group)
            heapreplace(heap, (turn + stride, group))
        turns = {group: turn for turn, group in groups}
        counts = Counter([group for _, group in order])
        return order, {group: (turns[group], count) for group, count in counts.items()}

    def _first_in_lines(self, priority: int, wanted: Mapping[bytes, tuple[float, int]]) -> dict[bytes, _Line]:
        """The lines of groups, by turn and number of jobs; of each one more is read, to know whether there are more."""
        jobs = first_in_lines(
            self._session, self._queue_id, priority, {group: count + 1 for group, (_, count) in wanted.items()}
        )
        return {
            group: _Line(turn, jobs[group][:count], len(jobs[group]) > count)
            for group, (turn, count) in wanted.items()
            if jobs[group]
        }

    def serve(self, ids: Set[int]) -> None:
        """These were handed out: they leave their lines, and their groups have had so many turns."""
        if self._is_clearing:  # others were not in line
            ids = self._picked.keys() & ids
        if not ids:
            return
        of_priority: defaultdict[int, list[tuple[int, bytes, float]]] = defaultdict(list)
        for job_id in sorted(ids):
            priority, group, turn = self._picked[job_id]
            of_priority[priority].append((job_id, group, turn))
        served = {priority: Counter([group for _, group, _ in some]) for priority, some in of_priority.items()}
        if self._most:
            self._use_room(sum(served.values(), Counter()))
        for priority, counts in sorted(served.items()):
            turns: list[_Turn] = []
            for group, count in sorted(counts.items()):
                line, room = self._lines[priority, group], self._rooms.get(group)
                waits = int(line.has_more or not ids >= set(line.jobs))
                if waits and room is not None and not room.jobs:
                    waits = room.until_ms
                turns.append(_Turn(group, line.turn + count * self._stride(priority, group), waits))
            some = of_priority[priority]
            self._move_on(priority, max([turn for *_, turn in some]), turns, [job_id for job_id, *_ in some])

    def _use_room(self, used: Counter[bytes]) -> None:
        """So many jobs of each group were handed out."""
        self._handed_out += used
        self._in_hand = {}
        for group, count in used.items():
            room = self._rooms.get(group)
            if room is not None:
                self._rooms[group] = room._replace(jobs=max(0, room.jobs - count))
                self._used_rooms.add(group)

    def put_rooms(self) -> None:
        """Write what room groups still have, last of all: behind it no virtual time may be locked."""
        rooms = [(self._queue_id, group, *room) for group in sorted(self._used_rooms) if (room := self._rooms[group])]
        self._session.put("put_rooms", rooms)

    def _move_on(self, priority: int, time: float, turns: Sequence[_Turn], ids: Sequence[int]) -> None:
        """Write the turns of groups of which these jobs were handed out, and the virtual time, which is that of the
        last hand-out; it never goes back, also where turns were given back. Where nobody waits, it is beyond all turns:
        whoever comes next begins beside all others. What groups without jobs had before it counts no more, and goes,
        of up to two groups for each job.
        """
        session, which = self._session, (self._queue_id, priority)
        time = max(time, self._times.get(priority, 0.0))
        if all(each.waits != 1 for each in turns) and not self._others_wait(priority, turns):
            time = max(time, *[each.turn for each in turns])
            if priority in self._aside:
                time = max(time, session.rows("last_past_turn", (*which, *which))[0][0] or 0.0)
        self._times[priority] = time
        over = {each.group for each in turns if not each.waits and each.turn <= time}
        if priority in self._aside:
            over.update(bytes(group) for (group,) in session.rows("past_turns", (*which, time, 2 * len(ids))))
        session.leave_lines(*which, ids, [each for each in turns if each.group not in over], over, time)
        if any(each.waits != 1 and each.group not in over for each in turns):
            self._aside.add(priority)
        if priority in self._waiting:
            self._waiting[priority].difference_update([each.group for each in turns if each.waits != 1])

    def _others_wait(self, priority: int, turns: Sequence[_Turn]) -> bool:
        """Whether groups wait for turns beside these."""
        served = {each.group for each in turns}
        waiting = self._waiting.get(priority)
        if waiting is None:
            which = self._queue_id, priority
            rows = self._session.rows("first_turns", (*which, *which, *which, len(served) + 1))
            waiting = {bytes(group) for _, group, _ in rows}
        return not waiting <= served


def _group_in(keys: bytes | None) -> bytes:
    return b"" if keys is None else split_group(bytes(keys))[0]


def first_in_lines(
    session: Session, queue_id: int, priority: int, counts: Mapping[bytes, int]
) -> dict[bytes, list[int]]:
    """The ids of the first jobs in the lines of groups, so many at most of each."""
    found: dict[bytes, list[int]] = {group: [] for group in counts}
    for some in in_slices(list(counts.items()), GROUPS_PER_STATEMENT):
        for group, ids in session.first_in_lines(queue_id, priority, dict(some)):
            found[group] += ids
    return found


# -- changes -----------------------------------------------------------------------------------------------------------


def lock_times(session: Session, queue_id: int, priorities: Iterable[int]) -> dict[int, float]:
    """The virtual times of these priorities that have one; nobody else changes their lines until the commit."""
    return dict(session.rows_of("virtual_times", (queue_id,), sorted(set(priorities))))


def make_times(session: Session, queue_id: int, priorities: Iterable[int]) -> dict[int, float]:
    """As `lock_times`, and those that had none have one. With the first one servers of versions before, which would
    misread jobs in line, cannot open the store any more.
    """
    wanted = {CLEARING, *priorities}
    times = lock_times(session, queue_id, wanted)  # first, since an insert locks too, and not in the order of claims
    new = wanted - times.keys() - {CLEARING}
    if new:
        if session.put("put_virtual_times", [(queue_id, priority, 0.0) for priority in sorted(new)]):
            session.run("raise_groups_version")
        times |= lock_times(session, queue_id, new)
    if times.pop(CLEARING, None) is not None:
        session.run("end_clearing", (queue_id, CLEARING))
    return times


def enter_new(session: Session, queue_id: int, due: Mapping[int, Sequence[DueJob]]) -> None:
    """Put new jobs that are IN_LINE into the lines of their groups. By priority: one without any has a virtual time
    from now on, too, since jobs with groups came in.
    """
    rows = [(*entry, priority) for priority, entries in due.items() for entry in entries]
    if rows and session.enter_lines(queue_id, sorted(due), rows):
        return
    times = make_times(session, queue_id, due)
    for priority, entries in sorted(due.items()):
        enter(session, queue_id, priority, entries, times[priority])


def enter(session: Session, queue_id: int, priority: int, entries: Sequence[DueJob], time: float) -> None:
    """Put jobs that are IN_LINE into the lines of their groups. A group that waits for nothing yet has its next turn
    now, at the virtual `time`, or later, where it had turns ahead of that.
    """
    session.put("put_lines", [(job_id, queue_id, priority, group, time_ms) for job_id, time_ms, group in entries])
    groups = sorted({group for _, _, group in entries})
    session.put("await_turns", [(queue_id, priority, group, time, 1) for group in groups])


def leave(session: Session, ids: Sequence[int]) -> None:
    """Take jobs out of their lines otherwise than by a turn; a group without jobs keeps the turns that it had ahead."""
    of_group: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
    for _, queue_id, priority, group in session.rows_of("lines", (), sorted(ids)):
        of_group[queue_id, priority].add(bytes(group))
    for queue_id, priority in sorted(of_group):
        lock_times(session, queue_id, [priority])
    session.run_of("remove_lines", (), sorted(ids))
    for (queue_id, priority), groups in sorted(of_group.items()):
        first = first_in_lines(session, queue_id, priority, dict.fromkeys(groups, 1))
        empty = [group for group, jobs in first.items() if not jobs]
        session.run_in("end_waits", (queue_id, priority), empty)


def put_back(session: Session, ids: Sequence[int]) -> None:
    """Jobs leave their lines and are PENDING as others, since their time has changed."""
    leave(session, ids)
    session.run_of("free_waiting", (), sorted(ids))


def give_turns_back(session: Session, rules: GroupRules, groups: Iterable[tuple[int, int, bytes]]) -> None:
    """Jobs that were handed out are requeued: their groups, by queue id and priority, are not charged for them."""
    for queue_id, priority, group in sorted(groups):
        session.run("give_turn_back", (TURN / rules.of(group).weight, queue_id, priority, group))


def forget(session: Session, queue_id: int, limit: int) -> bool:
    """Up to `limit` turns of a queue without jobs go; whether that were all."""
    rows = session.rows("turns_of_queue", (queue_id, limit))
    of_priority: defaultdict[int, list[bytes]] = defaultdict(list)
    for priority, group in rows:
        of_priority[priority].append(bytes(group))
    for priority, groups in sorted(of_priority.items()):
        session.run_in("remove_turns", (queue_id, priority), groups)
    if len(rows) < limit:
        session.run("forget_virtual_times", (queue_id,))
    return len(rows) < limit


# -- rules -------------------------------------------------------------------------------------------------------------

_READ: dict[str, GroupRules] = {}
"""The rules that were read before, by their versions, which no two changes have alike."""

_MOST_READ = 256


def rules_of(session: Session, queue: str, version: str | None) -> GroupRules:
    """The rules for the groups of a queue, of this version, as `Session.queue_with_groups` gives it, or a later one."""
    if not version:
        return NO_GROUP_RULES
    rules = _READ.get(version)
    if rules is None:
        version, text, _ = session.rows("config_entry", (GROUP_RULES_PREFIX + queue,))[0]
        if len(_READ) >= _MOST_READ:
            _READ.clear()
        rules = _READ[version] = read_group_rules(text)
    return rules


def waiting_groups(session: Session, queue: str, priorities: Sequence[int]) -> dict[int, dict[str, int]]:
    """A statement for each priority."""
    queue_id, version = session.queue_with_groups(queue)
    if version is None:
        return {}
    rules = rules_of(session, queue, version)
    return {
        priority: {
            bytes(group).decode(): rules.of(bytes(group)).weight
            for _, group, _ in session.rows("first_turns", (*(queue_id, priority) * 3, WEIGHED))
        }
        for priority in priorities
    }


def sums_of_weights(session: Session, queue: str, priorities: Sequence[int]) -> dict[int, int]:
    """The weights of the groups that wait for their turns, up to WEIGHED of them, by priority."""
    return {priority: sum(groups.values()) for priority, groups in waiting_groups(session, queue, priorities).items()}


def take_rules(session: Session, queue: str, now_ms: int) -> None:
    """The rules of this queue have changed: all groups that are held back but those that are paused now wait for their
    turns again; a claim that comes to one without room holds it back anew.
    """
    queue_ids = session.rows("queue_id", (queue,))
    if not queue_ids:
        return
    ((queue_id,),) = queue_ids
    _, version = session.queue_with_groups(queue)
    rules = rules_of(session, queue, version)
    priorities = [priority for (priority,) in session.rows("times_of_queue", (queue_id,))]
    for priority, time in lock_times(session, queue_id, priorities).items():
        _free_held(session, queue_id, priority, rules, time, now_ms, until_ms=MAX_TIME_MS)


def _free_held(
    session: Session, queue_id: int, priority: int, rules: GroupRules, time: float, now_ms: int, *, until_ms: int
) -> None:
    """Groups of one priority that were held back until then, but for those that are paused now, have their next turns
    now, or later where they had turns ahead.
    """
    rows = session.rows("held_turns", (queue_id, priority, until_ms, MAX_TIME_MS))
    _wait_again(session, queue_id, priority, rules, time, rows, now_ms)


def wait_again(
    session: Session,
    queue_id: int,
    priority: int,
    rules: GroupRules,
    time: float,
    groups: Collection[bytes],
    now_ms: int,
) -> None:
    """Those of the groups that are held back, but for those that are paused, have their next turns as `_free_held`
    says.
    """
    rows = [row for row in session.rows_in("turns", (queue_id, priority), groups) if row[2] > 1]
    _wait_again(session, queue_id, priority, rules, time, rows, now_ms)


def _wait_again(
    session: Session, queue_id: int, priority: int, rules: GroupRules, time: float, rows: Sequence[Row], now_ms: int
) -> None:
    freed = [
        (queue_id, priority, bytes(group), max(turn, time), 1)
        for group, turn, _ in rows
        if rules.of(bytes(group)).paused_until_ms <= now_ms
    ]
    session.put("put_turns", freed)
