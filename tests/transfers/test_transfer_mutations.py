"""With any step of an export, an import or a move taken out or wrong, a named test fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pinlater.errors import PinLaterError
from pinlater.transfers.export_file import ExportBroken
from tests.conformance.bindings import BINDINGS
from tests.conformance.mutation import Mutation
from tests.transfers import test_interruptions as interruptions
from tests.transfers import test_moves as moves
from tests.transfers import test_noticed as noticed
from tests.transfers import test_pairs as pairs
from tests.transfers.conftest import StoreOfKind

FAILURES = (AssertionError, KeyError, PinLaterError, ExportBroken, pytest.fail.Exception)
"""What a failing test raises: a wrong answer, or a refusal of what was right."""

SAME = pairs.test_a_shard_is_the_same_in_another_store
GOES_ON = interruptions.test_an_import_that_fails_at_any_block_goes_on_there
LACKS_ROWS = noticed.test_an_export_that_lacks_rows_is_not_opened
REPLACES = noticed.test_a_replacement_that_ends_while_it_removes_goes_on
MOVES = moves.test_a_move_that_is_interrupted_goes_on_or_is_taken_back


def _module(store: str, place: str, old: str, new: str, test: Callable[..., Any]) -> Mutation:
    return Mutation(store, f"pinlater.{place}", old, new, test, is_module=True)


def _sqlite(place: str, old: str, new: str, test: Callable[..., Any]) -> Mutation:
    return _module("sqlite-file", place, old, new, test)


def _redis(place: str, old: str, new: str, test: Callable[..., Any]) -> Mutation:
    return _module("redis", f"backends.redis.{place}", old, new, test)


EXPORT, IMPORT, MOVE = "transfers.export_file", "transfers.shard_import", "transfers.shard_move"
READ, WRITE = "backends.sql.exported_rows", "backends.sql.imported_rows"
MUTATIONS = [
    # rows are lost
    Mutation("sqlite", "export_jobs", "id <= ?", "id < ?", SAME),
    Mutation("sqlite", "export_links", "job_id <= ?", "job_id < ?", SAME),
    _sqlite(READ, "yield start, after\n", "pass\n", SAME),
    _sqlite(READ, "queue_id, name = rows[-1][0], bytes(rows[-1][1])", "queue_id, name = rows[-1][0] + 1, b''", SAME),
    _sqlite(WRITE, 'put_new("put_keys", entries)', 'put_new("put_keys", entries[:-1])', SAME),
    _sqlite(WRITE, 'put_new("put_chains", chains)', 'put_new("put_chains", chains[:-1])', SAME),
    _redis("exported_keys", "start += len(found)\n        sizes", "start += len(found) + 1\n        sizes", SAME),
    _redis("exported_keys", "found, sizes = found[count:], sizes[count:]", "found = []", SAME),
    # running jobs lose their successors
    _sqlite(READ, "(queue_id, FIRST_NAME, BEHIND_NAMES)", "(queue_id, FIRST_NAME, FIRST_NAME)", SAME),
    _sqlite(WRITE, "            successors.append(key.successor_id)\n", "", SAME),
    _sqlite(WRITE, "if job.state == WAITING and more.serialize_key:", "if job.state == WAITING:", SAME),
    _redis("exported_keys", "places |= await _successors(store, queue, ids, columns[2])", "pass", SAME),
    _redis("imported_keys", "            if key.successor_id:\n", "            if False:\n", SAME),
    # another order, or another place in it
    Mutation("sqlite", "export_config", "ORDER BY revision", "ORDER BY name", SAME),
    _redis("imported_keys", "                    more.place,\n", "                    -more.place,\n", SAME),
    # ids that were given are given again
    _sqlite("backends.sql.sql_transfer", "session.allocate_ids(0, last_id + 1)", "pass", noticed.test_ids_go_on),
    _redis("redis_transfer", '("SET", root + b":last", last_id),', "", noticed.test_ids_go_on),
    # an import, or a move, that goes on at a wrong place
    _sqlite(EXPORT, "if self._number > skipped:", "if self._number >= skipped:", GOES_ON),
    _sqlite(EXPORT, "if self._number > skipped:", "if self._number > skipped + 1:", GOES_ON),
    _sqlite(MOVE, "if number > skipped:", "if number > skipped + 1:", MOVES),
    _sqlite(WRITE, "    put_state(session, state)\n\n\ndef put_state", "\n\ndef put_state", GOES_ON),
    _redis("redis_transfer", '*commands, ("SET", self._state_key, state),', "*commands,", GOES_ON),
    # counts that nobody compares, or that say too much
    _sqlite(
        IMPORT, "if state.totals != end.totals:", "if False:", noticed.test_an_export_that_lacks_rows_is_not_opened
    ),
    _redis(
        "redis_transfer",
        "state.totals.check_counts(await self._counts())",
        "pass",
        noticed.test_a_job_that_a_store_did_not_keep_is_noticed,
    ),
    _sqlite(
        "backends.sql.sql_transfer",
        "state.totals.check_counts(counts)",
        "pass",
        noticed.test_a_job_that_a_store_did_not_keep_is_noticed,
    ),
    _sqlite(
        IMPORT,
        "                    on_progress(written)\n                written = state.totals",
        "                    on_progress(state.totals.rows['job'])\n                written = state.totals",
        noticed.test_no_more_jobs_are_told_than_are_in_the_store,
    ),
    _sqlite(
        MOVE,
        ' or jobs != totals.rows["job"]:',
        " and False:",
        noticed.test_a_store_that_changes_while_it_is_moved_is_noticed,
    ),
    # what was damaged
    _sqlite(EXPORT, "number != self._number or ", "", noticed.test_blocks_that_lack_or_changed_places_are_noticed),
    _sqlite(
        EXPORT,
        " or checksum != _checksum(kind, number, content)",
        "",
        interruptions.test_an_export_that_is_cut_or_damaged_is_refused,
    ),
    # a store that is open too soon
    _redis("redis_transfer", "await self.set_mark(IMPORTING)", "pass", GOES_ON),
    _sqlite("backends.sql.sql_transfer", "_set_mark(session, IMPORTING)", "pass", GOES_ON),
    _sqlite(IMPORT, "if state is not None and not replaces:", "if not replaces:", REPLACES),
]
STATEMENTS_OF = {"sqlite": "sqlite-file"}
BY_NAME = {binding.name: binding for binding in BINDINGS}


def _parameter(mutation: Mutation) -> object:
    binding = BY_NAME[STATEMENTS_OF.get(mutation.store, mutation.store)]
    return pytest.param(mutation, binding, binding, id=mutation.name, marks=pytest.mark.store(binding.kind))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "source", "target"), list(map(_parameter, MUTATIONS)), indirect=["source", "target"]
)
async def test_without_this_step_the_named_test_of_transfers_fails(
    mutation: Mutation, source: StoreOfKind, target: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"source": source, "target": target, "monkeypatch": monkeypatch, "exports": {}}
    with mutation.applied(), pytest.raises(FAILURES):
        await mutation.test(**{name: given[name] for name in inspect.signature(mutation.test).parameters})
