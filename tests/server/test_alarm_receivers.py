"""A webhook of a real server: its receiver can check who sent it, and nothing of its address is shown."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from aiohttp import web

from pinlater import AsyncClient, Job
from tests.packaging.page_code import function_of_page
from tests.server.running import running

is_from_pinlater = function_of_page("webhooks.md", "is_from_pinlater")
SECRET = "0123456789abcdef"


async def test_a_receiver_gets_alarms_that_it_can_check(tmp_path: Path) -> None:
    heard: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()

    async def hear(request: web.Request) -> web.Response:
        heard.put_nowait((dict(request.headers), await request.read()))
        return web.Response(status=204)

    application = web.Application()
    application.router.add_post("/hook/topsecret", hear)
    site = web.AppRunner(application)
    await site.setup()
    try:
        await web.TCPSite(site, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{site.addresses[0][1]}/hook/topsecret"
        (tmp_path / "secret").write_text(SECRET)
        (tmp_path / "secret").chmod(0o600)
        options = ("--alarm-webhook", address, "--alarm-webhook-secret-file", "secret")
        with running(tmp_path, *options, "--processes", "1") as server:
            async with AsyncClient(f"127.0.0.1:{server.port}") as client:
                await client.create_queue("mail")
                await client.enqueue("mail", Job(b"x", run_after_ms=int(time.time() * 1_000) - 600_000))
            async with asyncio.timeout(60):
                headers, body = await heard.get()
        assert "topsecret" not in str(server.events)
    finally:
        await site.cleanup()
    (alarm,) = json.loads(body)["alarms"]
    assert (alarm["name"], alarm["severity"]) == ("no_worker", "critical")
    assert is_from_pinlater(SECRET.encode(), address, headers, body, time.time())
    assert not is_from_pinlater(SECRET.encode(), address, headers, body + b" ", time.time())
    assert not is_from_pinlater(SECRET.encode(), address + "2", headers, body, time.time())
