"""The pages of flows against a real server: what they show, what they change, and to whom."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pinlater import Ack, Client, DequeueRequest
from pinlater.errors import FlowNotFound
from pinlater.model import RequestContext
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowState,
    ItemState,
    NewFlow,
    NewItem,
    Stage,
)
from tests.dashboard.conftest import Place
from tests.dashboard.visitor import FORM, Visitor, csrf_of, text_of
from tests.faults.proxy import Proxy
from tests.server.running import running
from tests.stores.process import StoreServer

FLOWS = "/dashboard/flows"
PAGE_OF_ITEMS = 25
PAGE_OF_FLOWS = 50
_numbers = itertools.count()


@pytest.fixture
def word() -> str:
    """A name for a flow and its queues that no other test has."""
    return f"trees-{next(_numbers)}"


def stages(word: str, expression: str = "{user: payload.user, amount: result.amount}") -> list[Stage]:
    return [
        Stage("calculate", "calculate_wage", word, max_failures=0),
        Stage("pay", "transfer", f"{word}-pay", "calculate", Applet(AppletKind.MAP, expression), is_final=True),
    ]


def made(client: Client, word: str, items: int = 4, *, sealed: bool = True, **values: object) -> str:
    new = [NewItem(b'{"user": %d}' % user, dedupe_key=f"user-{user}") for user in range(1, items + 1)]
    values.setdefault("stages", stages(word))
    flow = NewFlow(word, items={"calculate": new}, sealed=["calculate"] if sealed else [], **values)  # type: ignore[arg-type]
    return client.create_flow(flow).id


def work(client: Client, queue: str, results: Sequence[bytes | str], worker: str = "web-1:4711") -> None:
    """As many jobs as there are results: bytes are one, a text is why it fails for good."""
    for result in results:
        request = DequeueRequest(queue, 1, wait_ms=20_000, claim_timeout_ms=600_000)
        (job,) = client.dequeue(request, context=RequestContext(worker))
        ack = Ack(job.descriptor, claim_descriptor=job.claim_descriptor)
        if isinstance(result, bytes):
            client.ack(queue, [Ack(ack.descriptor, claim_descriptor=ack.claim_descriptor, result=result)], [])
        else:
            client.ack(queue, [], [Ack(ack.descriptor, result, claim_descriptor=ack.claim_descriptor, permanent=True)])


def rows(visitor: Visitor, path: str) -> list[str]:
    """The flows that a page lists."""
    return re.findall(r'<tr id="flow-([^"]+)"', visitor.get(path).text)


def items(visitor: Visitor, path: str) -> list[int]:
    """The items that a page lists."""
    return [int(number) for number in re.findall(r'<details id="item-([0-9]+)"', visitor.get(path).text)]


def test_without_a_flow_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        visitor = Visitor(address).open(password=(tmp_path / "pinlater-data" / "admin-password").read_text().strip())
        shown = visitor.text(FLOWS)
    assert "There is no flow yet" in shown
    assert "pinlater flow create sums --stage add:sums" in shown


def test_flows_are_listed_the_newest_first_and_filtered(place: Place, visitor: Visitor, word: str) -> None:
    ids = [made(place.client, word, dedupe_key=f"run {run}") for run in range(3)]
    assert rows(visitor, f"{FLOWS}?name={word}") == ids[::-1]
    assert rows(visitor, f"{FLOWS}?name={word}&key=run+1") == [ids[1]]
    place.client.cancel_flow(ids[2])
    assert rows(visitor, f"{FLOWS}?name={word}&state=cancelled") == [ids[2]]
    assert rows(visitor, f"{FLOWS}?name={word}&state=running") == ids[1::-1]
    assert "No flow is like that" in visitor.text(f"{FLOWS}?name={word}x")
    shown = visitor.text(f"{FLOWS}?name={word}")
    assert f"{word} run 2" in shown
    assert "cancelled" in shown
    assert rows(visitor, f"{FLOWS}?name={word}&state=nonsense") == ids[::-1]


def test_flows_come_in_pages(place: Place, visitor: Visitor, word: str) -> None:
    ids = [made(place.client, word, 0) for _ in range(PAGE_OF_FLOWS + 2)]
    first = visitor.get(f"{FLOWS}?name={word}").text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    seen = re.findall(r'<tr id="flow-([^"]+)"', first) + rows(visitor, following.replace("&amp;", "&"))
    assert seen == ids[::-1]
    assert "First page" in visitor.text(following.replace("&amp;", "&"))
    shown = visitor.text(f"{FLOWS}?cursor=nonsense")
    assert "was not given for this list" in shown
    assert "This page cannot be shown" not in shown


def test_a_flow_is_a_tree_that_fills(place: Place, visitor: Visitor, word: str) -> None:
    client = place.client
    flow = made(client, word, metadata={"month": "2026-11"}, on_complete=CompletionCallback(f"{word}-done", "close"))
    path = f"{FLOWS}/{flow}"
    shown = visitor.text(path)
    assert "calculate running sealed 0 of 4 · 0 %" in shown
    assert "pay waits for its parent final 0 of about 4 · 0 %" in shown
    assert "about 4 to come" in shown
    assert "month 2026-11" in shown
    assert f"job close on queue {word}-done" in shown
    work(client, word, [b'{"amount": 7}', b'{"amount": 8}', "user 3 has no contract"])
    work(client, f"{word}-pay", [b'"paid"'])
    shown = awaited(visitor, path, "calculate running sealed 3 of 4 · 75 %", "pay running final 1 of about 3 · 33 %")
    assert "2 succeeded 1 failed 1 queued or running" in shown
    assert "1 succeeded 1 queued or running about 1 to come" in shown
    assert "Gets {user: payload.user, amount: result.amount}" in shown
    work(client, word, [b'{"amount": 9}'])
    work(client, f"{word}-pay", [b"1", b"2"])
    shown = awaited(visitor, path, f"{word} complete", "made now", "100 % of about 7 items have ended")
    assert "pay complete final 3 of 3 · 100 %" in shown
    assert "100 % 7 of 7 1 calculate pay" in awaited(visitor, f"{FLOWS}?name={word}", "100 %")


def awaited(visitor: Visitor, path: str, *texts: str) -> str:
    """A page when it has these texts: what was loaded a moment ago is shown once more."""
    ends_s = time.monotonic() + 60
    while True:
        shown = visitor.text(path).replace("\xa0", " ")
        shown = re.sub(r"made \d+ s ago", "made now", shown)
        missing = [text for text in texts if text not in shown]
        if not missing:
            return shown
        assert time.monotonic() < ends_s, f"{missing} not in {shown}"
        time.sleep(0.2)


def test_a_stage_shows_what_makes_its_groups(place: Place, visitor: Visitor, word: str) -> None:
    first, last = stages(word)
    flow = made(place.client, word, stages=[replace(first, group="eu-{user}"), last])
    shown = visitor.text(f"{FLOWS}/{flow}")
    assert "job calculate_wage · not tried again · group eu-{user}" in shown
    assert shown.count("· group") == 1


def test_items_are_found_by_stage_state_key_and_number(place: Place, visitor: Visitor, word: str) -> None:
    flow = made(place.client, word)
    reason = 'attempt 1 of 1: LookupError: user 2 has no contract\n  File "payroll.py", line 12'
    work(place.client, word, [b'{"amount": 7}', reason])
    path = f"{FLOWS}/{flow}"
    numbers = [item.number for item in place.client.get_flow_items(flow).items]
    assert items(visitor, path) == numbers
    (failed,) = place.client.get_flow_items(flow, state=ItemState.FAILED).items
    assert items(visitor, f"{path}?state=failed") == [failed.number]
    assert items(visitor, f"{path}?stage=pay") == numbers[4:]
    assert items(visitor, f"{path}?stage=calculate&state=pending") == numbers[2:4]
    assert items(visitor, f"{path}?key=user-3") == [numbers[2]]
    assert items(visitor, f"{path}?number={numbers[3]}") == [numbers[3]]
    for odd in ("number=x", "number=99999999999999", "key=nobody"):
        assert "No item is like that" in visitor.text(f"{path}?{odd}")
    shown = visitor.get(f"{path}?state=failed").text
    assert f'href="/dashboard/jobs/{failed.job.replace(":", "%3A")}"' in shown
    told = text_of(shown)
    assert "Attempt 1" in told
    assert "web-1:4711" in told
    assert 'File "payroll.py", line 12' in told
    assert "Dedupe key user-2" in told
    (done,) = place.client.get_flow_items(flow, state=ItemState.SUCCEEDED).items
    told = visitor.text(f"{path}?number={done.number}")
    assert "Payload" in told
    assert "amount : 7" in told.replace("amount:", "amount :")
    whole = visitor.get(f"{path}/items/{done.number}/payload")
    assert whole.content == done.payload
    assert "attachment" in whole.headers["Content-Disposition"]
    assert visitor.get(f"{path}/items/{done.number}/result").content == b'{"amount": 7}'
    for none in (f"{failed.number}/result", "99999999/payload", f"{done.number}/failures"):
        visitor.get(f"{path}/items/{none}", status=404)
    assert "No item is like that" in visitor.text(f"{path}?stage=nowhere")


def test_items_come_in_pages(place: Place, visitor: Visitor, word: str) -> None:
    flow = made(place.client, word, PAGE_OF_ITEMS + 3)
    path = f"{FLOWS}/{flow}?stage=calculate"
    first = visitor.get(path).text
    (following,) = re.findall(r'rel="next" href="([^"]+)#items"', first)
    seen = items(visitor, path) + items(visitor, following.replace("&amp;", "&"))
    assert seen == [item.number for item in place.client.get_flow_items(flow).items]


def test_a_stage_is_sealed(place: Place, visitor: Visitor, word: str) -> None:
    flow = made(place.client, word, 1, sealed=False)
    path = f"{FLOWS}/{flow}"
    assert "calculate running open" in visitor.text(path)
    assert "Stage calculate takes no more items" in visitor.press(path, f"{path}/seal", stage="calculate")
    assert place.client.get_flow(flow).stages[0].is_sealed
    assert f"{path}/seal" not in visitor.actions(path)
    assert "nowhere" in refused(visitor, path, f"{path}/seal", stage="nowhere")


def refused(visitor: Visitor, page: str, action: str, **form: str) -> str:
    """What is told of a change that no form of the page offers."""
    response = visitor.send(action, {"csrf": csrf_of(visitor.get(page).text), **form})
    assert response.status_code in (303, 403)
    if response.status_code == 303:
        response = visitor.client.get(response.headers["Location"])
    return text_of(response.text)


def test_a_flow_is_cancelled_and_deleted(place: Place, visitor: Visitor, word: str) -> None:
    flow = made(place.client, word)
    path = f"{FLOWS}/{flow}"
    asked = visitor.text(path)
    assert f"This ends flow {word}: its 4 items that have not ended fail as cancelled" in asked
    assert f"This removes flow {word} and all its 4 items with their results, and cancels it first" in asked
    assert f"Flow {word} is" in visitor.press(path, f"{path}/cancel")
    assert place.client.get_flow(flow).state is FlowState.CANCELLED
    assert f"{path}/cancel" not in visitor.actions(path)
    assert f"Flow {flow} was deleted, with all its items" in visitor.press(path, f"{path}/delete")
    with pytest.raises(FlowNotFound):
        place.client.get_flow(flow)
    noted = [(each.action, each.who, each.detail) for each in place.client.audit(limit=50) if each.target == flow]
    assert noted == [(action, "anna@laptop", f"{word}, 4 items") for action in ("delete_flow", "cancel_flow")]
    assert "there is no flow" in visitor.text(path, status=404)


def test_a_flow_that_is_stuck_says_so_and_is_resumed_by_another_expression(
    place: Place, visitor: Visitor, word: str
) -> None:
    flow = made(place.client, word, 2, stages=stages(word, "length(result.amount)"))
    work(place.client, word, [b'{"amount": 7}', b'{"amount": 8}'])
    path = f"{FLOWS}/{flow}"
    shown = visitor.text(path)
    assert f"{word} stuck" in shown
    assert "calculate stuck" in shown
    assert "the children of 2 items of stage calculate could not be made" in shown
    assert "The items below 2 of these could not be made" in shown
    assert "stuck" in visitor.text(f"{path}?stage=calculate")
    assert "this is left" in visitor.press(path, f"{path}/resume", stage="", expression="")
    assert "Flow" in visitor.press(path, f"{path}/resume", stage="pay", expression="{amount: result.amount}")
    assert place.client.get_flow(flow).stages[1].items == 2
    last, *_ = [each for each in place.client.audit(limit=50) if each.target == flow]
    assert (last.action, last.detail) == ("resume_flow", f"{word}, 4 items, stage pay, by {{amount: result.amount}}")
    assert f"{path}/resume" not in visitor.actions(path)


def test_items_that_failed_are_tried_again_by_one_and_all_together(place: Place, visitor: Visitor, word: str) -> None:
    flow = made(place.client, word, 3)
    work(place.client, word, [b'{"amount": 7}', "no contract", "no contract either"])
    path = f"{FLOWS}/{flow}"
    done, first, second = (item.number for item in place.client.get_flow_items(flow, stage="calculate").items)
    asked = visitor.text(path)
    assert f"The 2 items of flow {word} that failed are tried again" in asked
    assert f"Item {done} runs again; its result, and what has followed from it, is removed." in asked
    (failed,) = place.client.get_flow_items(flow, numbers=[first]).items
    of_job = visitor.get(f"/dashboard/jobs/{failed.job.replace(':', '%3A')}").text
    assert f'href="{path}?number={first}#items">item {first}</a>' in of_job
    assert "/retry" not in of_job, "that of the job would say that it is in another state"
    assert "1 item is tried again." in visitor.press(path, f"{path}/retry", number=str(first))
    assert [item.number for item in place.client.get_flow_items(flow, state=ItemState.FAILED).items] == [second]
    assert "1 item is tried again." in visitor.press(path, f"{path}/retry", number="")
    assert place.client.get_flow_items(flow, state=ItemState.FAILED).items == []
    refused_again = visitor.press(path, f"{path}/retry", number=str(done))
    assert "0 items are tried again; 1 item not: it has succeeded, and its children are there" in refused_again
    again = visitor.press(path, f"{path}/retry", number=str(done), and_follows="1")
    assert "1 item is tried again; 1 item that had followed is gone." in again
    assert "the flow has no such item" in refused(visitor, path, f"{path}/retry", number="x")
    work(place.client, word, [b"1", b"1", b"1"])
    work(place.client, f"{word}-pay", [b"1", b"1", b"1"])
    awaited(visitor, path, "complete")
    last, *_ = [each for each in place.client.audit(limit=50) if each.target == flow]
    assert (last.action, last.detail) == ("retry_flow_items", f"{word}, 3 items, 1 retried, with 1 that had followed")


def test_what_may_not_be_seen_or_changed_is_neither(ruled: Place, word: str) -> None:
    flow = made(ruled.client, word, stages=[Stage("calculate", "calculate_wage", "sms")], sealed=False)
    work(ruled.client, "sms", [b'{"amount": "a secret result"}', "a secret reason"])
    path = f"{FLOWS}/{flow}"
    viewer, operator, of_mail = (ruled.visitor(role) for role in ("viewer", "operator", "of-mail"))
    shown = viewer.get(path).text
    assert FORM.findall(shown) == []
    assert "Payloads, results and the reasons of failures are hidden" in shown
    assert not any(secret in shown for secret in ("a secret", "&#34;user&#34;", '"user"'))
    (done,) = ruled.client.get_flow_items(flow, state=ItemState.SUCCEEDED).items
    viewer.get(f"{path}/items/{done.number}/result", status=403)
    for action, form in (
        ("seal", {"stage": "calculate"}),
        ("cancel", {}),
        ("resume", {}),
        ("retry", {}),
        ("delete", {}),
    ):
        assert "may not" in refused(viewer, path, f"{path}/{action}", **form)
    assert operator.actions(path) == {
        f"{path}/cancel",
        f"{path}/delete",
        f"{path}/retry",
    }  # adding and sealing need enqueue
    assert "a secret result" in operator.get(path).text
    assert "there is no flow" in of_mail.text(path, status=404)
    assert rows(of_mail, f"{FLOWS}?name={word}") == []
    assert "there is no flow" in refused(of_mail, FLOWS, f"{path}/delete")
    found = ruled.client.get_flow(flow)
    assert (found.state, found.stages[0].is_sealed, found.stages[0].pending) == (FlowState.RUNNING, False, 2)


def test_texts_of_callers_are_shown_as_what_they_are(place: Place, visitor: Visitor, word: str) -> None:
    def planted(field: str) -> str:
        return f"\"'><img/src=x/onerror=planted('{field}')>\u202e{{{{7*7}}}}"

    stage = Stage("calculate", planted("job"), word)
    item = NewItem(
        json.dumps({planted("name"): planted("payload")}).encode(), planted("item key"), planted("serialize")
    )
    broken = Stage("pay", "pay", f"{word}-pay", "calculate", Applet(AppletKind.MAP, 'result."<img/src=x>"'))
    flow = place.client.create_flow(
        NewFlow(
            word,
            [stage, broken],
            dedupe_key=planted("flow key"),
            metadata={planted("label"): planted("metadata")},
            on_complete=CompletionCallback(f"{word}-done", planted("callback")),
            items={"calculate": [item, item, NewItem(b"2")]},
        )
    ).id
    work(place.client, word, [json.dumps(planted("result")).encode(), planted("reason")], planted("worker"))
    for path in (f"{FLOWS}/{flow}", f"{FLOWS}?name={word}", f"/dashboard/queues/{word}"):
        shown = visitor.get(path).text
        assert "<img" not in shown
        assert "\u202e" not in shown
        assert "planted(&#39;flow key&#39;)" in shown
    shown = visitor.get(f"{FLOWS}/{flow}").text
    for field in (
        "job",
        "payload",
        "name",
        "item key",
        "serialize",
        "label",
        "metadata",
        "callback",
        "result",
        "reason",
    ):
        assert f"planted(&#39;{field}&#39;)" in shown, field
    assert "worker" in shown
    odd = "/dashboard/flows/%22%3E%3Cimg%20src=x%3E"
    assert "<img" not in visitor.get(odd, status=404).text
    assert "<img" not in visitor.get(f"{FLOWS}?name=%22%3E%3Cimg%20src%3Dx%3E").text
    assert "<img" not in visitor.get(f"{FLOWS}/{flow}?key=%22%3E%3Cimg%20src%3Dx%3E&stage=%3Cimg%3E").text


def test_an_open_page_is_sent_what_has_changed(place: Place, visitor: Visitor, word: str) -> None:
    flow = made(place.client, word)
    path = f"{FLOWS}/{flow}"
    live = visitor.get(path, X_Live="1")
    assert live.text.startswith("<main")
    again = visitor.client.get(path, headers={"X-Live": "1", "If-None-Match": live.headers["ETag"]})
    assert again.status_code == 304
    work(place.client, word, [b"1"])
    awaited(visitor, path, "1 of 4")
    later = visitor.client.get(path, headers={"X-Live": "1", "If-None-Match": live.headers["ETag"]})
    assert later.status_code == 200


def test_the_page_of_a_queue_has_the_flows_that_run_through_it(place: Place, visitor: Visitor, word: str) -> None:
    flow, other = made(place.client, word), made(place.client, f"{word}-other")
    shown = rows(visitor, f"/dashboard/queues/{word}-pay")
    assert flow in shown
    assert other not in shown
    place.client.cancel_flow(flow)
    awaited(visitor, f"/dashboard/queues/{word}-pay", "Flows that run through it all that run None now")


def test_a_server_without_flows_says_how_to_have_them(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--flows", "none") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        visitor = Visitor(address).open(password=(tmp_path / "pinlater-data" / "admin-password").read_text().strip())
        for path in (FLOWS, f"{FLOWS}/f00"):
            shown = visitor.text(path)
            assert "Flows are off" in shown
            assert "--flows sqlite" in shown
            assert "This page cannot be shown" not in shown


@pytest.mark.store("postgres")
def test_a_database_of_flows_that_is_away_is_a_part_of_the_page(tmp_path: Path, postgres_server: StoreServer) -> None:
    postgres_server.empty(11)
    url = urlsplit(postgres_server.url(11))
    assert url.port is not None
    with Proxy(url.port) as proxy:
        there = url._replace(netloc=url.netloc.replace(str(url.port), str(proxy.port))).geturl()
        with running(tmp_path, "--api", "127.0.0.1:0", "--flows", there) as server:
            address = str(server.wait_for("api_ready")["address"]).rstrip("/")
            visitor = Visitor(address).open(
                password=(tmp_path / "pinlater-data" / "admin-password").read_text().strip()
            )
            visitor.client.timeout = 60.0
            with Client(f"127.0.0.1:{server.port}") as client:
                flow = made(client, "away")
            awaited(visitor, f"{FLOWS}/{flow}", "0 of 4")
            proxy.cut()
            for path, rest in ((FLOWS, "Flows"), (f"{FLOWS}/{flow}", flow), ("/dashboard/queues/away", "Settings")):
                shown = awaited(visitor, path, "check the database of flows, which --flows names", rest)
                assert "This page cannot be shown" not in shown
            proxy.heal()
            awaited(visitor, f"{FLOWS}/{flow}", "0 of 4")
