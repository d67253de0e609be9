"""Every route is tried with nothing, with the wrong role and with the right ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from pinlater.http.route import Route
from pinlater.http.routes import ROUTES
from pinlater.model import AccessAction
from tests.http.calls import PASSWORD, problem_of
from tests.server.running import running

NOBODY = "mail:s1:p1:1790000000000000"
IN_PATH = {"target": "mail", "queue": "mail", "descriptor": NOBODY, "schedule": "s", "shard": "1", "token": "made"}
REQUESTS: dict[str, tuple[str, Any]] = {
    "enqueue": ("", {"body": "x"}),
    "enqueue_batch": ("", {"jobs": [{"body": "x"}]}),
    "dequeue": ("", {}),
    "dequeue_from_queues": ("", {"queues": [{"queue": "mail"}]}),
    "ack": ("", {"failed": [{"descriptor": NOBODY}]}),
    "heartbeat": ("", {"heartbeats": [{"descriptor": NOBODY, "claim_descriptor": "a:1:1:1:b"}]}),
    "checkpoint": ("", {"checkpoints": [{"descriptor": NOBODY}]}),
    "lookup_jobs": ("", {"descriptors": [NOBODY]}),
    "scan_jobs": ("?state=failed", None),
    "count_jobs": ("?state=failed", None),
    "cancel_jobs": ("", {"descriptors": [NOBODY]}),
    "reschedule_jobs": ("", {"jobs": [{"descriptor": NOBODY, "run_after_ms": 4_000_000_000_000}]}),
    "change_jobs": ("", {"action": "delete", "state": "failed", "dry_run": True}),
    "change_settings": ("", {"set": {"max_body": "1KiB"}}),
    "change_shard": ("", {"dequeue_only": False}),
    "change_schedule": ("", {"queue": "mail", "cron": "0 3 * * *", "body": "x", "dry_run": True}),
    "put_token": ("", {"hash": "0" * 64, "roles": ["viewer"]}),
}
"""What follows the path, and the body; others have neither."""

RULES = "".join(
    f"""
[roles.only-{action}]
may = ["{action}"]

[roles.all-but-{action}]
may = {[str(other) for other in AccessAction if other not in (action, AccessAction.GATEWAY)]}
"""
    for action in AccessAction
)


class Place(NamedTuple):
    """A server with rules that allow nothing to who shows nothing, and tokens by the roles that they have."""

    caller: httpx.Client
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("access")
    (folder / "rules.toml").write_text(RULES)
    arguments = ["--api", "127.0.0.1:0", "--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD)]
    with running(folder, *arguments) as server:
        roles = [f"{kind}-{action}" for kind in ("only", "all-but") for action in AccessAction]
        tokens = {role: f"plt_{number:043}" for number, role in enumerate(roles)}
        with Client(f"127.0.0.1:{server.port}") as client:
            for role, token in tokens.items():
                client.update_token(role, hashlib.sha256(token.encode()).hexdigest(), [role], PASSWORD)
        with Client(f"127.0.0.1:{server.port}", token=tokens["only-operate"]) as operator:
            operator.create_queue("mail")
        address = str(server.wait_for("api_ready")["address"])
        with httpx.Client(base_url=address, timeout=30.0, trust_env=False) as caller:
            yield Place(caller, tokens)


def send(client: httpx.Client, route: Route, token: str | None = None) -> httpx.Response:
    query, body = REQUESTS.get(route.name, ("", None))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    path = route.path.format_map({**IN_PATH, "queue": "gone" if route.name == "delete_queue" else "mail"})
    return client.request(route.verb, path + query, json=body, headers=headers)


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, problem_of(response)["reason"]


@pytest.mark.parametrize("name", ["enqueue", "get_access"])
def test_a_wrong_token_is_worse_than_none(place: Place, name: str) -> None:
    (route,) = [each for each in ROUTES if each.name == name]
    assert refusal(send(place.caller, route, "plt_" + "A" * 43)) == (403, "FORBIDDEN")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_who_may_use_it(place: Place, route: Route) -> None:
    nothing = send(place.caller, route)
    if not route.method.actions:
        assert nothing.is_success
        return
    reason = "PASSWORD_INVALID" if nothing.status_code == 403 else "FORBIDDEN"
    assert refusal(nothing) == (403 if reason == "PASSWORD_INVALID" else 401, reason)
    if "WWW-Authenticate" in nothing.headers:
        assert nothing.headers["WWW-Authenticate"].startswith("Bearer")
    for action in route.method.actions:
        right = send(place.caller, route, place.tokens[f"only-{action}"])
        assert right.is_success or problem_of(right)["reason"] == "NOT_FOUND", right.text
    if len(route.method.actions) == 1:
        other = send(place.caller, route, place.tokens[f"all-but-{route.method.actions[0]}"])
        assert other.status_code == 403
        assert problem_of(other)["reason"] in ("FORBIDDEN", "PASSWORD_INVALID")
