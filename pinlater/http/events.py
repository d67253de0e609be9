"""Server-sent events: counts of queues, changes of queues, and ends of jobs, for pages and programs.

    GET /v1/events?queue=mail&queue=sms&job=DESCRIPTOR

The streams of one caller share a watch, which asks the servers once a second for all their queues. So a caller that may
no longer look is told so within seconds, whatever others may. A watch outlives its last stream for a while: who
connects again with Last-Event-ID gets what it missed, or the event `missed` where that is not known any more.

    event    data
    counts   name, levels, rates, flags, pause: a queue in numbers, when they have changed
    change   name, version, settings: a queue that has other settings now; {"name", "deleted": true}
    end      job, state, custom_status; state null: the job is not there (any more)
    missed   nothing: read everything anew
    problem  the problem for which the stream ends
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import structlog
from aiohttp import web

from pinlater.api import Api
from pinlater.errors import Forbidden, PinLaterError, QueueNotFound, RequestInvalid
from pinlater.http.caller import USE, context_of
from pinlater.http.fair_shares import FairEntries, FairPlaces
from pinlater.http.problems import problem_response
from pinlater.http.request_use import RequestUse
from pinlater.model import JobState, QueueView, RequestContext
from pinlater.model.jobs import Shown

_log = structlog.get_logger("pinlater.http")
EVERY_S = 1.0
HEARTBEAT_S = 15.0
LINGER_S = 30.0
KEPT_EVENTS = 256
MAX_QUEUES = 100
MAX_JOBS = 100
MAX_WAITING_EVENTS = 1_000
"""Of one stream whose caller does not read; then it ends."""

_LOOK_MS = 25_000
_ENDED = (JobState.SUCCEEDED, JobState.FAILED)
Event = tuple[int, str, str, str]
"""Its number, its name, the queue that it is about ("" for all), and its data."""


class EventStream:
    """One listener: which queues it wants, and what it has yet to be sent."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self.is_over = False

    def put(self, event: Event) -> None:
        if event[2] and event[2] not in self.queues:
            return
        if len(self._waiting) >= MAX_WAITING_EVENTS:
            self.end()
        else:
            self._waiting.append(event)
            self._news.set()

    def end(self) -> None:
        """It gets what it has, and nothing more."""
        self.is_over = True
        self._news.set()

    async def take(self) -> list[Event]:
        """What has come; nothing after a while without anything."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken


class Watch:
    """What the streams of one caller want to know of queues; the task `run` asks for it."""

    def __init__(self, api: Api, context: RequestContext, number: Callable[[], int]) -> None:
        self.streams: set[EventStream] = set()
        self._api = api
        self._context = context
        self._number = number
        self._lingering: dict[str, float] = {}
        """Queues that no stream wants any more, and how long they are looked at still."""
        self._changes: dict[str, Event] = {}
        self._counts: dict[str, Event] = {}
        self._views: dict[str, QueueView] = {}
        self.kept: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self.since = number()
        """Of what had a lower number, nothing is known here."""

    def join(self, stream: EventStream) -> None:
        self.streams.add(stream)

    def leave(self, stream: EventStream) -> None:
        self.streams.discard(stream)
        until_s = asyncio.get_running_loop().time() + LINGER_S
        self._lingering.update(dict.fromkeys(stream.queues, until_s))

    def resume(self, stream: EventStream, last: int) -> bool:
        """Give it what came after that event; False: what that was is not known any more."""
        oldest = self.kept[0][0] if len(self.kept) == KEPT_EVENTS else self.since
        if last < oldest - 1 or not stream.queues <= self._changes.keys():
            return False
        for event in self.kept:
            if event[0] > last:
                stream.put(event)
        return True

    def show(self, stream: EventStream) -> None:
        """Give it everything as it is."""
        for queue in stream.queues:
            for known in (self._changes, self._counts):
                if queue in known:
                    stream.put(known[queue])

    async def run(self) -> None:
        """Until no stream is left, and none was for a while. Streams end with the error of the first failed look."""
        loop = asyncio.get_running_loop()
        while True:
            now_s = loop.time()
            wanted = {queue for stream in self.streams for queue in stream.queues}
            self._lingering = {
                queue: until_s for queue, until_s in self._lingering.items() if queue not in wanted and until_s > now_s
            }
            queues = sorted(wanted | self._lingering.keys())
            if not self.streams and not queues:
                return
            if queues:
                try:
                    await self._look(queues)
                except PinLaterError as error:
                    if not error.retryable:
                        self._end(error)
                        return
            await asyncio.sleep(max(0.0, now_s + EVERY_S - loop.time()))

    async def _look(self, queues: Sequence[str]) -> None:
        try:
            views = {view.name: view for view in await self._api.get_queues(queues, context=self._context)}
        except (QueueNotFound, Forbidden):
            views, allowed = {}, []
            for queue in queues:
                try:
                    (views[queue],) = await self._api.get_queues([queue], context=self._context)
                except QueueNotFound:
                    pass
                except Forbidden as error:
                    self._end(error, queue)
                    continue
                allowed.append(queue)
            queues = allowed
        for queue in queues:
            before, now = self._views.get(queue), views.get(queue)
            if now is None and (before is not None or queue not in self._changes):
                self._changes[queue] = self._tell("change", queue, {"name": queue, "deleted": True})
                self._views.pop(queue, None)
                self._counts.pop(queue, None)
            elif now is not None:
                if before is None or before.version != now.version:
                    self._changes[queue] = self._tell("change", queue, _plain_view(now))
                self._views[queue] = now
        if not views:
            return  # of no queues would be of all
        found = await self._api.cluster_status(queues=list(views), context=self._context)
        for status in found.queues:
            plain = asdict(status)
            del plain["counted_at_ms"], plain["ended_counted_at_ms"]
            data = json.dumps(plain)
            before_counts = self._counts.get(status.name)
            if before_counts is None or before_counts[3] != data:
                self._counts[status.name] = self._tell("counts", status.name, plain)

    def _tell(self, name: str, queue: str, data: object) -> Event:
        event = (self._number(), name, queue, json.dumps(data))
        self.kept.append(event)
        for stream in list(self.streams):
            stream.put(event)
        return event

    def _end(self, error: PinLaterError, queue: str = "") -> None:
        """All streams, or those that listen to one queue: the caller may not read it any more."""
        for stream in list(self.streams):
            if not stream.is_over and (not queue or queue in stream.queues):
                stream.put((self._number(), "problem", "", _problem(error)))
                stream.end()
        self._lingering.pop(queue, None)
        self._forget(queue)

    def _forget(self, queue: str) -> None:
        self._views.pop(queue, None)
        self._counts.pop(queue, None)
        self._changes.pop(queue, None)


def _problem(error: PinLaterError) -> str:
    body = problem_response(error, has_credential=True).body
    assert isinstance(body, bytes)
    return body.decode()


def _plain_view(view: QueueView) -> dict[str, Any]:
    return {
        "name": view.name,
        "version": view.version,
        "settings": {name: each.value for name, each in view.settings.items()},
    }


class EventStreams:
    """All streams of a process."""

    def __init__(self, api: Api, at_most: int, write_within_s: float) -> None:
        self._api = api
        self.places = FairPlaces(
            "http_event_streams", at_most, "streams of events", "name more queues and jobs in one", retry_after_ms=5_000
        )
        self._write_within_s = write_within_s
        self.watches: FairEntries[Watch] = FairEntries(
            "http_event_watches", at_most, is_spared=lambda watch: bool(watch.streams), on_push=self._pushed_out
        )
        """Those with a stream, no more than there are streams, and those that linger."""
        self._tasks: dict[Watch, asyncio.Task[None]] = {}
        self._streams: set[EventStream] = set()
        self._epoch = secrets.token_hex(4)
        """Tells the numbers of this process from those of others."""
        self._last = 0

    def drain(self) -> None:
        """End all streams; browsers connect again by themselves."""
        for stream in list(self._streams):
            stream.end()

    async def close(self, _app: object = None) -> None:
        self.drain()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The answer to one listener, until it leaves."""
        queues, jobs = request.query.getall("queue", []), request.query.getall("job", [])
        if not len(queues) + len(jobs) >= 1 or len(queues) > MAX_QUEUES or len(jobs) > MAX_JOBS:
            raise RequestInvalid(f"name 1 to {MAX_QUEUES} queues, as queue=NAME, or 1 to {MAX_JOBS} jobs, as job=NAME")
        context = context_of(request)
        use: RequestUse = request[USE]
        self.places.take(use.owner)
        stream = EventStream(queues)
        self._streams.add(stream)
        watch: Watch | None = None
        looking: asyncio.Task[None] | None = None
        try:
            if queues:
                await self._api.get_queues(queues, context=context)  # what is refused is refused as any call
                watch = self._watch(use.owner, context)
                watch.join(stream)
                last = self._number_of(request.headers.get("Last-Event-ID", ""))
                if last is None:
                    watch.show(stream)
                elif not watch.resume(stream, last):
                    stream.put((self._number(), "missed", "", "{}"))
                    watch.show(stream)
            if jobs:
                found = await self._api.lookup(jobs, context=context)
                looking = asyncio.ensure_future(self._look_for_ends(stream, jobs, found, context))
            use.end_turn()
            return await self._send(request, stream)
        finally:
            self.places.give_back(use.owner)
            self._streams.discard(stream)
            if watch is not None:
                watch.leave(stream)
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._streams)

    async def _send(self, request: web.Request, stream: EventStream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        response.force_close()
        try:
            await response.prepare(request)
            await self._write_all(response, stream)
        except ConnectionResetError:  # nobody is there to be told anything
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _write_all(self, response: web.StreamResponse, stream: EventStream) -> None:
        """Until the stream is over. ConnectionResetError: the caller is gone, or does not read."""
        await self._write(response, f"retry: 2000\n: events of {self._epoch}\n\n")
        while True:
            events = await stream.take()
            lines = [f"id: {self._epoch}-{number}\nevent: {name}\ndata: {data}\n\n" for number, name, _, data in events]
            if lines or not stream.is_over:
                await self._write(response, "".join(lines) or ": nothing new\n\n")
            if stream.is_over:
                return

    async def _write(self, response: web.StreamResponse, text: str) -> None:
        """ConnectionResetError: the caller is gone, or does not read."""
        try:
            async with asyncio.timeout(self._write_within_s):
                await response.write(text.encode())
        except TimeoutError as error:
            raise ConnectionResetError("the caller does not read its events") from error

    def _watch(self, owner: str, context: RequestContext) -> Watch:
        who = context.shown
        found = self.watches.get(who)
        if found is not None:
            return found
        watch = Watch(self._api, context, self._number)
        self.watches.put(owner, who, watch)
        task = self._tasks[watch] = asyncio.ensure_future(watch.run())
        task.add_done_callback(lambda ended: self._ended(who, watch, ended))
        return watch

    def _pushed_out(self, watch: Watch) -> None:
        """Nobody listens there any more, and somebody else wants to: who comes back hears that it missed something."""
        self._tasks[watch].cancel()

    def _ended(self, who: Shown, watch: Watch, task: asyncio.Task[None]) -> None:
        del self._tasks[watch]
        if self.watches.get(who) is watch:
            self.watches.pop(who)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("events_failed", exc_info=error)
        for stream in list(watch.streams):
            stream.end()

    async def _look_for_ends(
        self, stream: EventStream, jobs: Sequence[str], found: dict[str, Any], context: RequestContext
    ) -> None:
        """One lookup at a time, which waits for the first of those that have not ended."""
        left = list(dict.fromkeys(jobs))
        while True:
            for job in [job for job in left if job not in found or found[job].state in _ENDED]:
                left.remove(job)
                info = found.get(job)
                state = None if info is None else info.state.name
                data = {"job": job, "state": state, "custom_status": "" if info is None else info.custom_status}
                stream.put((self._number(), "end", "", json.dumps(data)))
            if not left:
                return
            try:
                found = await self._api.lookup(left, wait_ms=_LOOK_MS, context=context)
            except PinLaterError as error:
                if not error.retryable:
                    stream.put((self._number(), "problem", "", _problem(error)))
                    stream.end()
                    return
                await asyncio.sleep(EVERY_S)

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _number_of(self, last_event_id: str) -> int | None:
        """None: it named none. -1: what it names is not of this process."""
        if not last_event_id:
            return None
        epoch, _, number = last_event_id.partition("-")
        is_ours = epoch == self._epoch and number.isascii() and number.isdecimal() and len(number) < 18
        return int(number) if is_ours else -1
