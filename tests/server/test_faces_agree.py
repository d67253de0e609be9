"""One state of a busy server, as every face tells it: the same words with the same numbers, and the same age."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from pinlater import Ack, Client, DequeueRequest, ExtendedJob, Job
from pinlater.data_folder.password import hash_password
from pinlater.durations import parse_duration
from pinlater.model import WorkerReport
from pinlater.model.job_selection import PHASE_WORDS
from tests.dashboard.visitor import Visitor, text_of
from tests.server.commands import Shell
from tests.server.running import running

PASSWORD = "correct horse"
MINUTE_S = 60
LATER_MS = 2**52
WORDS = tuple(PHASE_WORDS.values())

TRUE: dict[str, dict[str, int]] = {
    "mail": {
        **{"scheduled": 1, "ready": 4, "waiting": 1, "running": 2},
        **{"succeeded": 1, "failed": 3, "cancelled": 1, "replayed": 1},
    },
    "letters": {**dict.fromkeys(WORDS, 0), "ready": 3},
    "held": {**dict.fromkeys(WORDS, 0), "ready": 2},
}
"""`mail` has its dead letters in `letters`; `held` is paused."""

ALL = {"ready": 6, "scheduled": 1, "running": 2, "failed": 3}
"""Of all queues together; dead letters are nobody's wait."""

Numbers = dict[str, int]


class Stand(NamedTuple):
    client: Client
    shell: Shell
    api: str
    site: str
    visitor: Visitor


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder: Path = tmp_path_factory.mktemp("faces")
    options = ("--api", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *options) as server, Client(f"127.0.0.1:{server.port}") as client:
        api, site = (str(server.wait_for(event)["address"]).rstrip("/") for event in ("api_ready", "http_ready"))
        visitor = Visitor(api).open(password=PASSWORD)
        at = Stand(client, Shell(folder, f"127.0.0.1:{server.port}"), api, site, visitor)
        make_busy(at)
        until_counted(client)
        yield at
        visitor.client.close()


def make_busy(at: Stand) -> None:
    client = at.client
    for name in TRUE:
        client.create_queue(name)
    client.update_queue("mail", PASSWORD, set={"dead_letter_queue": "letters"})
    client.update_queue("held", PASSWORD, set={"paused": "true", "paused_why": "the provider is down"})
    stops, succeeds, *fails = client.enqueue("mail", [Job(b"")] * 6)
    client.enqueue("mail", [Job(b"")] * 2)  # which go on running
    worker = WorkerReport("a1", "shop", 5_000, "host-1", 7, {"mail": 1}, 4)
    claims = {job.descriptor: job.claim_descriptor for job in client.dequeue(DequeueRequest("mail", 8, worker=worker))}
    client.cancel("mail", [stops], running=True)
    failed = [Ack(each, permanent=True, claim_descriptor=claims[each]) for each in (stops, *fails)]
    client.ack("mail", succeeded=[Ack(succeeds, claim_descriptor=claims[succeeds])], failed=failed)
    until(lambda: all(info.moved_to for info in client.lookup(fails).values()))
    assert at.shell("queue", "replay", "mail", "--limit", "1").out == "1\n"
    now_ms = int(time.time() * 1000)
    client.enqueue("mail", [Job(b"", run_after_ms=now_ms - 20 * MINUTE_S * 1000)] * 2)
    client.enqueue("mail", [Job(b"", run_after_ms=LATER_MS)])
    client.enqueue("mail", [ExtendedJob(b"", serialize_key="account")] * 2)
    client.enqueue("held", [Job(b"", run_after_ms=now_ms - 10 * MINUTE_S * 1000)] * 2)


def until(check: Any) -> None:
    deadline_s = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def until_counted(client: Client) -> None:
    """The servers have counted all that there is."""
    until(lambda: {each.name: counted(each.levels) for each in client.cluster_status().queues} == TRUE)


def counted(levels: Any) -> Numbers:
    return {word: sum(getattr(level, key) for level in levels) for key, word in PHASE_WORDS.items()}


# -- what each face tells of queues, by the words that it has ----------------------------------------------------------


def of_calls(stand: Stand) -> dict[str, Numbers]:
    return {each.name: counted(each.levels) for each in stand.client.cluster_status().queues}


def of_stats(stand: Stand) -> dict[str, Numbers]:
    found = json.loads(stand.shell("queue", "stats", "--totals", "-o", "json").out)
    return {row["name"]: {word: row[key] for key, word in PHASE_WORDS.items()} for row in found}


def of_job_count(stand: Stand) -> dict[str, Numbers]:
    return {"mail": {word: int(stand.shell("job", "count", "mail", "--state", word).out) for word in WORDS}}


def of_http(stand: Stand) -> dict[str, Numbers]:
    found = stand.visitor.client.get("/v1/status", headers={"X-Admin-Password": PASSWORD}).json()["queues"]
    return {
        each["name"]: {word: sum(level[key] for level in each["levels"]) for key, word in PHASE_WORDS.items()}
        for each in found
    }


def of_metrics(stand: Stand) -> dict[str, Numbers]:
    found = {name: dict.fromkeys(WORDS, 0) for name in TRUE}
    gauge = re.compile(r'pinlater_queue_jobs\{.*queue="(\w+)",.*state="(\w+)"\} (.+)')
    for queue, state, number in gauge.findall(httpx.get(f"{stand.site}/metrics").text):
        found[queue][PHASE_WORDS[state]] += int(float(number))
    return found


def of_dashboard_filters(stand: Stand) -> dict[str, Numbers]:
    """Beside the list of jobs."""
    found = dict(re.findall(r"(\w+) ([0-9]+)", stand.visitor.text("/dashboard/jobs?filter=queue:mail")))
    return {"mail": {word: int(found[word]) for word in WORDS}}


def of_dashboard_queues(stand: Stand) -> dict[str, Numbers]:
    return {name: numbers_of(row) for name, row in cells(stand, "/dashboard/queues").items()}


def of_overview(stand: Stand) -> dict[str, Numbers]:
    return {name: numbers_of(row) for name, row in cells(stand, "/dashboard").items()}


def of_queue_pages(stand: Stand) -> dict[str, Numbers]:
    """The figures at the top of each."""
    found = {}
    for name in TRUE:
        shown = figures(stand, f"/dashboard/queues/{name}")
        numbers = {word: int(text.split()[0]) for word, text in shown.items() if word in WORDS}
        apart = re.findall(r"([0-9]+) (behind others|cancelled|replayed)", " ".join(shown.values()))
        beside = {word.replace("behind others", "waiting"): int(number) for number, word in apart}
        found[name] = {**dict.fromkeys(("waiting", "cancelled", "replayed"), 0), **numbers, **beside}
    return found


def of_priorities(stand: Stand) -> dict[str, Numbers]:
    """The table of a queue's page, with columns of which some level has any."""
    found = {}
    for name in TRUE:
        rows = cells(stand, f"/dashboard/queues/{name}", "priority").values()
        none = dict.fromkeys(("waiting", "cancelled", "replayed"), 0)
        (found[name],) = [{**none, **numbers_of(row)} for row in rows]
    return found


def of_cluster_status(stand: Stand) -> dict[str, Numbers]:
    return {name: numbers_of(row) for name, row in table(stand.shell("cluster", "status").out).items()}


def of_top(stand: Stand) -> dict[str, Numbers]:
    """A cell without a number is nothing."""
    return {name: numbers_of(row) for name, row in table(top(stand)).items()}


def of_status_page(stand: Stand) -> dict[str, Numbers]:
    return {name: numbers_of(row) for name, row in status_rows(stand).items()}


def numbers_of(row: dict[str, str]) -> Numbers:
    return {word: int(text or 0) for word, text in row.items() if word in WORDS}


def table(text: str) -> dict[str, dict[str, str]]:
    """The rows of queues, by the names of the columns: numbers end where their headings do."""
    lines = text.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("QUEUE"))
    ends = [(found[0].lower(), found.end()) for found in re.finditer(r"\S+", lines[at])][1:]
    rows: dict[str, dict[str, str]] = {}
    for line in lines[at + 1 :]:
        if not line:
            break
        found = {each.end(): each[0] for each in re.finditer(r"\S+", line)}
        rows[line.split()[0]] = {heading: found.get(end, "") for heading, end in ends}
    return rows


def top(stand: Stand) -> str:
    return stand.shell("top", "--once", COLUMNS="240").out


def cells(stand: Stand, page: str, of: str = "queue") -> dict[str, dict[str, str]]:
    """The rows of a table of queues on a page of the dashboard, by the labels of their cells."""
    rows = re.findall(rf'<tr id="{of}-([^"]+)">(.*?)</tr>', stand.visitor.get(page).text, re.DOTALL)
    cell = re.compile(r'<td class="n[^"]*" data-label="([^"]+)">(.*?)</td>', re.DOTALL)
    return {name: {label.lower(): text_of(text) for label, text in cell.findall(row)} for name, row in rows}


def figures(stand: Stand, page: str) -> dict[str, str]:
    """The large numbers of a page with the notes below them, by their labels."""
    found = re.findall(r'<div class="figure">(.*?)</div>', stand.visitor.get(page).text, re.DOTALL)
    return {label.lower(): rest for label, _, rest in (text_of(each).partition(" ") for each in found)}


def status_rows(stand: Stand) -> dict[str, dict[str, str]]:
    page = httpx.get(stand.site).text
    (listed,) = re.findall(r"<h2>Queues</h2>.*?</table>", page, re.DOTALL)
    cell = re.compile(r'<td[^>]* data-label="([^"]+)">(.*?)</td>', re.DOTALL)
    rows = [{label: text_of(text) for label, text in cell.findall(row)} for row in listed.split("<tr>")[1:]]
    return {row["queue"]: row for row in rows}


FACES = (
    *(of_calls, of_stats, of_job_count, of_http, of_metrics, of_dashboard_filters, of_dashboard_queues, of_overview),
    *(of_queue_pages, of_priorities, of_cluster_status, of_top, of_status_page),
)
LEFT_OUT = {
    of_dashboard_queues: {"waiting", "succeeded", "cancelled", "replayed"},
    of_overview: {"waiting", "succeeded", "cancelled", "replayed"},
    of_queue_pages: {"succeeded"},
    of_top: {"succeeded"},
}
"""The words that a face has no place for."""


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_face_has_the_words_and_numbers_of_all_others(stand: Stand, face: Callable[[Stand], Any]) -> None:
    told = face(stand)
    words = set(WORDS) - LEFT_OUT.get(face, set())
    assert told == {name: {word: TRUE[name][word] for word in WORDS if word in words} for name in told}
    assert told.keys() == (TRUE.keys() if "mail" not in told or len(told) > 1 else {"mail"})


def test_sums_are_those_of_all_queues_without_dead_letters(stand: Stand) -> None:
    shown = figures(stand, "/dashboard")
    assert {word: int(shown[word].split()[0]) for word in ALL} == ALL
    head = top(stand).splitlines()[1]
    assert {word: int(number) for number, word in re.findall(r"([0-9]+) (\w+)", head) if word in ALL} == ALL
    assert head.endswith("  3 dead letters")
    limits = "ready=3,failed=2"
    checked = stand.shell("check", "--queue", "mail", "--no-alarms", "--warn", limits, code=1).out
    assert "mail_ready=4;" in checked
    assert "mail_failed=3;" in checked


def test_jobs_of_all_states_are_as_many_as_a_deletion_would_take(stand: Stand) -> None:
    jobs = sum(TRUE["mail"].values())
    assert f"This deletes queue mail and {jobs} jobs" in stand.visitor.text("/dashboard/queues/mail")


def test_the_oldest_wait_is_as_long_everywhere(stand: Stand) -> None:
    """Each look comes a moment later."""
    (held,) = [each for each in stand.client.cluster_status().queues if each.name == "held"]
    began_ms = min(level.oldest_ready_ms for level in held.levels if level.oldest_ready_ms is not None)
    pages = [cells(stand, page)["held"]["oldest wait"] for page in ("/dashboard", "/dashboard/queues")]
    figure = re.search(r"oldest ([0-9a-z ]+)", figures(stand, "/dashboard/queues/held")["ready"])
    assert figure is not None
    told = [*pages, figure[1], status_rows(stand)["held"]["oldest"]]
    told += [table(text)["held"]["oldest"] for text in (top(stand), stand.shell("cluster", "status").out)]
    metric = re.search(r'oldest_ready_seconds\{.*queue="held".*\} (.+)', httpx.get(f"{stand.site}/metrics").text)
    assert metric is not None
    seconds = [parse_duration(each.replace("min", "m").replace(" ", "")) for each in told] + [float(metric[1])]
    assert min(seconds) >= 10 * MINUTE_S
    assert max(seconds) - min(seconds) < time.time() - began_ms / 1000 - 10 * MINUTE_S + 1


def test_workers_and_the_pause_are_told_alike(stand: Stand) -> None:
    (worker,) = json.loads(stand.shell("worker", "list", "-o", "json").out)
    assert (worker["name"], worker["slots"]) == ("shop", 4)
    assert stand.visitor.client.get("/v1/workers", headers={"X-Admin-Password": PASSWORD}).json()["total"] == 1
    assert "1 worker with 4 slots" in stand.shell("cluster", "status").out
    assert "1 worker, 0 of 4 slots busy" in stand.visitor.text("/dashboard/workers")
    assert "of 4 slots" in figures(stand, "/dashboard")["running"]
    for name, text in (("mail", "1 worker polls it"), ("held", "0 workers poll it")):
        assert text in figures(stand, f"/dashboard/queues/{name}")["running"]
    why = "the provider is down"
    faces = (
        stand.shell("cluster", "status").out,
        top(stand),
        stand.shell("queue", "show", "held").out,
        stand.visitor.text("/dashboard/queues/held"),
        text_of(httpx.get(stand.site).text),
        stand.visitor.client.get("/v1/status", headers={"X-Admin-Password": PASSWORD}).text,
    )
    assert [why in face for face in faces] == [True] * len(faces)


def test_what_nothing_moves_has_no_rate_on_any_face(stand: Stand) -> None:
    def is_calm() -> bool:
        queues = stand.client.cluster_status().queues
        return not any(round(rate, 1) for each in queues for rate in each.rates.values())

    until(is_calm)
    row = table(top(stand))["mail"]
    assert {heading: text for heading, text in row.items() if heading.endswith("/s")} == dict.fromkeys(
        ("in/s", "out/s", "done/s", "fail/s", "retry/s"), "0"
    )
    # Pages keep what they have loaded for a moment.
    until(lambda: status_rows(stand)["mail"]["per second"] == "")
    until(lambda: {cells(stand, "/dashboard/queues")["mail"][word] for word in ("enqueued", "done")} == {"0"})
