"""Messages between a worker and its processes, as the first version wrote them.

A worker starts processes as long as it runs, also when a newer version has been installed meanwhile: the newer process
must read what the older worker writes, and the other way round.
"""

from __future__ import annotations

import msgspec
import pytest

from pinlater.model import Checkpoint, DequeuedJob
from pinlater_workers.child_sockets import Frames
from pinlater_workers.heartbeat import messages as heartbeat
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.pools import messages as pool

POOL = {
    "Start": ("0000001693a55374617274a873686f703a61707091a42f737276"),
    "Ready": ("0000000791a55265616479"),
    "Broken": ("0000001092a642726f6b656ea76e6f2073686f70"),
    "Run": (
        "000000ad97a352756e02a46d61696ca17189aa64657363726970746f72a9713a73313a70313a37a4626f6479c4050062"
        "6f6479a87072696f7269747901b0617474656d7074735f616c6c6f77656405b2617474656d7074735f72656d61696e69"
        "6e6704ac72756e5f61667465725f6d730cae656e7175657565645f61745f6d730bb0636c61696d5f6465736372697074"
        "6f72a5636c61696db3636c61696d5f657870697265735f61745f6d730063cd03e8"
    ),
    "Ended": (
        "0000004592a5456e64656485a6616374696f6e01a864656c61795f6d73cd01f4a6737461747573aa617474656d707420"
        "310aa4626f6479c0a56572726f72aa56616c75654572726f72"
    ),
    "Tell": ("0000001893a454656c6c02b074686520776f726b65722073746f7073"),
    "Ask": (
        "0000008494a341736b020187aa64657363726970746f72a9713a73313a70313a37a86e65775f626f6479c4046e657874"
        "af6d6f76655f746f5f70656e64696e67c2ac72756e5f61667465725f6d73c0b0617474656d7074735f616c6c6f776564"
        "c0ae70726570656e645f737461747573a0b0636c61696d5f64657363726970746f72a5636c61696d"
    ),
    "Answer": ("0000001894a6416e7377657201a9436c61696d4c6f7374a4676f6e65"),
}
HEARTBEAT = {
    "Begin": (
        "0000006487a474797065a5426567696ea77365727665727391a3613a31a6736f75726365a26d65a76c656173655f73cb"
        "403e000000000000aa696e74657276616c5f73cb4024000000000000a671756575657391a171a873696c656e745f73cb"
        "4004000000000000"
    ),
    "Watch": (
        "0000004382a474797065a55761746368a6636c61696d73919703a171a9713a73313a70313a37a5636c61696dcb3ff800"
        "0000000000cb4004000000000000cb4023000000000000"
    ),
    "Forget": ("0000001782a474797065a6466f72676574a76e756d626572739103"),
    "Alive": ("0000000c81a474797065a5416c697665"),
    "Beaten": ("0000002783a474797065a642656174656ea76e756d626572739103a6676f6f645f73cb4012000000000000"),
    "Trouble": (
        "0000003384a474797065a754726f75626c65a76e756d626572739103a3776879aa636c61696d206c6f7374a664657461696ca4676f6e65"
    ),
    "Ended": ("0000001682a474797065a5456e646564a76e756d626572739103"),
}

JOB = DequeuedJob("q:s1:p1:7", b"\x00body", 1, 5, 4, 12, 11, "claim")
ENTRY = heartbeat.HeartbeatEntry(3, "q", "q:s1:p1:7", "claim", 1.5, 2.5, 9.5)
WATCH_WITH_TIME = (
    "0000004482a474797065a55761746368a6636c61696d73919803a171a9713a73313a70313a37a5636c61696dcb3ff800"
    "0000000000cb4004000000000000cb402300000000000007"
)
"""With the run_after of the job, which the first version did not have, and without its type, which came later."""
FIRST_ENTRY = {
    **{"number": int, "queue": str, "descriptor": str, "claim": str},
    **{"good_s": float, "from_s": float, "until_s": float},
}

POOL_MESSAGES: dict[str, pool.Message] = {
    "Start": pool.StartApp("shop:app", ["/srv"]),
    "Ready": pool.Ready(),
    "Broken": pool.StartFailed("no shop"),
    "Run": pool.RunJob(2, "mail", "q", JOB, 99, 1000),
    "Ended": pool.JobEnded(Outcome(Action.RETRY, 500, "attempt 1\n", None, "ValueError")),
    "Tell": pool.StopJob(2, StopReason.STOPPING),
    "Ask": pool.SaveRequest(2, 1, Checkpoint("q:s1:p1:7", new_body=b"next", claim_descriptor="claim")),
    "Answer": pool.SaveAnswer(1, "ClaimLost", "gone"),
}
HEARTBEAT_MESSAGES: dict[str, heartbeat.ToProcess | heartbeat.ToWorker] = {
    "Begin": heartbeat.Begin(["a:1"], "me", 30.0, 10.0, ["q"], 2.5),
    "Watch": heartbeat.WatchClaims([ENTRY]),
    "Forget": heartbeat.ForgetClaims([3]),
    "Alive": heartbeat.Alive(),
    "Beaten": heartbeat.ClaimsRenewed([3], 4.5),
    "Trouble": heartbeat.ClaimsFailing([3], StopReason.CLAIM_LOST, "gone"),
    "Ended": heartbeat.ClaimsEnded([3]),
}


GREW = {
    "Start": msgspec.defstruct("Start", [("app_spec", str), ("path", list[str])], array_like=True, tag=True),
    "Tell": msgspec.defstruct("Tell", [("number", int), ("reason", str)], array_like=True, tag=True),
    "Ended": msgspec.defstruct("Ended", [("outcome", dict[str, object])], array_like=True, tag=True),
}
"""Messages that got more fields since, as the first version had them."""


@pytest.mark.parametrize("name", POOL)
def test_messages_of_the_pool_are_those_of_the_first_version(name: str) -> None:
    message = POOL_MESSAGES[name]
    if name in GREW:
        (ours,) = Frames().feed(pool.written(message))
        (first,) = Frames().feed(bytes.fromhex(POOL[name]))
        read = msgspec.msgpack.Decoder(GREW[name]).decode
        _assert_same(read(ours), read(first))
    else:
        assert pool.written(message).hex() == POOL[name]
    (content,) = Frames().feed(bytes.fromhex(POOL[name]))
    to_process = name in ("Start", "Run", "Tell", "Answer")
    assert (pool.read_by_process(content) if to_process else pool.read_by_worker(content)) == message


def _assert_same(ours: msgspec.Struct, first: msgspec.Struct) -> None:
    """But for what the first version does not look at."""
    for name in first.__struct_fields__:
        value, wanted = getattr(ours, name), getattr(first, name)
        assert value == wanted or value.items() >= wanted.items()


@pytest.mark.parametrize("name", HEARTBEAT)
def test_messages_of_heartbeats_are_those_of_the_first_version(name: str) -> None:
    message = HEARTBEAT_MESSAGES[name]
    if name != "Watch":
        assert heartbeat.written(message).hex() == HEARTBEAT[name]
    (content,) = Frames().feed(bytes.fromhex(HEARTBEAT[name]))
    to_process = name in ("Begin", "Watch", "Forget", "Alive")
    assert (heartbeat.read_by_process(content) if to_process else heartbeat.read_by_worker(content)) == message


def test_a_claim_with_the_time_of_its_job_is_read_by_either_version() -> None:
    """The first version leaves later fields alone, as MessagePack's array says how many there are; so does ours."""
    message = heartbeat.WatchClaims([msgspec.structs.replace(ENTRY, run_after_ms=7)])
    (with_time,) = Frames().feed(bytes.fromhex(WATCH_WITH_TIME))
    assert heartbeat.read_by_process(with_time) == message
    (content,) = Frames().feed(heartbeat.written(message))
    assert heartbeat.read_by_process(content) == message
    first = msgspec.defstruct("First", [*list(FIRST_ENTRY.items())], array_like=True)
    watched = msgspec.msgpack.decode(content, type=dict[str, str | list[first]])  # type: ignore[valid-type]
    assert watched["claims"][0].until_s == 9.5  # type: ignore[union-attr]
