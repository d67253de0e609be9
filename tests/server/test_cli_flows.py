"""`pinlater flow` against a real server, as operators and scripts use it."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pinlater import Ack, Client, DequeueRequest
from pinlater.cli import main
from pinlater.data_folder.password import hash_password
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal
from tests.stores.process import free_port

PASSWORD = "correct horse"
WITHIN_S = 60.0
RULES = '[[rules]]\nwho = ["anonymous"]\nroles = ["admin"]\n'
VIEWER, STRANGER = f"plt_{1:043}", f"plt_{2:043}"

_names = itertools.count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    rules = '[roles.elsewhere]\nmay = ["read", "enqueue", "operate"]\nqueues = ["other"]\n' + RULES
    (folder / "rules.toml").write_text(rules)
    with running(folder, "--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD)) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            for name, token, role in (("viewer", VIEWER, "viewer"), ("stranger", STRANGER, "elsewhere")):
                client.update_token(name, hashlib.sha256(token.encode()).hexdigest(), [role], PASSWORD)
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def queue() -> str:
    """That of the first stage; nobody has made it."""
    return f"flow_{next(_names)}"


class Command:
    """`pinlater flow ARGUMENTS`, which must end with `code`."""

    def __init__(self, address: str) -> None:
        self._environment = {"PINLATER_SERVER": address, "COLUMNS": "140"}

    def __call__(self, *arguments: str, code: int = 0, stdin: str | bytes = "", **variables: str) -> Result:
        environment = {**self._environment, **variables}
        result = CliRunner().invoke(main, ["flow", *arguments], input=stdin, env=environment)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def made(self, *arguments: str, **options: Any) -> str:
        """The id of a new flow."""
        return self("create", *arguments, **options).stdout.strip()

    def row(self, flow: str) -> dict[str, Any]:
        (row,) = json.loads(self("status", flow, "-o", "json").stdout)
        return dict(row)

    def stage(self, flow: str, name: str) -> dict[str, Any]:
        return next(each for each in self.row(flow)["stages"] if each["name"] == name)

    def items(self, flow: str, *options: str) -> list[dict[str, Any]]:
        return list(json.loads(self("items", flow, *options, "--payloads", "-o", "json").stdout))


@pytest.fixture
def flow(address: str) -> Command:
    return Command(address)


def until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        time.sleep(0.02)


@contextmanager
def started(folder: Path, address: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`pinlater flow ARGUMENTS` under way; it does not outlive the block."""
    with Shell(folder, address).start("flow", *arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def work(client: Client, queue: str, results: list[Any]) -> list[Any]:
    """Do so many jobs of a queue as a worker does; None fails for good. Their payloads."""
    bodies = []
    for result in results:
        (job,) = client.dequeue(DequeueRequest(queue, 1, wait_ms=10_000))
        bodies.append(job.body)
        if result is None:
            ack = Ack(job.descriptor, "no account", claim_descriptor=job.claim_descriptor, permanent=True)
            client.ack(queue, failed=[ack])
        else:
            ack = Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=json.dumps(result).encode())
            client.ack(queue, succeeded=[ack])
    return [json.loads(body) for body in bodies]


def test_a_flow_of_a_file_from_its_making_to_its_end(flow: Command, client: Client, queue: str, tmp_path: Path) -> None:
    (tmp_path / "payroll.toml").write_text(f"""
name = "payroll"
dedupe_key = "{queue}"
on_complete = {{ queue = "{queue}_done", job = "report" }}
[metadata]
month = "{queue}"
[[stage]]
name = "calculate"
queue = "{queue}"
items = [{{ user = 1 }}]
[[stage]]
name = "pay"
parent = "calculate"
queue = "{queue}_pay"
payload = "{{user: payload.user, amount: result.amount}}"
final = true
""")
    file = ("--file", str(tmp_path / "payroll.toml"))
    made = flow.made(*file)
    again = flow("create", *file, "-o", "json")
    assert json.loads(again.stdout) == {"id": made, "is_new": False}
    assert "was there already" in again.stderr
    assert "open" in flow("status", made).stdout
    number = int(flow("add", made, "calculate", '{"user": 2}', "--dedupe-key-from", "user").stdout)
    assert int(flow("add", made, "calculate", '{"user": 2}', "--dedupe-key-from", "user").stdout) == number
    assert "sealed" in flow("seal", made).stderr
    assert flow("wait", made, "--timeout", "1ms", code=124).stderr.strip().endswith("2 items pending")
    assert work(client, queue, [{"amount": 7}, {"amount": 8}]) == [{"user": 1}, {"user": 2}]
    assert work(client, f"{queue}_pay", ["paid", None]) == [{"user": 1, "amount": 7}, {"user": 2, "amount": 8}]
    waited = flow("wait", made, "-o", "jsonl", code=5)
    assert json.loads(waited.stdout)["state"] == "complete"
    assert f"1 item failed: `pinlater flow items {made} --state failed`" in waited.stderr
    (failed,) = flow.items(made, "--state", "failed")
    assert (failed["stage"], failed["payload"], failed["failures"][0]["reason"]) == (
        "pay",
        {"user": 2, "amount": 8},
        "no account",
    )
    assert "no account" in flow("items", made, "--stage", "pay", "--state", "failed").stdout
    assert [each["result"] for each in flow.items(made, "--stage", "pay", "--state", "succeeded")] == ["paid"]
    assert [each["number"] for each in flow.items(made, "--number", str(number))] == [number]
    until(lambda: "made at" in flow("status", made).stdout)
    (report,) = client.dequeue(DequeueRequest(f"{queue}_done", 1))
    assert made.encode() in report.body
    (listed,) = json.loads(flow("list", "--metadata", f"month={queue}", "-o", "json").stdout)
    assert (listed["id"], listed["callback"]["tries"]) == (made, 1)
    assert queue in flow("list", "--name", "payroll", "--dedupe-key", queue, "--state", "complete").stdout
    assert json.loads(flow("list", "--metadata", f"month={queue}", "--state", "running", "-o", "json").stdout) == []
    assert "was deleted" in flow("delete", made, "--yes").stderr
    gone = flow("status", made, code=1)
    assert gone.stderr.startswith(f"pinlater: there is no flow '{made}': it was deleted, its time to live is over, or")


def test_a_flow_of_options_streams_its_items_and_goes_on_after_a_break(
    flow: Command, client: Client, queue: str, tmp_path: Path
) -> None:
    users = tmp_path / "users.jsonl"
    users.write_text("".join(f'{{"user": {each}}}\n' for each in range(1_500)))
    simple = ("mails", "--stage", f"render:{queue}", "--stage", f"send:{queue}_2:send_mail", "--dedupe-key", queue)
    plain = (*simple, "--items", str(users), "--seal")
    made = flow.made(*simple)
    refused = flow("create", *plain, code=2)
    assert "items without dedupe keys would come twice: nothing was added" in refused.stderr
    assert flow.stage(made, "render")["items"] == 0
    assert flow.made(*plain, "--dedupe-key-from", "user") == made
    stages = flow.row(made)["stages"]
    assert [(each["name"], each["parent"], each["job"], each["items"], each["is_sealed"]) for each in stages] == [
        ("render", "", "", 1_500, True),
        ("send", "render", "send_mail", 0, False),
    ]
    assert "sealed already; nothing was added" in flow("create", *plain, "--dedupe-key-from", "user").stderr
    sealed = flow("add", made, "render", "1", code=1)
    assert sealed.stderr == f"pinlater: stage 'render' of flow {made} is sealed: no more items come into it\n"
    assert len(flow.items(made)) == 100
    assert [each["dedupe_key"] for each in flow.items(made, "--all")] == [str(each) for each in range(1_500)]
    asked = flow("cancel", made, code=2)
    assert "--yes is needed" in asked.stderr
    assert flow.row(made)["state"] == "running"
    flow("cancel", made, "--yes")
    assert "it was cancelled" in flow("wait", made, code=1).stderr
    assert flow("cancel", made, "--yes").stderr.endswith("is over\n")


def test_what_was_added_before_a_bad_line_is_told(flow: Command, queue: str, tmp_path: Path) -> None:
    made = flow.made("mails", "--stage", f"send:{queue}")
    lines = b"".join(b'{"user": %d}\n\n' % each for each in range(1_200))
    broken = flow("add", made, "send", "-", code=2, stdin=lines + b"{x}\n")
    assert "pinlater: 1,000 items added, those up to line 1,999, before that\n" in broken.stderr
    assert "Error: standard input, line 2401: the payload of the item is b'{x}'; allowed: JSON" in broken.stderr
    assert len(broken.stdout.splitlines()) == flow.stage(made, "send")["items"] == 1_000
    for given, stdin, told in (
        (["send"], "", "give items as JSON, or --file"),
        (["send", "-", "1"], "", "- stands for all of standard input"),
        (["send", "{"], "", "item 1: the payload"),
        (["send", "--file", str(tmp_path / "none")], "", "none: No such file"),
        (["send", "-", "--keyed", "--dedupe-key-from", "x"], "1", "give no --"),
        (["send", "-", "--keyed"], '{"payload": 1, "dedup": 2}', "line 1: no object of payload"),
        (["mail", "1"], "", f"the name of a stage is 'mail'; allowed: one of flow {made}: send"),
    ):
        assert told in flow("add", made, *given, code=2, stdin=stdin).stderr
    assert flow("add", made, "send", "--keyed", "-", stdin='{"payload": {"a": 1.50}, "dedupe_key": "k"}').stdout
    assert flow.items(made, "--dedupe-key", "k")[0]["payload"] == {"a": 1.5}
    assert "0 items" in flow("add", made, "send", "-", "--seal").stderr
    assert flow.stage(made, "send")["is_sealed"]


def test_items_that_a_killed_command_added_are_not_added_again(
    flow: Command, address: str, queue: str, tmp_path: Path
) -> None:
    made = flow.made("mails", "--stage", f"send:{queue}")
    lines = [b'{"user": %d}\n' % each for each in range(3_000)]
    add = ("add", made, "send", "-", "--dedupe-key-from", "user")
    with started(tmp_path, address, *add) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(lines[:1_500]))
        until(lambda: flow.stage(made, "send")["items"] == 1_000)
    whole = flow(*add, stdin=b"".join(lines))
    assert len(set(whole.stdout.split())) == 3_000
    assert flow.stage(made, "send")["items"] == 3_000


def test_mistakes_of_a_file_are_told_with_its_name(flow: Command, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    stage = f'name = "x"\n[[stage]]\nname = "a"\nqueue = "{queue}"\n'
    below = f'{stage}[[stage]]\nname = "b"\nqueue = "{queue}"\nparent = '
    for text, told in (
        (stage + "retries = 3", "[[stage]] a: 'retries' is unknown; allowed: "),
        (below + '"c"', "the parent of stage b is 'c'"),
        (
            stage + f'[[stage]]\nname = "b"\nqueue = "{queue}"\nparent = "a"\npayload = "{{"',
            "the expression of stage b",
        ),
        (stage + "max_failures = 1000", "maxFailures of stage a is 1000; allowed: 0 to 99"),
        ('on_complete = { url = "http://127.0.0.1/" }\n' + stage, "flow.toml: "),
    ):
        file.write_text(text)
        refused = flow("create", "--file", str(file), code=2)
        assert f"Error: {file}: " in refused.stderr
        assert told in refused.stderr
    for given, told in (
        ([], "give --file, or NAME and --stage"),
        (["--stage", "a:b"], "needs a NAME"),
        (["x", "--stage", "a"], "--stage 'a' is not NAME:QUEUE"),
        (["x", "--stage", "a:b", "--file", str(file)], "give --file, or NAME and --stage"),
        (["x", "--stage", "a:b", "--metadata", "m"], "--metadata 'm' is not KEY=VALUE"),
        (["x", "--stage", "a:b", "--dedupe-key-from", "m"], "keys of items are for --items"),
        (["a b", "--stage", f"a:{queue}"], "the name of the flow is 'a b'; allowed: 1 to 200 letters"),
    ):
        assert told in flow("create", *given, code=2).stderr
    assert json.loads(flow("list", "--name", "x", "-o", "json").stdout) == []


def test_what_a_flow_is_stuck_with_is_shown_and_resumed(
    flow: Command, client: Client, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(
        f'name = "stuck"\n[[stage]]\nname = "a"\nqueue = "{queue}"\nitems = [1]\nseal = "now"\n'
        f'[[stage]]\nname = "b"\nqueue = "{queue}_b"\nparent = "a"\npayload = "sum(result)"\n'
    )
    made = flow.made("--file", str(file))
    work(client, queue, ["no list"])
    until(lambda: flow.stage(made, "a").get("applet_errors", 0) + flow.stage(made, "b").get("applet_errors", 0))
    shown = " ".join(flow("status", made).stdout.split())
    assert "stuck: the children of 1 item" in shown
    assert f"`pinlater flow resume {made}` tries again, with --expression by another one" in shown
    assert "sum(result)" in flow("wait", made, "--timeout", "1ms", code=124).stderr
    still = flow("resume", made)
    assert "could not be made" in still.stderr
    flow("resume", made, "--stage", "b", "--expression", "result")
    assert work(client, f"{queue}_b", [0]) == ["no list"]
    assert json.loads(flow("wait", made, "-o", "jsonl").stdout)["state"] == "complete"


def test_items_are_tried_again_and_wait_answers_the_latest_end(flow: Command, client: Client, queue: str) -> None:
    made = flow.made(
        "again", "--stage", f"a:{queue}", "--stage", f"b:{queue}_b", "--seal", "--items", "-", stdin="1\n2"
    )
    work(client, queue, [None, 0])
    work(client, f"{queue}_b", [0])
    flow("wait", made, code=5)
    (failed,) = json.loads(flow("items", made, "--state", "failed", "-o", "json").stdout)
    done = next(
        each["number"] for each in json.loads(flow("items", made, "-o", "json").stdout) if each["state"] != "failed"
    )
    came = flow("retry", made, str(failed["number"]), str(done), code=5)
    assert f"1 item not retried ({done}): it has succeeded, and its children are there" in came.stderr
    assert f"1 item of flow {made} is tried again" in came.stderr
    work(client, queue, [0])
    work(client, f"{queue}_b", [0])
    (status,) = json.loads(flow("wait", made, "-o", "json").stdout)
    assert (status["state"], status["ends"]) == ("complete", 2)
    assert "0 items" in flow("retry", made, "--failed").stderr
    assert "1 that had followed are removed" in flow("retry", made, str(done), "--and-follows").stderr
    work(client, queue, [0])
    work(client, f"{queue}_b", [0])
    assert json.loads(flow("wait", made, "-o", "json").stdout)[0]["ends"] == 3
    for wrong in ([], ["1", "--failed"], ["1", "--stage", "a"], ["0"]):
        flow("retry", made, *wrong, code=2)


def test_who_may_only_read_is_refused_and_a_stranger_sees_no_flow(flow: Command, client: Client, queue: str) -> None:
    made = flow.made("mails", "--stage", f"send:{queue}", "--seal", "--items", "-", stdin='"secret"')
    work(client, queue, [None])
    viewer, stranger = {"PINLATER_TOKEN": VIEWER}, {"PINLATER_TOKEN": STRANGER}
    assert "complete" in flow("status", made, **viewer).stdout
    seen = flow("items", made, "-o", "jsonl", **viewer)
    assert json.loads(seen.stdout)["failures"][0]["reason"] == ""
    assert "this caller may not see payloads" in seen.stderr
    assert "token:viewer may not read" in flow("items", made, "--payloads", code=1, **viewer).stderr
    for command in (
        ["add", made, "send", "1"],
        ["seal", made],
        ["cancel", made, "--yes"],
        ["delete", made, "--yes"],
        ["resume", made],
        ["retry", made, "--failed"],
        ["create", "x", "--stage", f"send:{queue}"],
    ):
        refused = flow(*command, code=1, **viewer)
        assert "token:viewer may not" in refused.stderr
        assert "(the token came from PINLATER_TOKEN)" in refused.stderr
        if command[0] != "create":
            assert "there is no flow" in flow(*command, code=1, **stranger).stderr
    for command in (["status", made], ["items", made], ["wait", made]):
        assert "there is no flow" in flow(*command, code=1, **stranger).stderr
    assert json.loads(flow("list", "-o", "json", **stranger).stdout) == []


def test_a_terminal_is_asked_and_drawn_over_until_the_flow_is_over(
    flow: Command, client: Client, address: str, queue: str, tmp_path: Path
) -> None:
    made = flow.made("mails", "--stage", f"send:{queue}", "--seal", "--items", "-", stdin="1\n2\n")
    terminal = Terminal(tmp_path, address, "flow", "cancel", made)
    terminal.until(f"Cancel flow mails {made}, with 2 items, 2 of them pending? [y/N]")
    terminal.type("n\n")
    assert terminal.ended() == 1
    assert "nothing was cancelled" in terminal.shown
    drawing = Terminal(tmp_path, address, "flow", "status", made, "--watch", "--interval", "50ms")
    drawing.until("0%")
    work(client, queue, [1])
    drawing.until("50%")
    work(client, queue, [1])
    assert drawing.ended() == 0
    last = drawing.shown.split("\033[J")[-2]
    assert last.count("flow ") == 1
    assert "100%" in last
    assert "complete at" in last
    told = flow("status", made, "--watch").stdout
    assert "send: 2 of 2 items done, complete" in told
    assert len(flow("status", made, "--watch", "-o", "jsonl").stdout.splitlines()) == 1


def test_changes_are_lines_where_there_is_no_terminal(
    flow: Command, client: Client, address: str, queue: str, tmp_path: Path
) -> None:
    made = flow.made("mails", "--stage", f"send:{queue}", "--items", "-", stdin="1\n2\n")
    with started(tmp_path, address, "status", made, "--watch", "--interval", "50ms") as watching:
        assert watching.stdout is not None
        first = [watching.stdout.readline().decode() for _ in range(2)]
        assert [line.partition(" ")[2] for line in first] == [
            "send: 0 of 2 items done, open\n",
            "flow mails: running\n",
        ]
        work(client, queue, [1, 1])
        flow("seal", made)
        rest = watching.stdout.read().decode()
        assert rest.endswith("flow mails: complete\n")
        assert "send: 2 of 2 items done, complete\n" in rest
        assert watching.wait(WITHIN_S) == 0


def test_a_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    flow = Command(address)
    with ExitStack() as stack:
        with running(tmp_path, port=port) as server:
            assert server.port == port
            made = flow.made("mails", "--stage", "send:mails", "--items", "-", stdin="1\n")
            watching = stack.enter_context(started(tmp_path, address, "status", made, "--watch"))
            assert watching.stdout is not None
            assert watching.stdout.readline()
        with running(tmp_path, port=port) as server:
            assert server.port == port
            flow("cancel", made, "--yes")
            assert watching.stdout.read().endswith(b"flow mails: cancelled\n")
            assert watching.wait(WITHIN_S) == 0


def test_a_server_without_flows_says_so(tmp_path: Path) -> None:
    with running(tmp_path, "--flows", "none") as server:
        flow = Command(f"127.0.0.1:{server.port}")
        for command in (["create", "x", "--stage", "a:b"], ["add", "f", "a", "1"], ["status", "f"], ["list"]):
            refused = flow(*command, code=1)
            assert "this server has no flows: start it with --flows URL" in refused.stderr
            assert refused.stderr.count("\n") == 1
