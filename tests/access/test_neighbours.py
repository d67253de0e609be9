"""Somebody guesses tokens and passwords at an address where others have right ones: each door lets those in at once."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path

import httpx
import pytest

from pinlater import Client
from pinlater.access.guesses import FREE_TRIES
from pinlater.data_folder.password import hash_password
from pinlater.model import RequestContext
from pinlater.wire.operator_methods import UPDATE_QUEUE
from tests.access.cluster import PASSWORD
from tests.server.running import Plain, RunningServer, running
from tests.stores.places import start_server

WEB = f"plt_{'w' * 43}"
WITHIN_S = 60.0
GUESSES = FREE_TRIES + 1
"""The last ones are in a pause. Those of tokens wait for their answers meanwhile."""

ADDRESSES = count(20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("neighbours")
    options = ("--api", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD), "--processes", "1")
    with running(folder, *options) as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("mail")
            client.update_token("web", hashlib.sha256(WEB.encode()).hexdigest(), ["operator"], PASSWORD)
        yield server


class Caller:
    """Somebody at an address of this machine. Each method shows a secret at one door, and says whether it was right."""

    def __init__(self, server: RunningServer, address: str) -> None:
        self.server, self.address = server, address

    def http(self) -> httpx.Client:
        base = str(self.server.wait_for("api_ready")["address"])
        return httpx.Client(base_url=base, transport=httpx.HTTPTransport(local_address=self.address), timeout=WITHIN_S)

    def ask(self, verb: str, path: str, headers: dict[str, str]) -> bool:
        with self.http() as client:
            body = {} if verb == "PATCH" else None
            answer = client.request(verb, path, headers=headers, json=body)
            assert answer.status_code in (200, 201, 204, 401, 403, 503), answer.text
            return answer.is_success

    def header(self, secret: str) -> bool:
        return self.ask("GET", "/v1/queues", {"Authorization": f"Bearer {secret}"})

    def link(self, secret: str) -> bool:
        return self.ask("POST", "/dashboard/links", {"Authorization": f"Bearer {secret}"})

    def password_header(self, secret: str) -> bool:
        return self.ask("PATCH", "/v1/queues/mail/settings", {"X-Admin-Password": secret})

    def password_link(self, secret: str) -> bool:
        return self.ask("POST", "/dashboard/links", {"X-Admin-Password": secret})

    def login(self, secret: str) -> bool:
        with self.http() as client:
            found = re.search(r'name="csrf" value="([^"]+)"', client.get("/login").text)
            assert found is not None
            answer = client.post("/login", data={"csrf": found[1], "token": secret, "next": "/docs"})
            assert answer.status_code in (303, 403, 503), answer.text
            return answer.status_code == 303

    def thrift(self, secret: str) -> bool:
        return self.call("getAccess", RequestContext("me", token=secret))

    def thrift_password(self, secret: str) -> bool:
        request = UPDATE_QUEUE.request("mail", secret, {"max_attempts": "3"}, (), False)
        return self.call("updateQueue", RequestContext("me"), request=request)

    def call(self, method: str, context: RequestContext, **arguments: object) -> bool:
        async def answered() -> bool:
            connection = await Plain.to(self.server.port, self.address)
            try:
                await connection.send(method, context=context, **arguments)
                return (await connection.answer()).exception is None
            finally:
                await connection.close()

        return asyncio.run(answered())


DOORS = ("thrift", "thrift_password", "header", "link", "login", "password_header", "password_link", "password_login")


@pytest.mark.parametrize("door", DOORS)
def test_what_a_neighbour_guesses_keeps_nobody_waiting_who_is_right(server: RunningServer, door: str) -> None:
    caller = Caller(server, f"127.0.0.{next(ADDRESSES)}")
    is_password = "password" in door
    show: Callable[[str], bool] = getattr(caller, door.replace("password_login", "login"))
    right, wrong = (PASSWORD, "guess {}") if is_password else (WEB, "plt_{}")
    assert show(right)
    with ThreadPoolExecutor(GUESSES) as threads:
        guesses = [threads.submit(show, wrong.format(number)) for number in range(GUESSES)]
        left: set[Future[bool]] = set(guesses)
        while len(left) > (0 if is_password else GUESSES - FREE_TRIES + 1):
            answered, left = wait(left, WITHIN_S, FIRST_COMPLETED)
            assert answered
            assert not any(each.result() for each in answered)
        for _ in range(3):
            assert show(right), "others guess here"
        assert not any(each.result() for each in guesses)
    kind = "password" if is_password else "token"
    assert server.wait_for(f"{kind}_wrong", address=caller.address)["wrong"] == 1


def test_a_session_that_began_before_goes_on_beside_who_guesses(server: RunningServer) -> None:
    caller = Caller(server, f"127.0.0.{next(ADDRESSES)}")
    with caller.http() as browser:
        found = re.search(r'name="csrf" value="([^"]+)"', browser.get("/login").text)
        assert found is not None
        assert browser.post("/login", data={"csrf": found[1], "token": PASSWORD, "next": "/docs"}).status_code == 303
        for number in range(GUESSES):
            assert not caller.password_header(f"guess {number}")
        csrf = browser.get("/session").json()["csrf_token"]
        for action in ("pause", "resume"):
            answer = browser.post(f"/dashboard/queues/mail/{action}", data={"csrf": csrf, "why": "a test"})
            assert answer.status_code == 303, answer.text
            settings = browser.get("/v1/queues/mail/settings").text
            assert ('"a test"' in settings) == (action == "pause")


def test_guesses_of_one_identity_keep_no_other_of_its_address_waiting(server: RunningServer) -> None:
    address = f"127.0.0.{next(ADDRESSES)}"
    caller = Caller(server, address)
    guess = UPDATE_QUEUE.request("mail", "guess", {"max_attempts": "3"}, (), False)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.update_token("guest", hashlib.sha256(b"plt_guest").hexdigest(), ["viewer"], PASSWORD, replace=True)
    for _ in range(GUESSES):
        assert not caller.call("updateQueue", RequestContext("me", token="plt_guest"), request=guess)
    assert caller.thrift_password(PASSWORD)
    assert server.wait_for("password_wrong", address="token:guest")["wrong"] == 1


async def test_all_processes_of_a_server_know_where_the_right_password_came_from(tmp_path: Path) -> None:
    store = start_server("redis")
    try:
        options = ("--store", f"1={store.url()}", "--processes", "2", "--admin-password-hash", hash_password(PASSWORD))
        with running(tmp_path, *options) as server:
            connections = [await Plain.to(server.port, "127.0.0.9") for _ in range(2)]  # dealt to both in turn
            await connections[0].create_queue("mail")

            async def pause(connection: Plain, password: str) -> str:
                request = UPDATE_QUEUE.request("mail", password, {"max_attempts": "3"}, (), False)
                await connection.send("updateQueue", request=request)
                exception = (await connection.answer()).exception
                return "" if exception is None else exception.reason

            assert await pause(connections[0], PASSWORD) == ""
            outcomes: list[str] = []
            async with asyncio.timeout(WITHIN_S):
                while not outcomes or outcomes[-1] == "PASSWORD_INVALID":
                    outcomes.append(await pause(connections[1], "guess"))
            assert outcomes[-1] == "OVERLOADED"
            assert await pause(connections[1], PASSWORD) == ""
            for connection in connections:
                await connection.close()
    finally:
        store.stop()
