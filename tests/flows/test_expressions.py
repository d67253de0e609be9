"""Expressions within their bounds: what each function costs, by the table of docs/flows.md, and what is too dear."""

from __future__ import annotations

import re
import tracemalloc

import msgspec
import pytest
from jmespath.functions import Functions

from pinlater.errors import RequestInvalid
from pinlater.flows.applets import AppletFailed, AppletTooDear, check_expression, children_of, make_children
from pinlater.flows.budgets import MAX_BYTES, MAX_STEPS, MAX_STEPS_AT_ONCE, Budget, TooDear
from pinlater.flows.database import FlowDatabase
from pinlater.flows.end_records import MAX_END_STEPS, MAX_TRANSACTION_STEPS
from pinlater.flows.ends import EndOutcome, ItemEnd, UnmadeChildren
from pinlater.flows.expressions import COMPILED, COSTS, MAX_COMPILED_CHARS, evaluate
from pinlater.flows.flow_limits import MAX_EXPRESSION_CHARS, MAX_PAYLOAD_BYTES
from pinlater.model.flow_words import Applet, AppletKind, NewItem, Stage
from tests.flows.stand import ROOT, START_MS, feed, flow_of, job_of
from tests.packaging.conftest import ROOT as FOLDER

INPUTS = {
    "ones": [1] * 32_000,
    "floats": [index / 7_919 for index in range(3_000)],
    "words": [f"{index:04}" for index in reversed(range(9_000))],
    "prefixes": ["x" * 1_000 + str(index) for index in range(60)],
    "empties": [""] * 21_000,
    "lists": [[]] * 21_000,
    "objects": [{"a": index} for index in range(6_000)],
    "object": {str(index): index for index in range(4_000)},
    "text": "x" * 65_000,
    "wide": "x" * 65_000 + "ⓐ",
    "digits": "9" * 4_300,
    "number": 7,
}
"""Payloads of up to 64 KiB, by their names in the table."""

ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| `([^`]+)` \| (\w+) \| ([\d,]+) \|$", re.MULTILINE)


def repeated(part: str) -> str:
    """A list of it, as long as an expression may be."""
    return "[" + ",".join([part] * ((MAX_EXPRESSION_CHARS - 1) // (len(part) + 1))) + "]"


DEAR = {
    "join of a wide text": ("length(join(payload, result))", "wide", "empties"),
    "join of a long literal": (f"length(join('{'x' * 1_900}', payload))", "empties", "number"),
    "join of a join": ("length(join(join(payload, result), result))", "text", "empties"),
    "sums": ("[" + ",".join(["sum(payload)"] * 140) + "]", "ones", "number"),
    "sorts": (repeated("sort(payload)"), "floats", "number"),
    "sorts of words": (repeated("sort(payload)"), "words", "number"),
    "sorts by keys": (repeated("sort_by(payload,&a)"), "objects", "number"),
    "sort of what was multiplied": ("[" + ",".join(["payload"] * 200) + "][]|sort(@)", "words", "number"),
    "texts of deep values": ("|".join(["[@,@]"] * 30) + "|to_string(@)", "number", "number"),
    "texts of numbers": (repeated("to_string(payload)"), "floats", "number"),
    "equality of deep values": ("|".join(["[@,@]"] * 30) + "|@==@", "number", "number"),
    "equality of lists": (repeated("payload==result"), "lists", "lists"),
    "contains of deep values": ("|".join(["[@,@]"] * 30) + "|contains(@,@)", "number", "number"),
    "projections in each other": ("payload[*].[@,@,@][].[@,@,@][].[@,@,@][].[@,@,@]", "ones", "number"),
    "flattened": ("|".join(["[@,@][]"] * 60), "ones", "number"),
    "filters": (repeated("payload[?@]"), "ones", "number"),
    "objects": ("[payload,payload,payload,payload,payload][].{a:@,b:@,c:@,d:@}", "ones", "number"),
    "merges": (repeated("merge(payload,payload)"), "object", "number"),
    "numbers of many digits": (f"map(&to_number('{'9' * 1_800}'), payload)|[sum(@)]", "ones", "number"),
    "maps": (repeated("map(&@,payload)"), "ones", "number"),
}


def encoded(name: str) -> bytes:
    return msgspec.json.encode(INPUTS[name])


def made(expression: str, payload: bytes, result: bytes = b"7", budget: Budget | None = None) -> list[bytes]:
    return children_of(Applet(AppletKind.MAP, expression), payload, result, budget or Budget())


def test_every_function_of_the_language_has_a_cost() -> None:
    assert set(COSTS) == set(Functions().FUNCTION_TABLE)


def test_what_functions_cost_is_what_the_table_says() -> None:
    rows = ROW.findall((FOLDER / "docs" / "flows.md").read_text(encoding="utf-8"))
    assert {name for name, *_ in rows} == set(COSTS)
    found, written = {}, {}
    for name, expression, payload, steps in rows:
        assert len(encoded(payload)) <= MAX_PAYLOAD_BYTES
        budget = Budget()
        parent = {"payload": INPUTS[payload], "result": 7}
        COMPILED.add(expression)
        evaluate(expression, parent, budget)
        found[name], written[name] = budget.spent, int(steps.replace(",", ""))
    assert found == written
    assert max(found.values()) < MAX_STEPS_AT_ONCE


@pytest.mark.parametrize("name", sorted(DEAR))
def test_what_is_too_dear_ends_before_it_is_done(name: str) -> None:
    expression, payload, result = DEAR[name]
    assert len(expression) <= MAX_EXPRESSION_CHARS
    inputs, budget = (encoded(payload), encoded(result)), Budget()
    tracemalloc.start()
    try:
        with pytest.raises(AppletTooDear, match=r"too dear: .*(steps|bytes).*\. Do: ") as failed:
            made(expression, *inputs, budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MAX_BYTES - budget.bytes + 500_000  # what was charged, and the parts of the expression
    assert budget.spent <= MAX_STEPS
    assert "xxxx" not in str(failed.value).replace(expression, "")


@pytest.mark.parametrize("kind", ["wide", "ascii"])
def test_a_wide_character_makes_its_text_count_four_times(kind: str) -> None:
    text = "ⓐ" + "x" * 9_999 if kind == "wide" else "x" * 10_000
    budget = Budget()
    evaluate("length(reverse(@))", text, budget)
    assert (MAX_BYTES - budget.bytes) // 10_000 == (4 if kind == "wide" else 1)


def test_what_json_may_become_is_charged_before_it_is_read() -> None:
    budget = Budget()
    with pytest.raises(AppletTooDear, match="reading the result"):
        made("`1`", b"1", b"[" + b",".join([b"{}"] * 300_000) + b"]", budget)
    with pytest.raises(AppletTooDear, match="reading the result"):
        children_of(Applet(AppletKind.LIST), b"1", b"[" + b",".join([b"1"] * 900_000) + b"]", Budget())


def test_the_expressions_of_one_item_share_a_budget() -> None:
    applets = [(place, Applet(AppletKind.MAP, f"[{'sum(payload),' * 30}`{place}`]")) for place in range(10)]
    budget = Budget()
    children, is_too_dear = make_children(UnmadeChildren(1, encoded("ones"), b"7", applets), budget)
    assert (is_too_dear, budget.spent) == (True, MAX_STEPS)
    errors = [bool(each.error) for each in children]
    assert errors == sorted(errors)
    assert not errors[0]


def test_an_evaluation_pauses_after_each_slice() -> None:
    pauses: list[int] = []
    budget = Budget(20_000, "all", lambda: pauses.append(budget.steps), 1_000)
    with pytest.raises(TooDear, match="all were used up"):
        evaluate("@[*].[@,@]", INPUTS["ones"], budget)
    gaps = [before - after for before, after in zip([20_000, *pauses], pauses, strict=False)]
    assert len(pauses) >= 15
    assert max(gaps[1:]) < 1_100


def test_what_is_kept_of_expressions_is_bounded() -> None:
    for number in range(200):
        check_expression(stage_of(f"[{'a,' * 900}a{number}]"))
    assert COMPILED.chars <= MAX_COMPILED_CHARS
    evaluate("a", {}, Budget())
    assert COMPILED.get("a") is not None


def stage_of(expression: str) -> Stage:
    return Stage("below", "x", "q", ROOT.name, Applet(AppletKind.MAP, expression))


def test_functions_that_compare_by_keys_say_what_keys_may_be() -> None:
    assert made("sort_by(payload,&a)[0].a", encoded("objects")) == [b"0"]
    assert made("max_by(payload,&a).a", encoded("objects")) == [b"5999"]
    assert made("[min_by(`[]`,&a), sort_by(`[]`,&a)]", b"1") == [b"null", b"[]"]
    for mixed in (b'[{"a":1},{"a":"4111-1111"}]', b'[{"a":true}]', b"[[]]"):
        for name in ("sort_by", "min_by", "max_by"):
            with pytest.raises(AppletFailed) as failed:
                made(f"{name}(payload,&a)", mixed)
            assert "4111" not in str(failed.value)
    with pytest.raises(AppletFailed, match="no value"):
        made("to_string([&payload])", b"1")  # it would name a place in memory


# -- in transactions ---------------------------------------------------------------------------------------------------


def test_what_takes_more_than_a_few_steps_is_made_outside_of_the_transaction(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, stage_of("result[*].{a: @}"), items=2, sealed=["calculate"])
    one, two = feed(database)
    ends = [ItemEnd(job_of(one), b"[1,2,3]"), ItemEnd(job_of(two), b"[" + b",".join([b"1"] * 300) + b"]")]
    first, second = database.record_step(ends, START_MS).ends
    assert (first.outcome, second.outcome) == (EndOutcome.SUCCEEDED, EndOutcome.UNMADE)
    status = database.status(flow_id)
    assert (status.stages[0].pending, status.stages[1].items, status.stages[1].is_sealed) == (1, 3, False)
    assert second.unmade is not None
    children, _ = make_children(second.unmade, Budget())
    database.mend(flow_id, "below", "result[*].[@]", START_MS)  # meanwhile: it counts, what was made does not
    again = ends[1]._replace(made=children)
    (told,) = database.record_step([again], START_MS).ends
    assert told.outcome is EndOutcome.UNMADE
    assert told.unmade is not None
    newer = again._replace(made=(*children, *make_children(told.unmade, Budget())[0]))
    both = database.record_step([newer, newer], START_MS)
    assert [each.outcome for each in both.ends] == [EndOutcome.SUCCEEDED, EndOutcome.ENDED]
    assert database.status(flow_id).stages[1].items == 303
    assert {each.payload for each in feed(database, "below")} == {b'{"a":1}', b'{"a":2}', b'{"a":3}', b"[1]"}


def test_a_result_that_comes_second_makes_no_children(database: FlowDatabase) -> None:
    """Each result has children of its own, and the first one that is recorded counts, with its own."""
    flow_of(database, ROOT, stage_of("result[*].{a: @}"), items=1)
    (item,) = feed(database)
    results = [b"[" + b",".join([each] * 300) + b"]" for each in (b"1", b"2")]
    ends = [ItemEnd(job_of(item), each) for each in results]
    unmade = [each.unmade for each in database.record_step(ends, START_MS).ends]
    ready = [
        end._replace(made=make_children(each, Budget())[0]) for end, each in zip(ends, unmade, strict=True) if each
    ]
    outcomes = [each.outcome for each in database.record_step(ready[::-1], START_MS).ends]
    assert outcomes == [EndOutcome.SUCCEEDED, EndOutcome.ENDED]
    assert {each.payload for each in feed(database, "below")} == {b'{"a":2}'}


def test_all_ends_of_a_transaction_have_few_steps_together(database: FlowDatabase) -> None:
    expression = "[" + "payload," * 40 + "`1`]|[0]"
    COMPILED.add(expression)  # it was evaluated before
    flow_of(database, ROOT, stage_of(expression), items=400)
    ends = [ItemEnd(job_of(item), b"1") for item in feed(database)]
    told = database.record_step(ends, START_MS).ends
    here = sum(each.outcome is EndOutcome.SUCCEEDED for each in told)
    assert 0 < here <= 1 + MAX_TRANSACTION_STEPS // 40
    assert here + sum(each.outcome is EndOutcome.UNMADE for each in told) == 400
    assert MAX_END_STEPS < MAX_TRANSACTION_STEPS


def test_an_expression_that_is_too_dear_is_a_trouble_of_its_flow(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, stage_of("length(join(payload.word, result))"))
    database.add(flow_id, ROOT.name, [NewItem(msgspec.json.encode({"word": INPUTS["wide"][:65_000]}))], START_MS)
    (item,) = feed(database)
    (told,) = database.record([ItemEnd(job_of(item), encoded("empties"))], START_MS).ends
    assert told.outcome is EndOutcome.SUCCEEDED
    (trouble,) = database.status(flow_id, lambda queues: True).troubles
    assert "too dear: join() needs" in trouble
    assert "flow resume" in trouble
    assert database.resume(flow_id, "below", "length(result)", START_MS) == []
    assert [each.payload for each in feed(database, "below")] == [b"21000"]


def test_a_long_expression_that_is_none_is_refused_whatever_it_looks_like() -> None:
    for expression in ("[" * 2_000, "(" * 2_000, "&" * 2_000, "`" + "[" * 1_998 + "`", "'" * 1_999):
        with pytest.raises(RequestInvalid, match="JMESPath"):
            check_expression(stage_of(expression))
