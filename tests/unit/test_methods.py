"""The table of methods against everything that has to agree with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from pinlater import AsyncClient, Client
from pinlater.api import Api
from pinlater.wire.interface import SIGNATURES
from pinlater.wire.methods import METHODS, Access, Idempotency, Method

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))


def calls_of(cls: type) -> dict[str, Callable[..., object]]:
    return {name: value for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")}


def test_it_has_the_methods_of_the_interface_file_and_no_others() -> None:
    assert set(METHODS) == set(SIGNATURES)


def test_it_has_the_calls_of_an_api_and_no_others() -> None:
    assert {method.api_name for method in METHODS.values()} == set(calls_of(Api))


@every_method
def test_both_clients_have_each_call_with_the_arguments_of_an_api(method: Method) -> None:
    wanted = inspect.signature(getattr(Api, method.api_name)).parameters
    for client in (AsyncClient, Client):
        taken = inspect.signature(getattr(client, method.api_name)).parameters
        assert set(wanted) <= set(taken)  # a client may take more
        by_place = [name for name, each in wanted.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert [name for name in taken if name in by_place] == by_place


@every_method
def test_a_password_is_an_argument_of_those_methods_that_need_one(method: Method) -> None:
    has_password = "password" in inspect.signature(getattr(Api, method.api_name)).parameters
    assert (method.access is Access.ADMIN_PASSWORD) is has_password


@every_method
def test_what_a_client_encodes_are_the_arguments_of_the_interface(method: Method) -> None:
    fields = {field.attribute for field in method.signature.args.fields.values()}
    names = set(inspect.signature(method.call).parameters) - {"self", "context"}
    assert fields == {"context", *({"request"} if method.has_request else names)}


@every_method
def test_what_an_older_server_has_instead_takes_the_same_arguments(method: Method) -> None:
    if method.fallback_method:
        older = METHODS[method.fallback_method]
        assert (older.api_name, older.request) == (method.api_name, method.request)


def test_what_changes_nothing_is_told_apart() -> None:
    reads = {name for name, method in METHODS.items() if not method.changes}
    assert reads == {
        "explainJobs",
        "getAccess",
        "getAlarms",
        "getAudit",
        "getBodyTiers",
        "getClusterStatus",
        "getGroups",
        "getFlow",
        "getFlowItems",
        "getFlows",
        "getJobCount",
        "getQueueNames",
        "getQueues",
        "getSchedules",
        "getTokens",
        "getUsage",
        "getWorkers",
        "lookupJobs",
        "scanJobs",
        "searchJobs",
    }
    assert METHODS["enqueueJobs"].idempotency_with("mail", []) is Idempotency.ONCE
