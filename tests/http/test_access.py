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
from pinlater.errors import PasswordInvalid
from pinlater.http.assignments import AssignmentRef
from pinlater.http.route import Route
from pinlater.http.routes import ROUTES
from pinlater.model import AccessAction
from pinlater.model.flow_words import NewFlow, Stage
from tests.http.calls import PASSWORD, problem_of
from tests.server.running import running

NOBODY = "mail:s1:p1:1790000000000000"
IN_PATH = {
    "target": "mail",
    "queue": "mail",
    "descriptor": NOBODY,
    "schedule": "s",
    "shard": "1",
    "token": "made",
    "alarm": "no_worker",
    "group": "acme",
    "worker": "ada",
    "assignment": AssignmentRef(NOBODY, "web:1:1790000000000:1-c0ffee:ada").id(),
}
FLOW = {"name": "f", "stages": [{"name": "s", "queue": "pay"}]}
REQUESTS: dict[str, tuple[str, Any]] = {
    "mute_alarm": ("", {"for_ms": 1_000, "reason": "known"}),
    "change_group": ("", {"set": {"weight": "2"}}),
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
    "search_jobs": ("", {"phases": ["failed"], "limit": 5}),
    "change_found_jobs": ("", {"action": "delete", "phases": ["failed"], "dry_run": True}),
    "change_settings": ("", {"set": {"max_body": "1KiB"}}),
    "change_shard": ("", {"dequeue_only": False}),
    "change_schedule": ("", {"queue": "mail", "cron": "0 3 * * *", "body": "x", "dry_run": True}),
    "create_flow": ("", FLOW),
    "add_flow_items": ("", {"stage": "s", "items": [{"payload": 1}]}),
    "command_workers": ("", {"command": "quiet", "workers": ["nobody"]}),
    "seal_flow": ("", {}),
    "resume_flow": ("", {}),
    "retry_flow_items": ("", {"failed": True}),
    "assign_flow_item": ("", {}),
    "post_job": ("", {"name": "s", "queue": "pay"}),
    "get_job_items": ("?jobId={flow}", None),
    "end_assignment_with_result": ("", {"result": 1}),
    "end_assignment_with_failure": ("", {"reason": "x"}),
    "change_bodies": ("", {"action": "sweep", "dry_run": True}),
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

OTHER_RULES = """
[roles.of-pay]
may = ["enqueue", "consume", "read", "operate"]
queues = ["pay"]

[roles.of-mail]
may = ["enqueue", "consume", "read", "operate"]
queues = ["mail"]

[roles.blind]
may = ["read"]
bodies = false
"""


class Place(NamedTuple):
    """A server with rules that allow nothing to who shows nothing, and tokens by the roles that they have."""

    caller: httpx.Client
    tokens: dict[str, str]
    flow: str
    server: str

    def path(self, route: Route) -> dict[str, str]:
        """What stands in the path of a route; those that end a flow, or get an item, have one of their own."""
        flow, item = self.flow, "0"
        if route.name in ("delete_flow", "delete_job", "cancel_flow", "seal_flow"):
            flow = self.made()
        elif "{item}" in route.path:
            added = {"stage": "s", "items": [{"payload": 1}]}
            (item,) = self.as_role("only-enqueue", "POST", f"/v1/flows/{flow}/items", added)["numbers"]
        queue = "gone" if route.name == "delete_queue" else "mail"
        return {**IN_PATH, "queue": queue, "flow": flow, "job": flow, "item": str(item)}

    def made(self) -> str:
        return str(self.as_role("only-enqueue", "POST", "/v1/flows", FLOW)["id"])

    def as_role(self, role: str, verb: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return self.caller.request(verb, path, json=body, headers=headers).raise_for_status().json()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("access")
    (folder / "rules.toml").write_text(RULES + OTHER_RULES)
    arguments = ["--api", "127.0.0.1:0", "--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD)]
    arguments += ["--bodies", (folder / "tier").as_uri()]
    with running(folder, *arguments) as server:
        roles = [f"{kind}-{action}" for kind in ("only", "all-but") for action in AccessAction]
        roles += ["of-pay", "of-mail", "blind"]
        tokens = {role: f"plt_{number:043}" for number, role in enumerate(roles)}
        with Client(f"127.0.0.1:{server.port}") as client:
            for role, token in tokens.items():
                client.update_token(role, hashlib.sha256(token.encode()).hexdigest(), [role], PASSWORD)
        with Client(f"127.0.0.1:{server.port}", token=tokens["only-operate"]) as operator:
            operator.create_queue("mail")
        with Client(f"127.0.0.1:{server.port}", token=tokens["of-pay"]) as operator:  # it may make the first one there
            operator.create_flow(NewFlow("ready", [Stage("ready", "", "pay")], sealed=["ready"]))
        address = str(server.wait_for("api_ready")["address"])
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as caller:
            place = Place(caller, tokens, "", f"127.0.0.1:{server.port}")
            yield place._replace(flow=place.made())


def send(place: Place, route: Route, token: str | None = None) -> httpx.Response:
    query, body = REQUESTS.get(route.name, ("", None))
    names = place.path(route)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return place.caller.request(route.verb, (route.path + query).format_map(names), json=body, headers=headers)


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, problem_of(response)["reason"]


@pytest.mark.parametrize("name", ["enqueue", "get_access"])
def test_a_wrong_token_is_worse_than_none(place: Place, name: str) -> None:
    (route,) = [each for each in ROUTES if each.name == name]
    assert refusal(send(place, route, "plt_" + "A" * 43)) == (403, "FORBIDDEN")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_who_may_use_it(place: Place, route: Route) -> None:
    nothing = send(place, route)
    if not route.method.actions:
        assert nothing.is_success
        return
    reason = "PASSWORD_INVALID" if nothing.status_code == 403 else "FORBIDDEN"
    assert refusal(nothing) == (403 if reason == "PASSWORD_INVALID" else 401, reason)
    if "WWW-Authenticate" in nothing.headers:
        assert nothing.headers["WWW-Authenticate"].startswith("Bearer")
    for action in route.method.actions:
        right = send(place, route, place.tokens[f"only-{action}"])
        assert right.is_success or problem_of(right)["reason"] in ("NOT_FOUND", "NOT_HELD"), right.text
    if len(route.method.actions) == 1:
        other = send(place, route, place.tokens[f"all-but-{route.method.actions[0]}"])
        assert other.status_code == 403
        assert problem_of(other)["reason"] in ("FORBIDDEN", "PASSWORD_INVALID")


@pytest.mark.parametrize(
    "route", [each for each in ROUTES if "{flow}" in each.path or "{job}" in each.path], ids=lambda route: route.name
)
def test_flows_of_other_queues_are_not_there(place: Place, route: Route) -> None:
    assert refusal(send(place, route, place.tokens["of-mail"])) == (404, "FLOW_NOT_FOUND")


@pytest.mark.parametrize("route", [each for each in ROUTES if "{item}" in each.path], ids=lambda route: route.name)
def test_items_of_other_queues_are_not_there(place: Place, route: Route) -> None:
    assert refusal(send(place, route, place.tokens["of-mail"])) == (404, "ITEM_NOT_FOUND")


def test_lists_show_flows_of_queues_that_the_caller_may_read(place: Place) -> None:
    for path, field in (("/v1/flows", "flows"), ("/job", "trees")):
        shown = [place.as_role(role, "GET", path)[field] for role in ("of-pay", "of-mail")]
        assert [bool(each) for each in shown] == [True, False]


def test_payloads_need_the_right_to_see_bodies(place: Place) -> None:
    token = {"Authorization": f"Bearer {place.tokens['blind']}"}
    for path, hides in (
        (f"/v1/flows/{place.flow}/items?", "include_body"),
        (f"/job_item?jobId={place.flow}&", "includePayload"),
    ):
        assert refusal(place.caller.get(path, headers=token)) == (403, "FORBIDDEN")
        place.as_role("blind", "GET", f"{path}{hides}=false")


def test_an_assignment_is_no_credential(place: Place) -> None:
    (number,) = place.as_role(
        "of-pay", "POST", f"/v1/flows/{place.flow}/items", {"stage": "s", "items": [{"payload": 1}]}
    )["numbers"]
    path = f"/assignment/{place.as_role('of-pay', 'POST', f'/job_item/{number}/worker/ada')['assignmentId']}"
    for what in ("result", "failure"):
        token = {"Authorization": f"Bearer {place.tokens['of-mail']}"}
        assert refusal(
            place.caller.post(f"{path}/{what}", json={"result": 1} if what == "result" else {}, headers=token)
        ) == (403, "FORBIDDEN")
    assert place.as_role("of-pay", "POST", f"{path}/heartbeat") == {"cancelled": False}
    assert place.as_role("of-pay", "POST", f"{path}/result", {"result": 1}) == {"outcome": "succeeded"}


def test_a_password_that_is_sent_has_to_be_right_also_where_none_is_needed(place: Place) -> None:
    operator = {"Authorization": f"Bearer {place.tokens['only-operate']}"}
    change = {"set": {"max_attempts": "9"}}
    for password, status in ((None, 200), ("", 200), (PASSWORD, 200), ("wrong", 403)):
        headers = operator if password is None else {**operator, "X-Admin-Password": password}
        answer = place.caller.request("PATCH", "/v1/queues/mail/settings", json=change, headers=headers)
        assert answer.status_code == status, answer.text
    assert "send no password" in answer.text
    with Client(place.server, token=place.tokens["only-operate"]) as client:
        with pytest.raises(PasswordInvalid, match="send no password"):
            client.update_queue("mail", "wrong", set={"max_attempts": "9"})
        client.update_queue("mail", "", set={"max_attempts": "9"})


def test_a_name_that_is_not_known_names_the_header(place: Place) -> None:
    answer = place.caller.get("/v1/queues", headers={"Host": "queues.example"})
    assert answer.status_code == 421
    assert "The header Host has 'queues.example'" in answer.text
