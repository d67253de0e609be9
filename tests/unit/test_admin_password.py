"""Who may try the admin password, and how often: pauses by a clock under control, turns, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from pinlater.access.guesses import FORGET_S, FREE_TRIES, LONGEST_PAUSE_S, MAX_WAITING_EACH, SAY_EVERY_S
from pinlater.data_folder.password import hash_from_file, hash_password
from pinlater.errors import Overloaded, PasswordInvalid, PinLaterError
from pinlater.model import AuditEntry, ConnectionRef, RequestContext
from pinlater.service import ServiceSettings
from pinlater.service.admin_password import COMPARED_IN_PAUSE, AdminPassword, Operator
from pinlater.service.audit import Audit
from tests.unit.stand import Stand, stand

pytestmark = pytest.mark.slow

SESAME = hash_password("sesame")
MADE = f"pinlater-{'x' * 43}"
ANN, BOB = ("10.0.0.1", 1), ("10.0.0.2", 1)


@dataclass
class ResilientShard:
    """An admin password, its clock, and the service whose audit it writes to."""

    at: Stand
    hashed: str = SESAME
    now_s: float = 1_000.0
    admin: AdminPassword = field(init=False)
    audit: Audit = field(init=False)

    def __post_init__(self) -> None:
        self.audit = Audit(self.at.members, self.at.clock, "here")
        self.admin = AdminPassword(self.hashed, self.audit, lambda: self.now_s)

    async def outcome(self, password: str, peer: object = ANN, identity: str = "") -> str | PinLaterError:
        try:
            await self.admin.check(password, Operator("me", peer, identity=identity))
        except PinLaterError as error:
            return error
        return "right"

    async def guess(self, number: int, peer: object = ANN, identity: str = "") -> None:
        for _ in range(number):
            assert isinstance(await self.outcome("wrong", peer, identity), PasswordInvalid)

    async def refusal(self, password: str, peer: object = ANN, identity: str = "") -> int:
        """How long the caller is told to wait."""
        outcome = await self.outcome(password, peer, identity)
        assert isinstance(outcome, Overloaded)
        assert outcome.limit == "password_pauses"
        assert outcome.retry_after_ms is not None
        return outcome.retry_after_ms

    async def entries(self) -> Sequence[AuditEntry]:
        await self.audit.drain()
        return [entry for entry in await self.audit.read(100, None) if entry.action == "wrong_password"]


@asynccontextmanager
async def guarded(hashed: str = SESAME) -> AsyncIterator[ResilientShard]:
    async with stand() as at:
        made = ResilientShard(at, hashed)
        try:
            yield made
        finally:
            made.admin.close()
            await made.audit.drain()


async def test_the_first_wrong_ones_cost_nothing_and_then_the_pause_grows() -> None:
    async with guarded() as to:
        await to.guess(FREE_TRIES)
        pauses = []
        for _ in range(8):
            wait_ms = await to.refusal("wrong")
            pauses.append(round(wait_ms / 1000))
            to.now_s += wait_ms / 1000
            await to.guess(1)
        assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


async def test_a_right_password_waits_for_the_end_of_the_pause_and_no_longer_and_ends_it() -> None:
    async with guarded() as to:
        await to.guess(FREE_TRIES)
        wait_ms = await to.refusal("sesame")
        to.now_s += wait_ms / 1000
        assert await to.outcome("sesame") == "right"
        await to.guess(FREE_TRIES)


async def test_a_right_password_that_came_before_is_let_in_beside_who_guesses_and_the_pause_goes_on() -> None:
    async with guarded() as to:
        assert await to.outcome("sesame") == "right"
        await to.guess(FREE_TRIES)
        for _ in range(3):
            await to.refusal("wrong")
            assert await to.outcome("sesame") == "right"
        await to.guess(FREE_TRIES, BOB)
        await to.refusal("sesame", BOB)
        to.now_s += 1
        await to.guess(1)
        assert await to.refusal("wrong") == 2_000 + 1


async def test_a_pause_compares_a_bounded_number_of_passwords_so_guesses_stay_slow() -> None:
    async with guarded() as to:
        assert await to.outcome("sesame") == "right"
        await to.guess(FREE_TRIES)
        for _ in range(COMPARED_IN_PAUSE):
            assert await to.outcome("sesame") == "right"
            await to.refusal("wrong")
        await to.refusal("sesame")
        to.now_s += 1
        await to.guess(1)
        assert await to.outcome("sesame") == "right"
        to.now_s += FORGET_S + 1
        await to.guess(FREE_TRIES)
        await to.refusal("sesame")


async def test_an_operator_at_work_gives_who_guesses_beside_it_no_tries_anew() -> None:
    async with guarded() as to:
        assert await to.outcome("sesame") == "right"
        await to.guess(FREE_TRIES)
        pauses = []
        with capture_logs() as logs:
            for _ in range(4):
                wait_ms = await to.refusal("wrong")
                pauses.append(round(wait_ms / 1000))
                assert await to.outcome("sesame") == "right"
                to.now_s += wait_ms / 1000
                assert await to.outcome("sesame") == "right"
                await to.guess(1)
            to.now_s += SAY_EVERY_S
            assert await to.outcome("sesame") == "right"
        assert pauses == [1, 2, 4, 8]
        said = [log["after_wrong"] for log in logs if log["event"] == "password_right"]
        assert said == [FREE_TRIES, FREE_TRIES + 4], "whose it was the operator knows, once a minute"


async def test_guesses_of_an_identity_are_its_own_wherever_it_calls_from() -> None:
    async with guarded() as to:
        for last in range(FREE_TRIES):
            await to.guess(1, (f"10.0.1.{last}", 1), "token:guest")
        await to.refusal("sesame", BOB, "token:guest")
        for identity in ("", "token:ann"):
            assert await to.outcome("sesame", BOB, identity) == "right"


async def test_another_address_is_not_paused() -> None:
    async with guarded() as to:
        await to.guess(FREE_TRIES)
        await to.refusal("sesame")
        assert await to.outcome("sesame", BOB) == "right"


async def test_addresses_of_one_network_are_one() -> None:
    async with guarded() as to:
        for last in range(FREE_TRIES):
            await to.guess(1, (f"2001:db8:0:1::{last:x}", 1, 0, 0))
        await to.refusal("sesame", ("2001:db8:0:1:ffff::", 1, 0, 0))
        assert await to.outcome("sesame", ("2001:db8:0:2::", 1, 0, 0)) == "right"


async def test_wrong_ones_are_forgotten_after_a_while() -> None:
    async with guarded() as to:
        await to.guess(FREE_TRIES - 1)
        to.now_s += FORGET_S + 1
        await to.guess(FREE_TRIES)
        await to.refusal("wrong")


async def test_many_at_once_get_no_more_tries_than_one_after_the_other() -> None:
    async with guarded() as to:
        outcomes = await asyncio.gather(*(to.outcome("wrong") for _ in range(MAX_WAITING_EACH)))
        assert [type(outcome) for outcome in outcomes].count(PasswordInvalid) == FREE_TRIES
        assert all(isinstance(outcome, PasswordInvalid | Overloaded) for outcome in outcomes)


async def test_one_address_has_few_places_and_another_one_takes_its_turn_among_them() -> None:
    async with guarded() as to:
        ended: list[str] = []

        async def check(name: str, peer: object) -> str | PinLaterError:
            outcome = await to.outcome("sesame", peer)
            ended.append(name)
            return outcome

        many = [asyncio.ensure_future(check("ann", ANN)) for _ in range(MAX_WAITING_EACH + 3)]
        await asyncio.sleep(0)
        assert await check("bob", BOB) == "right"
        over = [each for each in await asyncio.gather(*many) if each != "right"]
        assert [each.limit for each in over if isinstance(each, Overloaded)] == ["waiting_passwords"] * 3
        assert ended.count("bob") == 1
        assert ended.index("bob") <= 3 + 2  # those that found no place, the one under way and one more


async def test_checks_hold_up_nothing_else() -> None:
    async with guarded() as to:
        guesses = [asyncio.ensure_future(to.outcome("wrong", (f"10.1.0.{each}", 1))) for each in range(8)]
        await asyncio.sleep(0)
        assert await to.at.service.queue_names() == {"mail"}
        assert not any(guess.done() for guess in guesses[2:])
        await asyncio.gather(*guesses)


async def test_a_password_that_a_server_made_is_never_kept_waiting_and_wrong_ones_are() -> None:
    async with guarded(hash_from_file(MADE)) as to:
        await to.guess(FREE_TRIES)
        await to.refusal("wrong")
        assert await to.outcome(MADE) == "right"
        assert isinstance(await to.outcome(MADE[:-1] + "y"), PasswordInvalid)


async def test_the_log_has_a_line_a_minute_for_each_address() -> None:
    async with guarded() as to:
        with capture_logs() as logs:
            await to.guess(FREE_TRIES)
            await to.refusal("wrong")
            await to.guess(1, BOB)
            to.now_s += SAY_EVERY_S
            await to.guess(1)
        lines = [log for log in logs if log["event"] == "password_wrong"]
        assert [(line["address"], line["wrong"], line["refused"]) for line in lines] == [
            ("10.0.0.1", 1, 0),
            ("10.0.0.2", 1, 0),
            ("10.0.0.1", FREE_TRIES + 1, 1),
        ]
        assert {(line["source"], line["log_level"]) for line in lines} == {("me", "warning")}


async def test_the_log_says_when_the_right_one_came_at_last() -> None:
    async with guarded() as to:
        await to.guess(FREE_TRIES)
        to.now_s += LONGEST_PAUSE_S
        with capture_logs() as logs:
            assert await to.outcome("sesame") == "right"
        assert [(log["event"], log["after_wrong"]) for log in logs] == [("password_right", FREE_TRIES)]


async def test_the_audit_tells_of_the_first_pause_and_of_each_doubling() -> None:
    async with guarded() as to:
        for _ in range(FREE_TRIES * 4 + 1):
            await to.guess(1)
            to.now_s += LONGEST_PAUSE_S
        assert [(entry.who, entry.detail) for entry in await to.entries()] == [
            ("10.0.0.1", "20 of them, sent as 'me'"),
            ("10.0.0.1", "10 of them, sent as 'me'"),
            ("10.0.0.1", "5 of them, sent as 'me'"),
        ]


async def test_no_number_of_guesses_takes_the_place_of_a_change_in_the_audit() -> None:
    async with guarded() as to:
        await to.at.service.create_queue("kept")
        for each in range(1_100):
            to.audit.refused(f"10.2.{each // 256}.{each % 256}", "wrong_password", "")
            if each % 100 == 0:
                await to.audit.drain()
        entries = await to.at.service.audit(limit=10_000)
        assert [entry.action for entry in entries].count("wrong_password") == 1_000
        assert [entry.target for entry in entries if entry.action == "create_queue"] == ["kept", "mail"]


async def test_the_service_knows_whose_password_it_was() -> None:
    async with stand(settings=ServiceSettings(admin_password_hash=SESAME)) as at:
        ann, bob = (RequestContext("me", connection=ConnectionRef(peer=peer)) for peer in (ANN, BOB))
        for _ in range(FREE_TRIES):
            with pytest.raises(PasswordInvalid):
                await at.service.update_shard("1", "wrong", dequeue_only=True, context=ann)
        for call in (
            at.service.delete_queue("mail", "sesame", context=ann),
            at.service.update_queue("mail", "sesame", set={"paused": "true"}, context=ann),
            at.service.update_shard("1", "sesame", dequeue_only=True, context=ann),
        ):
            with pytest.raises(Overloaded, match=r"from 10\.0\.0\.1; the next one is checked in"):
                await call
        await at.service.delete_queue("mail", "sesame", context=bob)
