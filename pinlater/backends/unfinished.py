"""The calls that a store does not have yet. Goes away with the last of them."""

from __future__ import annotations

from typing import Any

from pinlater.backends.base import NoEvents, ShardEvents


class Unfinished:
    events: ShardEvents = NoEvents()

    async def enqueue_extended(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def find_keys(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def heartbeat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def reschedule(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def taken_keys(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def expire_jobs(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def watch_ends(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def blocked_chains(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def last_firings(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def key_slots(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def list_windows(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def put_windows(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def drop_windows(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def has_chains(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def list_barriers(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def lift_barriers(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError
