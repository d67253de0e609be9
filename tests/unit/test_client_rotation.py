"""Which server is next: in turn, failing ones left out for a growing pause."""

from __future__ import annotations

import random

import pytest

from pinlater.client.server_list import FIRST_PAUSE_S, LONGEST_PAUSE_S, LoadBalancer, ServerHealth


class Named:
    def __init__(self, name: str) -> None:
        self.name = name
        self.health = ServerHealth()


@pytest.fixture
def servers() -> list[Named]:
    return [Named("a"), Named("b"), Named("c")]


def test_servers_take_turns_from_a_random_start(servers: list[Named]) -> None:
    starts = set()
    for seed in range(20):
        rotation: LoadBalancer[Named] = LoadBalancer(random.Random(seed))
        names = [rotation.pick(servers, 0.0, ()).name for _ in range(6)]
        assert sorted(names[:3]) == ["a", "b", "c"]
        assert names[:3] == names[3:]
        starts.add(names[0])
    assert starts == {"a", "b", "c"}


def test_a_paused_server_is_left_out_until_its_pause_ends(servers: list[Named]) -> None:
    rotation: LoadBalancer[Named] = LoadBalancer(random.Random(1))
    servers[0].health.failed(10.0, random.Random(1))
    assert {rotation.pick(servers, 10.0, ()).name for _ in range(6)} == {"b", "c"}
    assert {rotation.pick(servers, 10.0 + FIRST_PAUSE_S, ()).name for _ in range(6)} == {"a", "b", "c"}


def test_a_server_tried_already_comes_after_a_paused_one(servers: list[Named]) -> None:
    rotation: LoadBalancer[Named] = LoadBalancer(random.Random(1))
    servers[0].health.failed(10.0, random.Random(1))
    assert rotation.pick(servers, 10.0, {servers[1], servers[2]}) is servers[0]


def test_with_all_paused_the_soonest_is_tried(servers: list[Named]) -> None:
    rotation: LoadBalancer[Named] = LoadBalancer(random.Random(1))
    for server, until_s in zip(servers, (12.0, 11.0, 13.0), strict=True):
        server.health.paused_until_s = until_s
    assert rotation.pick(servers, 10.0, ()) is servers[1]
    assert rotation.pick(servers, 10.0, set(servers)) is servers[1]


def test_the_pause_doubles_up_to_a_bound_and_ends_with_an_answer() -> None:
    health, rng, now_s = ServerHealth(), random.Random(1), 0.0
    for failure in range(12):
        health.failed(now_s, rng)
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failure)
        assert longest / 2 <= health.paused_until_s - now_s <= longest
        now_s = health.paused_until_s
    health.answered()
    assert health.paused_until_s == 0.0
    health.failed(now_s, rng)
    assert health.paused_until_s - now_s <= FIRST_PAUSE_S


def test_many_failures_at_once_are_one() -> None:
    health, rng = ServerHealth(), random.Random(1)
    for _ in range(50):
        health.failed(5.0, rng)
    assert health.paused_until_s <= 5.0 + FIRST_PAUSE_S


def test_one_that_stays_with_a_server_leaves_it_when_it_fails_or_the_time_is_over(servers: list[Named]) -> None:
    rotation: LoadBalancer[Named] = LoadBalancer(random.Random(1), sticky_s=10.0)
    first = rotation.pick(servers, 0.0, ())
    assert {rotation.pick(servers, now_s, ()) for now_s in (0.0, 2.5, 4.9)} == {first}
    second = rotation.pick(servers, 5.0, {first})
    assert second is not first
    assert rotation.pick(servers, 5.1, ()) is second, "who left does not come back at once"
    second.health.failed(5.2, random.Random(1))
    third = rotation.pick(servers, 5.2, ())
    assert third not in (first, second)
    assert rotation.pick([first, second], 9.0, ()) is not third, "it is not there any more"
    chosen = {rotation.pick(servers, 16.0 * turn, ()).name for turn in range(2, 5)}
    assert chosen == {"a", "b", "c"}


def test_servers_may_come_and_go(servers: list[Named]) -> None:
    rotation: LoadBalancer[Named] = LoadBalancer(random.Random(1))
    rotation.pick(servers, 0.0, ())
    assert rotation.pick(servers[:1], 0.0, ()) is servers[0]
    assert {rotation.pick(servers[:2], 0.0, ()).name for _ in range(2)} == {"a", "b"}
    assert {rotation.pick(servers, 0.0, ()).name for _ in range(3)} == {"a", "b", "c"}
