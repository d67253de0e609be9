"""Applets on their own: what children they make, and that no expression does harm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinlater.errors import RequestInvalid
from pinlater.flows.applets import MAX_CHILD_BYTES, MAX_CHILDREN, AppletFailed, check_expression, children_of
from pinlater.flows.budgets import Budget
from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import EndOutcome, ItemEnd
from pinlater.model.flow_words import Applet, AppletKind, Stage
from tests.flows.stand import ROOT, START_MS, feed, flow_of, job_of

LIST, PASS = Applet(AppletKind.LIST), Applet(AppletKind.PASS)
EXPLOSIONS = {
    "size": "|".join(["[@,@]"] * 60),
    "length": "|".join(["[@,@][]"] * 60),
    "text": "|".join(["join('', [@,@])"] * 40).replace("@", "to_string(@)"),
    "time": "[" + ",".join(["result[*].[@,@,@,@,@,@,@,@,@]|[][]"] * 50) + "]",
    "depth": "|".join(["@"] * 990),
    "words": "|".join(["[@,@]"] * 30) + "|to_string(@)",
}


def mapped(expression: str, payload: bytes = b"{}", result: bytes = b"[1,2,3]") -> list[bytes]:
    return children_of(Applet(AppletKind.MAP, expression), payload, result, Budget())


def test_what_the_kinds_make() -> None:
    assert children_of(PASS, b"12345678901234567890123", b"1.10", Budget()) == [
        b'{"payload":12345678901234567890123,"result":1.10}'
    ]
    assert children_of(LIST, b"{}", b' [1.10, {"a": 12345678901234567890123}, null] ', Budget()) == [
        b"1.10",
        b'{"a": 12345678901234567890123}',
        b"null",
    ]
    assert [children_of(LIST, b"{}", each, Budget()) for each in (b"null", b'"[1]"')] == [[], [b'"[1]"']]
    assert (mapped("result[?@ > `1`]"), mapped("result[0]"), mapped("nothing")) == ([b"2", b"3"], [b"1"], [])


@pytest.mark.parametrize("expression", ["contains('abc', `1`)", "result[0] < 'a'", "result[::0]", "abs('a')"])
def test_an_expression_that_fails_in_whichever_way_is_said(expression: str) -> None:
    with pytest.raises(AppletFailed):
        mapped(expression)


@pytest.mark.parametrize("name", sorted(EXPLOSIONS))
def test_an_expression_that_explodes_is_given_up(name: str) -> None:
    with pytest.raises(AppletFailed):
        mapped(EXPLOSIONS[name], result=b"[" + b",".join([b"1"] * 1_000) + b"]")


def test_what_is_nested_too_deep_is_said() -> None:
    deep = b"[" * 990 + b"]" * 990
    for applet in (Applet(AppletKind.MAP, "result"), LIST):
        with pytest.raises(AppletFailed):
            children_of(applet, b"{}", deep, Budget())
    with pytest.raises(RequestInvalid, match="too deep"):
        check_expression(replace(ROOT, parent="calculate", applet=Applet(AppletKind.MAP, "[" * 900)))


def test_the_most_children_and_the_longest() -> None:
    many = b"[" + b",".join([b"1"] * MAX_CHILDREN) + b"]"
    assert len(mapped("result", result=many)) == len(children_of(LIST, b"{}", many, Budget())) == MAX_CHILDREN
    long = b'"%b"' % (b"x" * (MAX_CHILD_BYTES - 2))
    assert mapped("result", result=long) == [long]
    for applet in (Applet(AppletKind.MAP, "result"), LIST):
        for result in (many[:-1] + b",1]", b"[%b]" % (b'"x' + long[1:])):
            with pytest.raises(AppletFailed, match="allowed"):
                children_of(applet, b"{}", result, Budget())


def test_an_item_whose_expression_breaks_does_not_hold_up_those_beside_it(database: FlowDatabase) -> None:
    bad = Stage("below", "x", "q", "calculate", Applet(AppletKind.MAP, "contains('abc', `1`)"))
    flow_of(database, ROOT, bad, items=1)
    flow_of(database, ROOT, items=1)
    ends = [ItemEnd(job_of(item), b"7") for item in feed(database)]
    assert [each.outcome for each in database.record(ends, START_MS).ends] == [EndOutcome.SUCCEEDED] * 2
