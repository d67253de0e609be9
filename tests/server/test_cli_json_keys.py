"""The keys of `-o json` of every command that has it: those of the HTTP interface, or with `--json-keys old` those of
before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pinlater import Ack, Client, DequeueRequest, ExtendedJob, Job, LogLine, ReportingAck
from pinlater.cli import main
from pinlater.data_folder.password import hash_password
from pinlater.http.openapi import openapi_document
from pinlater.model import ScheduleChange, WorkerJob, WorkerReport
from tests.server.running import running
from tests.server.test_faces_agree import until

OLD: dict[str, list[str]] = json.loads((Path(__file__).parent / "old_json_keys.json").read_bytes())
"""By command line the keys of before; a key within an object is behind a dot."""
_DOCUMENT = openapi_document()["components"]["schemas"]
PASSWORD = "correct horse"
CALL = b'PINLATER/1 application/json\n{"job": "send", "args": [1], "kwargs": {"to": "ada"}}'
FLOW = """
name = "payroll"
dedupe_key = "november"
on_complete = { queue = "mail", job = "report" }
metadata = { month = "november" }
[[stage]]
name = "calculate"
queue = "mail"
items = [{ user = 1 }]
[[stage]]
name = "pay"
parent = "calculate"
queue = "mail"
payload = "{user: payload.user}"
final = true
"""
BY_DATA = {"versions", "jobs_by_queue", "metadata", "rates", "kwargs", "payload", "settings", "refusals"}
"""Objects whose keys are data."""

COMMAND_LINES: dict[str, tuple[str, set[str]]] = {
    "queue list": ("QueueSettingsAnswer", set()),
    "queue stats mail": ("LevelView", {"name"}),
    "queue show mail": ("QueueSettingsAnswer", set()),
    "queue set mail max_attempts=8": ("QueueSettingsAnswer", set()),
    "queue unset mail max_attempts": ("QueueSettingsAnswer", set()),
    "queue set-rate mail 100/s": ("QueueSettingsAnswer", set()),
    "queue pause mail --why tests": ("QueueSettingsAnswer", set()),
    "queue resume mail": ("QueueSettingsAnswer", set()),
    "group set mail acme --weight 3": ("GroupAnswer", set()),
    "group pause mail acme --why tests": ("GroupAnswer", set()),
    "group list mail": ("GroupAnswer", set()),
    "group show mail acme": ("GroupAnswer", set()),
    "group resume mail acme": ("GroupAnswer", set()),
    "group unset mail acme": ("GroupAnswer", set()),
    "group clear mail": ("GroupsClearedAnswer", {"left"}),
    "job enqueue mail x": ("EnqueuedAnswer", set()),
    "job enqueue mail x --dedupe-key b": ("EnqueuedAnswer", set()),
    "job get {job} --body": ("JobAnswer", {"type", "args", "kwargs"}),
    "job get --queue mail --key a": ("JobAnswer", set()),
    "job scan mail --state pending --body": ("JobAnswer", {"type", "args", "kwargs"}),
    "job get {ended} --trail": ("JobAnswer", set()),
    "job log {ended}": ("LogLineAnswer", set()),
    "job wait {ended}": ("JobAnswer", set()),
    "job count mail --state failed": ("CountAnswer", set()),
    "job retry done --dry-run": ("JobsChangedAnswer", set()),
    "job retry mail --priority 3": ("JobsChangedAnswer", set()),
    "job delete done --state failed --dry-run": ("JobsChangedAnswer", set()),
    "job cancel --queue mail --dry-run": ("JobsChangedAnswer", set()),
    "job cancel {other}": ("EnqueuedAnswer", set()),
    "job cancel --queue mail --key none": ("EnqueuedAnswer", {"key"}),
    "job reschedule {job} --delay 1h": ("EnqueuedAnswer", set()),
    "job reschedule --queue mail --key a --delay 1h": ("EnqueuedAnswer", {"key"}),
    "queue replay mail --dry-run": ("JobsChangedAnswer", set()),
    "shard list": ("ShardView", set()),
    "shard health": ("ShardView", set()),
    "schedule set nightly --priority 2 --yes": ("ScheduleAnswer", set()),
    "schedule list": ("ScheduleAnswer", set()),
    "schedule show nightly": ("ScheduleAnswer", set()),
    "schedule next nightly": ("ScheduleAnswer", set()),
    "schedule run nightly": ("EnqueuedAnswer", set()),
    "flow create again --stage send:mail": ("FlowCreatedAnswer", set()),
    'flow add {flow} calculate {{"user":2}}': ("ItemAnswer", set()),
    "flow status {flow}": ("FlowAnswer", set()),
    "flow items {flow} --payloads": ("ItemAnswer", set()),
    "flow wait {flow} --timeout 1ms": ("FlowAnswer", set()),
    "flow list": ("FlowAnswer", set()),
    "bodies status": ("BodyTiers", set()),
    "bodies sweep": ("BodiesStep", set()),
    "bodies verify": ("BodiesStep", set()),
    "bodies move --all": ("BodiesStep", set()),
    "worker list": ("WorkerInfo", set()),
    "alarms list --ended": ("AlarmAnswer", set()),
    "worker quiet --all": ("CommandedWorkerAnswer", set()),
    "worker resume --all": ("CommandedWorkerAnswer", set()),
    "worker stop --all": ("CommandedWorkerAnswer", set()),
    "cluster status": ("ClusterStatus WorkersAnswer", set()),
    "audit": ("AuditEntry", set()),
    "token create web --role producer --replace": ("TokenView", {"token"}),
    "token list": ("TokenView", set()),
    "access show": ("AccessAnswer", set()),
    "access usage": ("IdentityUsageAnswer", set()),
    "access test anonymous read --rules {rules}": ("", {"allowed", "by", "bodies"}),
}
"""Each with the schemas of OpenAPI that have its keys, and keys of what HTTP does not have."""
OF_ONE_KEY = {"admin hash-password", "dashboard", "history check", "history show", "watch"}
"""Of what is not over HTTP, and has the same keys in both forms."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with something of each kind; by name what the command lines need."""
    folder: Path = tmp_path_factory.mktemp("served")
    rules = folder / "rules.toml"
    rules.write_text('[[rules]]\nwho = ["anonymous"]\nroles = ["admin"]\n')
    (folder / "flow.toml").write_text(FLOW)
    tier = (folder / "tier").as_uri()
    password = hash_password(PASSWORD)
    with running(folder, "--rules", str(rules), "--admin-password-hash", password, "--bodies", tier) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            client.create_queue("mail")
            client.create_queue("done")
            keyed = ExtendedJob(CALL, dedupe_key="a", expires_at_ms=4_000_000_000_000)
            (job,), (other,) = client.enqueue("mail", [keyed]), client.enqueue("mail", [Job(b"x")])
            client.enqueue("done", [Job(b"\xff"), Job(b"fails", attempts_allowed=1)])
            first, second = client.dequeue(DequeueRequest("done", 2))
            said = ReportingAck(
                first.descriptor, "", 0, first.claim_descriptor, result=b"\xff", log_lines=[LogLine("done")]
            )
            client.ack("done", [said], [Ack(second.descriptor)])
            at_work = [WorkerJob(job, "send", 5)]
            report = WorkerReport("a1", "shop", 1_000, "host", 7, {"mail": 3}, 8, 1, running=at_work)
            client.checkpoint("mail", [], worker=report)
            client.update_schedule(ScheduleChange(name="nightly", queue="mail", body=b"x", cron="0 3 * * *"), PASSWORD)
            until(lambda: all(queue.levels for queue in client.cluster_status().queues))
        environment = {"PINLATER_SERVER": address, "PINLATER_ADMIN_PASSWORD": PASSWORD, "COLUMNS": "140"}
        made = CliRunner().invoke(main, ["flow", "create", "--file", str(folder / "flow.toml")], env=environment)
        jobs = {"job": job, "other": other, "ended": first.descriptor}
        yield environment | jobs | {"flow": made.stdout.strip(), "rules": str(rules)}


def keys(value: Any, of: str = "") -> set[str]:
    """All keys of objects within a value, each behind those that it is in."""
    if isinstance(value, list):
        return {key for each in value for key in keys(each, of)}
    name = of.rpartition(".")[2]
    if not isinstance(value, dict) or name in BY_DATA or (name == "queues" and value.keys() <= {"mail", "done"}):
        return set()
    found = {f"{of}.{key}".lstrip(".") for key in value}
    return found.union(*(keys(each, f"{of}.{key}".lstrip(".")) for key, each in value.items()))


def keys_of_schema(schema: dict[str, Any], of: str = "") -> set[str]:
    """The same of what a schema allows."""
    found: set[str] = set()
    if "$ref" in schema:
        found |= keys_of_schema(_DOCUMENT[schema["$ref"].rpartition("/")[2]], of)
    for each in [*schema.get("anyOf", ()), *([schema["items"]] if isinstance(schema.get("items"), dict) else ())]:
        found |= keys_of_schema(each, of)
    for key, each in schema.get("properties", {}).items():
        path = f"{of}.{key}".lstrip(".")
        found |= {path} | keys_of_schema(each, path)
    return found


def run(served: dict[str, str], line: str, *more: str) -> Any:
    """What a command line prints."""
    words = [word.format(**served) for word in line.split(" ")]
    ended = CliRunner().invoke(main, [*words, "-o", "json", *more], env=served)
    assert ended.stdout, (ended.stderr, ended.exception)
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def before(served: dict[str, str]) -> dict[str, set[str]]:
    """The keys that each command line gives with `--json-keys old`, before any of them is run without."""
    return {line: keys(run(served, line, "--json-keys", "old")) for line in COMMAND_LINES}


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_gives_the_keys_that_http_has_for_it_or_those_of_before(
    line: str, served: dict[str, str], before: dict[str, set[str]]
) -> None:
    schema, of_its_own = COMMAND_LINES[line]
    allowed = of_its_own.union(*(keys_of_schema(_DOCUMENT[each]) for each in schema.split()))
    assert keys(run(served, line)) - allowed == set()
    assert sorted(before[line]) == OLD[line]


def test_every_command_with_json_is_tried() -> None:
    def with_output(command: click.Command, name: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            for each in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), each)
                assert found is not None
                yield from with_output(found, f"{name} {each}".strip())
        elif any(each.name == "format" and "-o" in each.opts for each in command.params):
            assert any("--json-keys" in each.opts for each in command.params), name
            yield name

    tried = {" ".join(line.split()[:2]) for line in COMMAND_LINES} | {"audit"}
    assert set(with_output(main, "")) == (tried - {"audit audit"}) | OF_ONE_KEY


def test_the_variable_says_which_keys(served: dict[str, str]) -> None:
    assert run({**served, "PINLATER_JSON_KEYS": "old"}, "queue list")[0] == {"queue": "done"}
    assert run(served, "queue list")[0] == {"name": "done"}
