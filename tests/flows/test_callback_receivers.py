"""Receivers of callbacks as docs/flows.md has them, beside a caller who makes flows of the same names."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from pinlater import AsyncClient, Client
from pinlater.data_folder.password import hash_password
from pinlater.model.flow_words import CompletionCallback, NewFlow, Stage
from tests.access.cluster import PASSWORD
from tests.flows.async_service import SECRET, SETTINGS, WITHIN_S
from tests.packaging.page_code import function_of_page
from tests.server.running import RunningServer, running

is_genuine = function_of_page("flows.md", "is_genuine")
RULES = '[roles.maker]\nmay = ["enqueue", "read", "operate"]\nqueues = ["pay"]'


def token_of(name: str) -> str:
    return f"plt_{hashlib.sha256(name.encode()).hexdigest()[:43]}"


@dataclass
class Post:
    """What a receiver got."""

    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Takes what the page lets it take: of flows that it knows, or of those that its owner made."""

    owner: str = ""
    address: str = ""
    flows: set[str] = field(default_factory=set)
    heard: list[Post] = field(default_factory=list)
    taken: list[Post] = field(default_factory=list)

    def takes(self, post: Post, now_s: float | None = None) -> bool:
        now_s = time.time() if now_s is None else now_s
        is_ours = is_genuine(SECRET.encode(), self.address, post.headers, post.body, now_s)
        by_owner = bool(self.owner) and post.headers["PinLater-Owner"] == self.owner
        return is_ours and (by_owner or post.headers["PinLater-Flow"] in self.flows)

    async def hear(self, request: web.Request) -> web.Response:
        post = Post(dict(request.headers), await request.read())
        self.heard.append(post)
        if not self.takes(post):
            return web.Response(status=403)
        self.taken.append(post)
        return web.Response(status=204)


@asynccontextmanager
async def listening(*receivers: Receiver) -> AsyncIterator[None]:
    application = web.Application()
    for number, each in enumerate(receivers):
        application.router.add_post(f"/{number}", each.hear)
    site = web.AppRunner(application)
    await site.setup()
    try:
        await web.TCPSite(site, "127.0.0.1", 0).start()
        for number, each in enumerate(receivers):
            each.address = f"http://127.0.0.1:{site.addresses[0][1]}/{number}"
        yield
    finally:
        await site.cleanup()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("receivers")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--api", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *SETTINGS, *options, "--processes", "1") as started:
        with Client(f"127.0.0.1:{started.port}") as client:
            for name in ("shop", "thief"):
                hashed = hashlib.sha256(token_of(name).encode()).hexdigest()
                client.update_token(name, hashed, ["maker"], PASSWORD)
        yield started


async def make_over_thrift(server: RunningServer, name: str, url: str) -> str:
    async with AsyncClient(f"127.0.0.1:{server.port}", token=token_of(name), timeout=WITHIN_S) as client:
        new = NewFlow("payroll", [Stage("pay", "", "pay")], sealed=["pay"], on_complete=CompletionCallback(url=url))
        return (await client.create_flow(new)).id


async def make_over_http(server: RunningServer, name: str, url: str) -> str:
    stage = {"name": "pay", "job": "", "queue": "pay"}
    new = {"name": "payroll", "stages": [stage], "sealed": ["pay"], "on_complete": {"url": url}}
    address = str(server.wait_for("api_ready")["address"]).rstrip("/")
    headers = {"Authorization": f"Bearer {token_of(name)}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=WITHIN_S) as client:
        made = await client.post("/v1/flows", json=new)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


Make = Callable[[RunningServer, str, str], Any]


@pytest.mark.parametrize("owner", ["", "token:shop"], ids=["by id", "by owner"])
@pytest.mark.parametrize("make", [make_over_thrift, make_over_http])
async def test_a_receiver_takes_callbacks_of_its_own_flows_alone(server: RunningServer, make: Make, owner: str) -> None:
    """One whose flow is known to it later than its callback comes hears of it again."""
    ours, theirs = Receiver(owner), Receiver("token:thief")
    async with listening(ours, theirs):
        flow_id = await make(server, "shop", ours.address)
        if not owner:
            ours.flows.add(flow_id)
        await until(lambda: ours.taken)
        assert json.loads(ours.taken[0].body)["id"] == flow_id
        forged = await make(server, "thief", ours.address)  # under the same names
        await until(lambda: [each for each in ours.heard if each.headers["PinLater-Flow"] == forged])
        await make(server, "thief", theirs.address)
        await until(lambda: theirs.taken)
        (genuine,) = theirs.taken
        ours.flows.add(genuine.headers["PinLater-Flow"])  # even then it is not for this address
        assert not ours.takes(genuine)
        assert len(ours.taken) == 1


@pytest.mark.parametrize("make", [make_over_thrift, make_over_http])
async def test_nothing_that_is_signed_can_be_changed(server: RunningServer, make: Make) -> None:
    ours = Receiver()
    async with listening(ours):
        ours.flows.add(await make(server, "shop", ours.address))
        await until(lambda: ours.taken)
    (post,) = ours.taken
    signature = post.headers["PinLater-Signature-2"]
    ours.flows.add("f" * 26)
    for name, text in (
        ("PinLater-Callback", "other"),
        ("PinLater-Flow", "f" * 26),
        ("PinLater-Owner", "token:boss"),
        ("PinLater-Signature-2", signature.replace("t=", "t=1")),
        ("PinLater-Signature-2", post.headers["PinLater-Signature"]),
        ("PinLater-Signature-2", "t=,v2="),
        ("PinLater-Signature-2", "ü"),
        ("PinLater-Signature-2", ""),
    ):
        assert not ours.takes(replace(post, headers={**post.headers, name: text})), name
    assert not ours.takes(replace(post, body=post.body.replace(b"payroll", b"payrall")))
    assert not ours.takes(replace(post, headers={}))
    assert not ours.takes(post, time.time() + 301)
    assert ours.takes(post)


async def test_a_receiver_of_before_goes_on(server: RunningServer) -> None:
    ours = Receiver()
    async with listening(ours):
        ours.flows.add(await make_over_thrift(server, "shop", ours.address))
        await until(lambda: ours.taken)
    (post,) = ours.taken
    said = dict(part.split("=", 1) for part in post.headers["PinLater-Signature"].split(","))
    mac = hmac.new(SECRET.encode(), said["t"].encode() + b"." + post.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(mac, said["v1"])
    assert abs(time.time() - int(said["t"])) < 300
