"""Planted faults are found; and the catalogue has every guard, and the page what the catalogue says."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.conformance.test_mutations import MUTATIONS
from tests.simulation.planted.catalogue import Entry, entries
from tests.simulation.planted.found import FOUND
from tests.simulation.planted.guards import GUARDS
from tests.simulation.planted.page import PAGE, page
from tests.simulation.planted.plans import PLANS
from tests.simulation.planted.reasons import REASONS, Reason
from tests.simulation.planted.sentences import WHY
from tests.simulation.planted.trial import attempt
from tests.simulation.sweep import run_apart

QUICK = (
    "shards.resilience: jobs are handed out five seconds early",
    "server.deliveries: jobs that were received are taken back as undelivered",
    "service.heartbeats: heartbeats do not tell of a request to stop",
    "sqlite attempts: attempts_remaining <= 1 -> attempts_remaining <= 0",
    "sqlite keys: NOT IN (0, 1, 4, 8) THEN -> NOT IN (0, 4, 8) THEN",
)
"""Each takes three seconds of a processor at most."""

PLANTED = [each for each in entries().values() if each.is_planted]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_found_quickly(name: str) -> None:
    found_within_its_bound(entries()[name])


def test_what_another_rule_says_does_not_count() -> None:
    entry = entries()[QUICK[2]]
    trial = attempt(entry.change, entry.by(), 0.5, "body")
    assert not trial.is_found
    assert trial.others == [entry.rule] != ["body"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in PLANTED], ids=lambda name: " ".join(name.split()))
def test_every_planted_fault_is_found_by_its_rule_within_its_bound(name: str) -> None:
    found_within_its_bound(entries()[name])


def found_within_its_bound(entry: Entry) -> None:
    trial = attempt(entry.change, entry.by(), entry.minutes, entry.rule)
    assert trial.is_found, (
        f"in {trial.minutes} virtual minutes the rule {entry.rule!r} was not broken, but {trial.others}: "
        "see docs/simulation-faults.md"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_with_all_guards_in_place_nothing_is_found(name: str) -> None:
    assert run_apart(PLANS[name]).violations == []


def test_every_guard_is_in_the_catalogue_once_and_under_no_other_name() -> None:
    names = [mutation.name for mutation in MUTATIONS if mutation.store == "sqlite"] + [each.name for each in GUARDS]
    found = [name for faults in FOUND.values() for name in faults]
    why = [name for some in REASONS.values() for name in some]
    assert sorted(found + why) == sorted(set(names))
    assert {each.name for each in MUTATIONS} | {each.name for each in GUARDS} == set(entries())


def test_each_sentence_is_of_guards_with_a_reason() -> None:
    why = [name for some in REASONS.values() for name in some]
    told = [name for names in WHY.values() for name in names]
    assert sorted(set(told)) == sorted(told)
    assert set(told) <= set(why)


def test_the_reasons_of_other_stores_are_told_by_rules_and_not_by_lists() -> None:
    own = (Reason.OTHER_STORE, Reason.OWN_WAY)
    assert [reason for reason in own if REASONS.get(reason)] == []
    assert {each.reason for each in entries().values() if each.change.store != "sqlite"} == {*own, Reason.AT_ONCE}


def test_every_guard_can_be_taken_out_of_the_product_as_it_is() -> None:
    for guard in GUARDS:
        with guard.applied():
            """Its text stands there once."""


def test_the_page_says_what_the_catalogue_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it anew: python -m tests.simulation.planted --page > docs/simulation-faults.md"
    )
