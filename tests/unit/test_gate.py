"""The gate: who a call comes from, what it may, and what is told of calls that may not, by a clock under control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pinlater.access.fair_use import CallUse, FairUse, UseLimits
from pinlater.access.gate import Gate
from pinlater.access.guesses import FREE_TRIES, MAX_WAITING_EACH, TokenGuesses
from pinlater.access.rules_file import RulesFile
from pinlater.access.tokens import TokenBook, TokenRecord, token_hash
from pinlater.errors import Forbidden, Overloaded, RequestInvalid
from pinlater.model import (
    Caller,
    ConnectionRef,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobState,
    KeyRef,
    RequestContext,
    WorkerReport,
)
from pinlater.model.job_selection import FoundJobsChange, JobSelection, TextCondition
from pinlater.model.owner_bounds import NO_BOUNDS, OwnerBounds, owner_name
from pinlater.queues.directory import QueueDirectory
from pinlater.wire.codec import decode_call, encode_call
from pinlater.wire.methods import METHODS
from tests.unit.stand import Stand, stand

RULES = """
[[rules]]
who = ["cert:web.example"]
roles = ["producer"]

[[rules]]
who = ["anonymous"]
from = ["10.0.0.0/8"]
may = ["consume"]
queues = ["mail"]
"""
HERE = ("10.0.0.1", 5)


@dataclass
class Door:
    """A gate, its tokens, and what was told of refusals."""

    at: Stand
    rules: Path | None = None
    gateway: str = ""
    history: str = ""
    now_s: float = 0.0
    told: list[tuple[str, ...]] = field(default_factory=list)
    slept_s: list[float] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.queues = QueueDirectory(self.at.members, self.at.clock)
        self.tokens = TokenBook(self.queues, self.at.members, self.at.clock, lambda: self.now_s)
        self.gate = self.with_limits(UseLimits())

    def with_limits(self, limits: UseLimits) -> Gate:
        return Gate(
            self.tokens,
            self.at.clock,
            self.refused,
            TokenGuesses(self.refused, lambda: self.now_s, self.sleep),
            FairUse(limits, lambda: self.now_s),
            RulesFile(self.rules) if self.rules else None,
            token_hash(self.gateway) if self.gateway else "",
            token_hash(self.history) if self.history else "",
        )

    def refused(self, *told: str) -> None:
        self.told.append(told)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await self.wake.wait()

    async def token(self, name: str, *roles: str, expires_ms: int | None = None, replace: bool = False) -> str:
        record = TokenRecord(name, token_hash(f"plt_{name}"), roles, "me", self.at.clock.now_ms(), expires_ms)
        await self.tokens.change(record, replace=replace)
        return f"plt_{name}"

    async def call(
        self,
        method: str,
        *values: Any,
        token: str | None = None,
        names: tuple[str, ...] = (),
        on_behalf_of: str | None = None,
        caller_address: str | None = None,
        gateway_token: str | None = None,
        behind: tuple[str, ...] | None = None,
        peer: object = HERE,
    ) -> RequestContext:
        """Sends it through the codec, and through the gate."""
        sent = RequestContext(
            "me",
            token=token,
            on_behalf_of=on_behalf_of,
            caller_address=caller_address,
            gateway_token=gateway_token,
            certificate_names=behind,
        )
        args = decode_call(encode_call(method, 1, METHODS[method].arguments(sent, *values))).args
        context = RequestContext("me", connection=ConnectionRef(peer=peer, certificate_names=names), token=token)
        await self.gate.admit(METHODS[method], args, context)
        return context

    def check_again(self, context: RequestContext, method: str, *values: Any) -> None:
        """Of a call that was let in, and has waited."""
        args = decode_call(encode_call(method, 1, METHODS[method].arguments(context, *values))).args
        self.gate.check_again(METHODS[method], args, context)

    async def begin(self, context: RequestContext, size: int) -> CallUse:
        use = await self.gate.begin(context, size, is_poll=False)
        assert use is not None
        return use

    async def caller(self, **shown: Any) -> Caller:
        caller = (await self.call("getAccess", **shown)).caller
        assert caller is not None
        return caller


@asynccontextmanager
async def door(rules: Path | None = None, gateway: str = "", history: str = "") -> AsyncIterator[Door]:
    async with stand() as at:
        yield Door(at, rules, gateway, history)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


def enqueue(queue: str) -> tuple[str, list[Job]]:
    return queue, [Job(b"x")]


async def test_without_rules_a_token_has_its_roles_and_others_may_what_they_ever_might() -> None:
    async with door() as at:
        assert (await at.call("enqueueJobs", *enqueue("mail"), names=("web.example",))).is_granted is False
        viewer = await at.token("v", "viewer")
        with pytest.raises(Forbidden, match="token:v may not enqueue on queue 'mail'"):
            await at.call("enqueueJobs", *enqueue("mail"), token=viewer)
        boss = await at.token("boss", "admin")
        assert (await at.call("deleteQueue", "mail", "", token=boss)).is_granted
        assert not (await at.call("deleteQueue", "mail", "sesame")).is_granted


async def test_rules_let_in_by_certificate_by_network_and_by_queue(rules: Path) -> None:
    async with door(rules) as at:
        await at.call("enqueueJobs", *enqueue("mail"), names=("other", "web.example"))
        await at.call("dequeueJobs", DequeueRequest("mail", 1))
        for peer, queue in ((("192.0.2.1", 5), "mail"), (HERE, "pay"), (None, "mail")):
            with pytest.raises(Forbidden):
                await at.call("dequeueJobs", DequeueRequest(queue, 1), peer=peer)
        assert {each[1:3] for each in at.told} == {("dequeueJobs", "mail")}  # once a minute of one caller


async def test_the_password_stands_for_a_rule_where_one_is_given(rules: Path) -> None:
    async with door(rules) as at:
        assert not (await at.call("updateQueue", "mail", "sesame", {}, [], False)).is_granted
        with pytest.raises(Forbidden):
            await at.call("updateQueue", "mail", "", {}, [], False)


async def test_a_group_of_no_role_is_refused_reported_and_stands_by_the_password(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["enqueue", "operate"]\ngroups = ["", "acme"]')
    async with door(path) as at:
        await at.call("enqueueJobs", "mail", [Job(b"x"), ExtendedJob(b"x", group="acme")])
        assert (await at.call("updateGroup", "mail", "acme", "", {}, [])).is_granted
        with pytest.raises(Forbidden, match="anonymous may not enqueue on queue 'mail' in group 'vip'; allowed to it"):
            await at.call("enqueueJobs", "mail", [Job(b"x"), ExtendedJob(b"x", group="vip")])
        assert [each[1:3] for each in at.told] == [("enqueueJobs", "mail")]
        with pytest.raises(Forbidden):
            await at.call("updateGroup", "mail", "vip", "", {}, [])
        assert not (await at.call("updateGroup", "mail", "vip", "sesame", {}, [])).is_granted


async def test_a_wrong_token_is_refused_where_none_would_do(rules: Path) -> None:
    async with door() as at:
        with pytest.raises(Forbidden, match="the token is wrong"):
            await at.call("getAccess", token="plt_nobody")


async def test_a_token_ends_at_its_time_and_when_it_is_revoked() -> None:
    async with door() as at:
        ends_ms = at.at.clock.now_ms() + 1_000
        short, other = await at.token("short", "worker", expires_ms=ends_ms), await at.token("other", "worker")
        poll = DequeueRequest("mail", 1)
        waiting = [await at.call("dequeueJobs", poll, token=each) for each in (short, other)]
        for context in waiting:
            at.check_again(context, "dequeueJobs", poll)
        at.at.clock.tick(1_000)
        with pytest.raises(Forbidden):
            await at.caller(token=short)
        await at.tokens.delete("other", "me")
        with pytest.raises(Forbidden):
            await at.caller(token=other)
        for context in waiting:
            with pytest.raises(Forbidden, match="while this call waited"):
                at.check_again(context, "dequeueJobs", poll)


async def test_a_token_that_another_server_made_a_moment_ago_is_looked_for_but_not_at_every_guess() -> None:
    async with door() as here:
        there = Door(here.at)
        token = await there.token("a", "worker")
        assert (await here.caller(token=token)).identity == "token:a"
        other = await there.token("b", "worker")
        with pytest.raises(Forbidden):  # it was looked just now
            await here.caller(token=other)
        here.now_s += 1
        assert (await here.caller(token=other)).identity == "token:b"


async def test_a_name_is_taken_until_it_is_replaced() -> None:
    async with door() as at:
        old = await at.token("a", "worker")
        with pytest.raises(RequestInvalid, match="replace"):
            await at.tokens.change(TokenRecord("a", token_hash("plt_new"), ("worker",)), replace=False)
        await at.tokens.change(TokenRecord("a", token_hash("plt_new"), ("worker",)), replace=True)
        assert (await at.caller(token="plt_new")).identity == "token:a"
        with pytest.raises(Forbidden):
            await at.caller(token=old)


@pytest.mark.parametrize(
    "record",
    [
        TokenRecord("a b", "0" * 64, ("worker",)),
        TokenRecord("a", "0" * 63, ("worker",)),
        TokenRecord("a", "Z" * 64, ("worker",)),
        TokenRecord("a", "0" * 64, ()),
        TokenRecord("a", "0" * 64, ("a b",)),
        TokenRecord("a", "0" * 64, ("worker",), expires_ms=1),
    ],
)
async def test_a_token_that_cannot_be_is_refused(record: TokenRecord) -> None:
    async with door() as at:
        with pytest.raises(RequestInvalid):
            await at.tokens.change(record, replace=False)


async def test_uses_are_told_and_kept(rules: Path) -> None:
    async with door() as at:
        token = await at.token("a", "worker")
        assert (await at.tokens.views())[0].last_used_ms is None
        await at.caller(token=token)
        await at.tokens.note_uses()
        again = Door(at.at)
        await again.queues.refresh()
        assert (await again.tokens.views())[0].last_used_ms == at.at.clock.now_ms()


async def test_a_gateway_says_for_whom_it_calls_and_nobody_else_can(rules: Path) -> None:
    async with door(rules, gateway="plt_of_the_http_process") as at:
        behind = {"on_behalf_of": "cert:web.example", "caller_address": "192.0.2.1"}
        web = await at.caller(token="plt_of_the_http_process", **behind)
        assert (web.identity, web.address) == ("cert:web.example", "192.0.2.1")
        worker = await at.token("w", "worker")
        for token, identity in ((worker, "token:w"), (None, "anonymous")):
            other = await at.caller(token=token, **behind)
            assert (other.identity, other.address) == (identity, None)
        nobody = await at.caller(
            token="plt_of_the_http_process", on_behalf_of="token:w", caller_address="10.0.0.2", peer=("127.0.0.1", 5)
        )
        assert nobody.identity == "anonymous"
        assert nobody.may((METHODS["dequeueJobs"].actions), "mail")


async def test_the_history_looks_at_counts_and_jobs_and_changes_nothing(rules: Path) -> None:
    own = {"token": "plt_of_the_history"}
    changes, read = METHODS["updateQueue"].actions, METHODS["scanJobs"].actions
    async with door(history="plt_of_the_history") as at:  # everybody may look at bodies there
        caller = await at.caller(**own, on_behalf_of="cert:web.example", caller_address="192.0.2.1")
        assert (caller.identity, caller.address) == ("history", None)
        assert caller.may(read, "*", True)
        assert not any(caller.may(method.actions, "mail") for method in METHODS.values() if method.changes)
    async with door(rules, history="plt_of_the_history") as at:
        caller = await at.caller(**own)
        assert caller.may(read, "*")
        assert not caller.may(read, "mail", True)
        assert not caller.may(changes, "mail")


async def test_a_rules_file_may_widen_and_narrow_what_the_history_reads_and_never_lets_it_change_anything(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[roles.history]\nmay = ["read", "operate", "consume"]\nqueues = ["mail-*"]\n')
    async with door(path, history="plt_of_the_history") as at:
        caller = await at.caller(token="plt_of_the_history")
        assert caller.may(METHODS["scanJobs"].actions, "mail-out", True)
        assert not caller.may(METHODS["scanJobs"].actions, "sms")
        assert not caller.may(METHODS["scanJobs"].actions, "*")
        assert not any(caller.may(method.actions, "mail-out") for method in METHODS.values() if method.changes)
    path.write_text('[roles.history]\nmay = ["operate"]\n')
    async with door(path, history="plt_of_the_history") as at:
        assert not (await at.caller(token="plt_of_the_history")).grants


async def test_the_address_behind_a_gateway_only_narrows_what_networks_allow(rules: Path) -> None:
    async with door(rules) as at:
        await at.call("dequeueJobs", DequeueRequest("mail", 1), caller_address="10.0.0.2")
        with pytest.raises(Forbidden):
            await at.call("dequeueJobs", DequeueRequest("mail", 1), caller_address="192.0.2.1")
        with pytest.raises(Forbidden):
            await at.call("dequeueJobs", DequeueRequest("mail", 1), caller_address="10.0.0.2", peer=("192.0.2.1", 5))


FAR = ("127.0.0.1", 5)
BY_TOKEN_FROM = '[[rules]]\nwho = ["token:*"]\nfrom = ["10.0.0.0/8"]\nmay = ["consume"]'


@pytest.mark.parametrize("is_own", [True, False], ids=["of-this-server", "by-its-role"])
async def test_through_a_gateway_that_proves_itself_the_callers_own_address_decides(
    tmp_path: Path, is_own: bool
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(BY_TOKEN_FROM)
    request = DequeueRequest("mail", 1)
    async with door(path, gateway="plt_own" if is_own else "") as at:
        proof = "plt_own" if is_own else await at.token("api", "gateway")
        worker = await at.token("w", "producer")
        shown: dict[str, Any] = {"token": worker, "caller_address": "10.0.0.7", "peer": FAR}
        caller = (await at.call("dequeueJobs", request, gateway_token=proof, **shown)).caller
        assert caller is not None
        assert (caller.identity, caller.address) == ("token:w", "10.0.0.7")
        for no_proof in (None, "plt_nobody", worker):
            with pytest.raises(Forbidden, match="token:w may not"):
                await at.call("dequeueJobs", request, gateway_token=no_proof, **shown)
        with pytest.raises(Forbidden, match="token:w may not"):
            await at.call(
                "dequeueJobs", request, gateway_token=proof, token=worker, caller_address="192.0.2.1", peer=HERE
            )
        with pytest.raises(Forbidden, match="token:w may not"):
            await at.call("dequeueJobs", request, gateway_token=proof, token=worker, caller_address="x", peer=FAR)


async def test_a_gateway_whose_token_has_ended_proves_nothing_and_refuses_nobody() -> None:
    async with door() as at:
        ends_ms = at.at.clock.now_ms() + 1_000
        proof, worker = await at.token("api", "gateway", expires_ms=ends_ms), await at.token("w", "worker")
        shown: dict[str, Any] = {"token": worker, "gateway_token": proof, "caller_address": "10.0.0.7"}
        assert (await at.caller(**shown)).address == "10.0.0.7"
        await at.tokens.note_uses()
        assert {each.last_used_ms for each in await at.tokens.views()} == {at.at.clock.now_ms()}
        at.at.clock.tick(1_000)
        assert (await at.caller(**shown)).address is None


async def test_wrong_tokens_through_a_gateway_count_for_their_own_address_and_hold_up_no_answer() -> None:
    async with door(gateway="plt_own") as at:
        for number in range(FREE_TRIES + 2):
            with pytest.raises(Forbidden):
                await at.caller(
                    token=f"plt_wrong_{number}", gateway_token="plt_own", caller_address="192.0.2.9", peer=FAR
                )
        assert at.slept_s == []
        assert [each[:2] for each in at.told] == [("192.0.2.9", "wrong_token")]


async def test_all_names_of_a_certificate_count_behind_a_gateway_and_by_nobody_elses_word(rules: Path) -> None:
    async with door(rules, gateway="plt_own") as at:
        shown: dict[str, Any] = {"on_behalf_of": "cert:spiffe://x", "behind": ("other", "web.example")}
        caller = (await at.call("enqueueJobs", *enqueue("mail"), token="plt_own", **shown)).caller
        assert caller is not None
        assert caller.identity == "cert:web.example"
        for token in (None, await at.token("w", "worker")):
            with pytest.raises(Forbidden):
                await at.call("enqueueJobs", *enqueue("mail"), token=token, **shown)


@pytest.mark.parametrize(
    ("names", "identity"),
    [
        (("first", "web.example"), "cert:web.example"),
        (("first", "second"), "cert:first"),
        (("x, cert:web.example",), "cert:x%2C%20cert:web.example"),
        (("spiffe://x/a%20b",), "cert:spiffe://x/a%20b"),
    ],
)
async def test_a_certificate_is_shown_by_the_names_by_which_it_is_judged(
    tmp_path: Path, names: tuple[str, ...], identity: str
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["cert:web.example"]\nroles = ["producer"]')
    async with door(path, gateway="plt_own") as at:
        for shown in ({"names": names}, {"token": "plt_own", "on_behalf_of": "cert:first", "behind": names}):
            caller = (await at.call("getAccess", **shown)).caller
            assert caller is not None
            assert caller.identity == identity


async def test_bounds_of_a_certificate_are_those_of_all_the_names_by_which_it_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    rule = '[[rules]]\nwho = ["cert:%s"]\nmay = ["enqueue"]\nmax-queues = %d\n'
    path.write_text(
        "".join(rule % each for each in (("a.example", 3), ("b.example", 7), ("Web, Straße", 9), ("*.long", 4)))
    )
    async with door(path) as at:
        for names, identity, bound in (
            (("x", "a.example", "b.example"), "cert:a.example, cert:b.example", 7),
            (("Web, Straße", "x"), "cert:Web%2C%20Stra%C3%9Fe", 9),
            (("x" * 300 + ".long",), f"cert:{'x' * 300}.long", 4),
        ):
            caller = (await at.call("getAccess", names=names)).caller
            assert caller is not None
            assert caller.identity == identity
            assert at.gate.bounds_of(owner_name(caller.identity)).queues == bound


async def test_bodies_are_hidden_from_those_who_may_only_look() -> None:
    async with door() as at:
        viewer = await at.token("v", "viewer")
        name = "mail:s1:p1:1790000000000000"
        await at.call("lookupJobs", [name], False, False, 0, "", (), token=viewer)
        for looks in ((True, False), (False, True)):
            with pytest.raises(Forbidden, match="shows bodies or results"):
                await at.call("lookupJobs", [name], *looks, 0, "", (), token=viewer)
        with pytest.raises(Forbidden, match="shows bodies"):
            await at.call("dequeueJobs", DequeueRequest("mail", 1, dry_run=True), token=viewer)


async def test_a_lookup_needs_the_right_on_every_queue_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["read"]\nqueues = ["mail"]')
    mine, other = "mail:s1:p1:1790000000000000", "pay:s1:p1:1790000000000000"
    async with door(path) as at:
        await at.call("lookupJobs", [mine], True, False, 0, "", ())
        await at.call("lookupJobs", ["no descriptor"], True, False, 0, "", ())
        for descriptors, queue, keys in (([mine, other], "", ()), ([], "pay", [KeyRef(dedupe_key="k")])):
            with pytest.raises(Forbidden, match="'pay'"):
                await at.call("lookupJobs", descriptors, False, False, 0, queue, keys)


async def test_new_rules_count_for_callers_that_are_known(rules: Path) -> None:
    async with door(rules) as at:
        poll = DequeueRequest("mail", 1)
        waiting = await at.call("dequeueJobs", poll)
        at.check_again(waiting, "dequeueJobs", poll)
        rules.write_text("")
        await at.gate.look()
        await at.gate.look()
        with pytest.raises(Forbidden):
            await at.call("dequeueJobs", poll)
        with pytest.raises(Forbidden, match="anonymous may not consume"):
            at.check_again(waiting, "dequeueJobs", poll)


async def test_who_guesses_tokens_waits_longer_each_time_and_who_has_a_right_one_not_at_all() -> None:
    async with door() as at:
        right = await at.token("a", "worker")
        at.wake.set()
        for _ in range(FREE_TRIES + 4):
            with pytest.raises(Forbidden, match="the token is wrong"):
                await at.caller(token="plt_guess")
            assert (await at.caller(token=right)).identity == "token:a"
        assert at.slept_s == [1, 2, 4, 8, 16]
        await at.caller(token=right, peer=("10.0.0.2", 5))
        assert [each[1] for each in at.told] == ["wrong_token"]


async def test_few_of_one_address_may_wait_and_the_next_is_refused_unheard() -> None:
    async with door() as at:
        guesses = [asyncio.ensure_future(at.caller(token=f"plt_{n}")) for n in range(FREE_TRIES - 1 + MAX_WAITING_EACH)]
        while len(at.slept_s) < MAX_WAITING_EACH:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await at.caller(token="plt_more")
        at.wake.set()
        outcomes = await asyncio.gather(*guesses, return_exceptions=True)
        assert {type(each) for each in outcomes} == {Forbidden}


async def test_a_server_that_ends_holds_back_no_answer() -> None:
    async with door() as at:
        guesses = [asyncio.ensure_future(at.caller(token=f"plt_{n}")) for n in range(FREE_TRIES + 1)]
        while len(at.slept_s) < 2:
            await asyncio.sleep(0)
        at.gate.start_draining()
        outcomes = await asyncio.gather(*guesses, at.caller(token="plt_more"), return_exceptions=True)
        assert {type(each) for each in outcomes} == {Forbidden}


async def test_a_server_of_a_version_before_tokens_leaves_them_as_they_are(rules: Path) -> None:
    async with door(rules) as at:
        token = await at.token("web", "producer")
        before = QueueDirectory(at.at.members, at.at.clock)
        await before.refresh()
        await before.create("pay", "me")
        assert before.names() == {"mail", "pay"}
        await before.delete("pay", "me")
        again = TokenBook(QueueDirectory(at.at.members, at.at.clock), at.at.members, at.at.clock, lambda: at.now_s)
        assert [view.name for view in await again.views()] == ["web"]
        await at.call("enqueueJobs", *enqueue("mail"), token=token)


async def test_a_call_of_nothing_needs_nothing_but_no_wrong_token(rules: Path) -> None:
    """A receipt, and the question whether a server knows a call, come without a token."""
    async with door(rules) as at:
        report = WorkerReport("id", "name", 1_000)
        for method in ("checkpointJobs", "heartbeatJobs"):
            await at.call(method, "nowhere", [], peer=("192.0.2.1", 5))
            with pytest.raises(Forbidden, match="anonymous may not consume on queue 'nowhere'"):
                await at.call(method, "nowhere", [], report)
            with pytest.raises(Forbidden, match="the token is wrong"):
                await at.call(method, "nowhere", [], token="plt_wrong")


async def test_one_identity_has_so_many_calls_and_bytes_under_way_and_others_feel_nothing() -> None:
    async with door() as at:
        at.gate = at.with_limits(UseLimits(calls=2, call_bytes=1_000))
        noisy, calm = await at.token("noisy", "worker"), await at.token("calm", "worker")
        context = await at.call("getAccess", token=noisy)
        first, second = await at.begin(context, 10), await at.begin(context, 10)
        with pytest.raises(Overloaded, match="2 calls under way") as error:
            await at.begin(context, 10)
        assert (error.value.limit, error.value.retryable) == ("identity_calls", True)
        await at.begin(await at.call("getAccess", token=calm), 10)
        first.end()
        with pytest.raises(Overloaded, match="bytes"):
            await at.begin(context, 1_000)
        second.end()
        (await at.begin(context, 5_000)).end()  # the first of all may be as large as it likes


async def test_a_role_has_a_rate_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[roles.slow]\nmay = ["read"]\ncalls-per-second = 4\n[[rules]]\nwho = ["anonymous"]\nroles = ["slow"]'
    )
    async with door(path) as at:
        at.gate = at.with_limits(UseLimits(calls_per_second=100))
        context = await at.call("getAccess")
        for _ in range(2):  # half a second's worth
            (await at.begin(context, 1)).end()
        with pytest.raises(Overloaded) as error:
            await at.begin(context, 1)
        assert (error.value.limit, error.value.retry_after_ms) == ("identity_rate", 250)
        elsewhere = await at.call("getAccess", peer=("10.0.0.2", 1))
        (await at.begin(elsewhere, 1)).end()
        at.now_s += 0.25
        (await at.begin(context, 1)).end()


async def test_the_highest_bound_of_what_an_owner_has_counts_from_wherever_it_calls(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[roles.small]\nmay = ["read"]\nmax-queues = 5\nmax-flows = 7\n[roles.large]\nmay = ["read"]\nmax-queues = 9\n'
        '[[rules]]\nwho = ["cert:*"]\nroles = ["small"]\n'
        '[[rules]]\nwho = ["cert:web.example"]\nfrom = ["10.0.0.0/8"]\nmay = ["enqueue"]\nmax-queues = 20'
    )
    async with door(path) as at:
        await at.token("ann", "small", "large", "viewer")
        assert at.gate.bounds_of("token:ann") == OwnerBounds(flows=7, queues=9)
        assert at.gate.bounds_of("cert:web.example") == OwnerBounds(flows=7, queues=20)
        assert at.gate.bounds_of("cert:other.example") == OwnerBounds(flows=7, queues=5)
        assert at.gate.bounds_of("token:gone") == at.gate.bounds_of("anonymous") == NO_BOUNDS
    of_server = OwnerBounds(1, 2, 3, 4, 5)
    assert of_server.widened([]) == of_server
    assert of_server.widened([OwnerBounds(queues=2), NO_BOUNDS]) == OwnerBounds(1, 2, 2, 4, 5)


async def test_connections_of_one_identity_are_counted_until_they_close() -> None:
    async with door() as at:
        at.gate = at.with_limits(UseLimits(connections=2))
        token = await at.token("a", "worker")
        contexts = [await at.call("getAccess", token=token) for _ in range(3)]
        for context in (*contexts[:2], *contexts[:2]):
            (await at.begin(context, 1)).end()
        with pytest.raises(Overloaded, match="2 connections"):
            await at.begin(contexts[2], 1)
        assert contexts[0].connection is not None
        contexts[0].connection.is_closed = True
        (await at.begin(contexts[2], 1)).end()


async def test_who_sees_no_bodies_cannot_ask_how_many_jobs_a_pattern_over_them_takes(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["operate"]\nbodies = false')
    async with door(path) as at:
        for pattern in ("", "secret"):
            change = JobChange("mail", JobAction.DELETE, body_regex=pattern, dry_run=True)
            wanted = JobFilter("mail", JobState.FAILED, body_regex=pattern)
            for method, values in (("changeJobs", (change,)), ("deleteJobs", (wanted, 10))):
                if pattern:
                    with pytest.raises(Forbidden, match="shows bodies"):
                        await at.call(method, *values)
                else:
                    await at.call(method, *values)


async def test_who_sees_no_bodies_searches_by_all_but_bodies(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["read", "operate"]\nbodies = false')
    hidden = JobSelection("mail", body_conditions=[TextCondition("secret", is_not=True)])
    shown = JobSelection("mail", status_conditions=[TextCondition("Error")])
    async with door(path) as at:
        for selection, include_body, is_refused in ((shown, False, False), (shown, True, True), (hidden, False, True)):
            values = (selection, 10, include_body, None, "0")
            if is_refused:
                with pytest.raises(Forbidden, match="shows bodies"):
                    await at.call("searchJobs", *values)
            else:
                await at.call("searchJobs", *values)
        await at.call("changeFoundJobs", FoundJobsChange(shown, JobAction.RETRY))
        with pytest.raises(Forbidden, match="shows bodies"):
            await at.call("changeFoundJobs", FoundJobsChange(hidden, JobAction.RETRY, dry_run=True))


async def test_who_may_only_read_changes_nothing_that_a_search_finds(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["read"]\nqueues = ["mail"]')
    async with door(path) as at:
        await at.call("searchJobs", JobSelection("mail"), 10, False, None, "0")
        with pytest.raises(Forbidden, match="may not read on queue 'other'"):
            await at.call("searchJobs", JobSelection("other"), 10, False, None, "0")
        with pytest.raises(Forbidden, match="may not operate"):
            await at.call("changeFoundJobs", FoundJobsChange(JobSelection("mail"), JobAction.RETRY, dry_run=True))


async def test_failed_jobs_go_to_no_queue_that_one_may_not_operate(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["operate"]\nqueues = ["mail*"]')
    async with door(path) as at:
        await at.call("updateQueue", "mail", "", {"dead_letter_queue": "mail-dead"}, [], False)
        await at.call("updateQueue", "mail", "", {"dead_letter_queue": ""}, [], False)
        with pytest.raises(Forbidden, match="'pay'"):
            await at.call("updateQueue", "mail", "", {"dead_letter_queue": "pay"}, [], False)
