"""Rights by group, at a server with rules: who may use which groups, wherever a job gets one from a caller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from pinlater.errors import Forbidden
from pinlater.model import ExtendedJob, Job, ScheduleChange
from pinlater.model.flow_words import Applet, AppletKind, CompletionCallback, NewFlow, NewItem, Stage
from pinlater.model.job_selection import JobSelection
from tests.access.cluster import PASSWORD, private
from tests.access.test_stored_bounds import hash_of, token_of
from tests.server.commands import Shell
from tests.server.running import RunningServer, running

RULES = """
[roles.acme]
may = ["enqueue", "read", "operate"]
groups = ["acme*"]

[roles.mixed]
may = ["enqueue", "read", "operate"]
groups = ["", "acme", "eu-*"]

[roles.mail]
may = ["enqueue", "read"]
queues = ["mail"]
groups = ["", "betty"]
"""
ROLES = {"ada": ["acme"], "max": ["mixed"], "both": ["acme", "mail"], "ops": ["admin"]}
QUEUES = ("mail", "other")
Make = Callable[[Client, str], object]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("groups")
    (folder / "rules.toml").write_text(RULES)
    options = ("--rules", "rules.toml", "--api", "127.0.0.1:0")
    with running(folder, *options, "--admin-password-hash", hash_password(PASSWORD)) as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            for name, roles in ROLES.items():
                client.update_token(name, hash_of(token_of(name)), roles, PASSWORD)
        with client_of(server, "ops") as ops:
            for queue in (*QUEUES, "flows"):
                ops.create_queue(queue)
            make_flow(ops, "")
        yield server


def client_of(server: RunningServer, name: str) -> Client:
    return Client(f"127.0.0.1:{server.port}", token=token_of(name))


def enqueue(client: Client, group: str) -> object:
    return client.enqueue("mail", [Job(b"x") if not group else ExtendedJob(b"x", group=group)])


def make_schedule(client: Client, group: str, password: str = "") -> object:
    name = f"s-{group or 'none'}"
    return client.update_schedule(ScheduleChange(name=name, queue="mail", cron="0 3 1 1 *", group=group), password)


def make_flow(client: Client, group: str) -> str:
    return client.create_flow(NewFlow("f", [Stage("s", "s", "flows", group=group)])).id


def stored(server: RunningServer) -> list[str]:
    with client_of(server, "ops") as ops:
        found = ops.search_jobs(JobSelection("mail")).jobs
    return sorted(job.group or "" for job in found)


@pytest.mark.parametrize("make", [enqueue, make_schedule, make_flow], ids=["enqueue", "schedule", "flow"])
def test_a_job_gets_a_group_that_a_role_of_its_caller_names_and_no_other(server: RunningServer, make: Make) -> None:
    with client_of(server, "ada") as ada, client_of(server, "max") as mixed, client_of(server, "ops") as ops:
        for client, group in (
            (ada, "acme"),
            (ada, "acme-2"),
            (mixed, ""),
            (mixed, "acme"),
            (mixed, "eu-1"),
            (ops, "x"),
        ):
            make(client, group)
        before = stored(server)
        for client, group in ((ada, ""), (ada, "acm"), (ada, "vip"), (mixed, "acme-2"), (mixed, "eu")):
            with pytest.raises(Forbidden) as error:
                make(client, group)
            assert (f"in group '{group}';" if group else "without a group;") in str(error.value)
            allowed = "in group 'acme*'" if client is ada else "without a group, in group 'acme', in group 'eu-*'"
            assert f"allowed to it there: {allowed}; ask for a role" in str(error.value)
            assert not error.value.retryable
        assert stored(server) == before


def test_one_job_of_a_batch_refuses_all_and_roles_add_up_by_queue(server: RunningServer) -> None:
    with client_of(server, "both") as both:
        before = stored(server)
        both.enqueue("mail", [Job(b"x"), ExtendedJob(b"x", group="betty"), ExtendedJob(b"x", group="acme")])
        assert stored(server) == sorted([*before, "", "betty", "acme"])
        for queue, group in (("mail", "vip"), ("other", "betty"), ("other", "")):
            with pytest.raises(Forbidden, match=f"may not enqueue on queue '{queue}'"):
                both.enqueue(queue, [ExtendedJob(b"x", group="acme"), ExtendedJob(b"x", group=group, send_id="1")])
        assert stored(server) == sorted([*before, "", "betty", "acme"])


def test_a_schedule_that_a_change_leaves_in_a_group_needs_the_right_or_the_password(server: RunningServer) -> None:
    with client_of(server, "ada") as ada:
        make_schedule(ada, "theirs", PASSWORD)
        with pytest.raises(Forbidden, match="may not operate on all queues in group 'theirs'"):
            ada.update_schedule(ScheduleChange(name="s-theirs", body=b"other"), "")
        with pytest.raises(Forbidden, match="without a group"):
            ada.update_schedule(ScheduleChange(name="s-new", queue="mail", cron="0 3 1 1 *"), "")
        ada.update_schedule(ScheduleChange(name="s-theirs", group="acme"), "")
        ada.update_schedule(ScheduleChange(name="s-theirs", body=b"other"), "")


def test_weights_and_pauses_of_other_groups_need_the_password(server: RunningServer) -> None:
    with client_of(server, "ada") as ada:
        ada.update_group("mail", "acme", "", set={"weight": "2"})
        ada.update_group("mail", "acme-*", "", set={"weight": "2"})
        for group in ("vip", "acm*", "ac*me"):
            with pytest.raises(Forbidden, match="may not operate on queue 'mail' in group"):
                ada.update_group("mail", group, "", set={"weight": "1000"})
            ada.update_group("mail", group, PASSWORD, set={"weight": "2"})


def test_a_stage_is_judged_by_all_groups_that_its_template_can_make(server: RunningServer) -> None:
    by_job = Applet(AppletKind.JOB, job="split", queue="flows")
    with client_of(server, "ada") as ada, client_of(server, "max") as mixed, client_of(server, "ops") as ops:
        make_flow(mixed, "eu-{tenant}")
        for client, group, why in (
            (mixed, "{tenant}", "in group '\\*'"),
            (mixed, "acme{tenant}", "in group 'acme\\*'"),
            (ada, "acme-{tenant}", "without a group"),  # which an item has whose payload lacks the field
        ):
            with pytest.raises(Forbidden, match=why):
                make_flow(client, group)
        root = Stage("s", "s", "flows", group="acme")
        child = Stage("c", "c", "flows", "s", by_job, group="acme")
        with pytest.raises(Forbidden, match="without a group"):  # the jobs that make its items have none
            ada.create_flow(NewFlow("f", [root, child]))
        with pytest.raises(Forbidden, match="without a group"):
            ada.create_flow(NewFlow("f", [root], on_complete=CompletionCallback(queue="flows")))
        flow, own = make_flow(ops, "{tenant}"), make_flow(ada, "acme")
        ada.add_flow_items(own, "s", [NewItem(b"1")])
        with pytest.raises(Forbidden, match="in group '\\*'"):
            mixed.add_flow_items(flow, "s", [NewItem(b'{"tenant": "vip"}')])
        ops.add_flow_items(flow, "s", [NewItem(b'{"tenant": "vip"}')])
        assert [each.items for each in ada.get_flow(flow).stages] == [1]


def test_http_and_the_command_line_have_them(server: RunningServer, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {token_of('ada')}"}
    with httpx.Client(base_url=str(server.wait_for("api_ready")["address"]), timeout=60, headers=headers) as http:
        refused = http.post("/v1/queues/mail/jobs", json={"body": "x", "group": "vip"})
        assert (refused.status_code, refused.json()["reason"]) == (403, "FORBIDDEN")
        assert http.post("/v1/queues/mail/jobs", json={"body": "x", "group": "acme"}).status_code == 201
        (grant,) = http.get("/v1/access").json()["grants"]
        assert grant["groups"] == ["acme*"]
    private(tmp_path / "max.token", token_of("max"))
    shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
    assert "(none)" in shell("access", "show", "--token-file", "max.token").out
    (shown,) = json.loads(shell("access", "show", "--token-file", "max.token", "-o", "json").out)
    assert shown["grants"][0]["groups"] == ["", "acme", "eu-*"]
    told = shell("job", "enqueue", "mail", "x", "--group", "vip", "--token-file", "max.token", code=1).err
    assert "token:max may not enqueue on queue 'mail' in group 'vip'" in told
