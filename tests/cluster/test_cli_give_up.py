"""A shard whose store is really dead: its keys are refused, and `pinlater shard give-up` lets them live elsewhere."""

from __future__ import annotations

import re

import pytest
from click.testing import Result

from pinlater import DequeueRequest
from tests.cluster.conftest import Command, TwoServers, eventually
from tests.cluster.test_cli_dead_shard import shard_of

pytestmark = pytest.mark.store("redis")
KEYS = [f"key-{number}" for number in range(40)]


def enqueue(command: Command, key: str, *more: str, code: int | None = 0) -> Result:
    return command("job", "enqueue", "mail", f"body of {key}", "--dedupe-key", key, *more, code=code)


def descriptor_of(result: Result) -> str:
    found = re.search(r"mail:\S+", result.stdout)
    assert found is not None
    return found[0]


def homes(command: Command) -> dict[str, str]:
    heading, *lines = command("shard", "list").stdout.splitlines()
    at, end = (heading.index(name) for name in ("KEYS", "TROUBLE"))
    return {line.split()[0]: line[at:end].strip() for line in lines}


def test_keys_of_a_dead_shard_are_refused_until_it_is_given_up(cluster: TwoServers, command: Command) -> None:
    command("queue", "create", "mail")
    eventually(lambda: enqueue(command, KEYS[0], code=None).exit_code == 0)
    stored = {key: descriptor_of(enqueue(command, key)) for key in KEYS}
    lost = [key for key in KEYS if shard_of(stored[key]) == "2"]
    assert 0 < len(lost) < len(KEYS)
    assert homes(command) == {"1": "home", "2": "home"}

    cluster.kill_shard_2()
    refused = enqueue(command, lost[0], "--timeout", "5s", code=1)
    assert "shard 2, where keys of this call live" in refused.stderr
    alive = next(key for key in KEYS if key not in lost)
    assert descriptor_of(enqueue(command, alive)) == stored[alive]

    command("shard", "drain", "1", "--no-wait")
    trouble = "keys cannot move: keys are to live on shards 2; all where they live now must know: shard 2 cannot"
    eventually(lambda: trouble in command("cluster", "status").stdout)
    command("shard", "drain", "1", "--undo")
    eventually(lambda: "keys cannot move" not in command("cluster", "status").stdout)

    assert "--yes is needed" in command("shard", "give-up", "2", code=2).stderr
    told = command("shard", "give-up", "2", "--yes").stderr
    assert "may run a second time" in told
    assert "shard 2 is given up" in told
    eventually(lambda: homes(command) == {"1": "home", "2": "given up"})
    anew = {key: descriptor_of(enqueue(command, key)) for key in lost}
    assert {shard_of(descriptor) for descriptor in anew.values()} == {"1"}
    eventually(lambda: "keys cannot move" not in command("cluster", "status").stdout)  # each server's lease says it

    cluster.revive_shard_2()
    bodies: list[bytes] = []

    def are_handed_out() -> bool:
        with cluster.client() as client:
            bodies.extend(job.body for job in client.dequeue(DequeueRequest("mail", 100, wait_ms=100)))
        return len(bodies) == len(KEYS) + len(lost)

    eventually(are_handed_out)
    assert sorted(bodies) == sorted(f"body of {key}".encode() for key in [*KEYS, *lost])
    command("shard", "drain", "2", "--undo")
    eventually(lambda: homes(command) == {"1": "home", "2": "home"})
