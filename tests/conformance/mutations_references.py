"""The guards of references to bodies: in the Lua scripts, and in the steps that the SQL stores share."""

from __future__ import annotations

from tests.conformance import test_references as refs
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import step

REDIS = [
    lua("cancel", "any_tiered and references(root)", "false", refs.test_cancelling_drops_it),
    lua(
        "ack",
        "any_tiered and references(root)",
        "false",
        refs.test_an_ack_that_does_not_keep_the_job_drops_it,
    ),
    lua("ack", "(kind.is_reference and TIERED or 0)", "0", refs.test_a_result_may_be_a_reference),
    lua(
        "delete_jobs",
        "R and R.among(base .. ':results', ids, R.of_result) or {}",
        "{}",
        refs.test_deleting_a_job_drops_its_result,
    ),
    lua(
        "reschedule",
        "if is_reference and was == body then return end",
        "",
        refs.test_a_reference_that_is_given_to_its_job_again_stays,
        way=refs.reschedule,
    ),
    lua(
        "reschedule",
        "if was then R.release(queue, {was}) end",
        "",
        refs.test_a_new_body_drops_the_reference,
        way=refs.reschedule,
    ),
    lua(
        "checkpoint",
        "(is_reference and TIERED or 0)",
        "0",
        refs.test_a_new_body_drops_the_reference,
        way=refs.checkpoint,
    ),
    lua("dead_letter", "R.share(R.of_job(value))", "", refs.test_a_dead_letter_shares_the_reference, first="original"),
    lua("replay", "R.share(R.of_job(value))", "", refs.test_a_letter_that_goes_back_shares_it_too),
    lua(
        "list_references",
        "return {section == 'shared' and 'dropped||0' or '', found}",
        "return {'', found}",
        refs.test_every_reference_is_listed,
    ),
    lua("put_config", "set_aside(base, queue, 'jobs')", "", refs.test_deleting_the_queue_drops_all_of_it),
    lua("put_config", "set_aside(base, queue, 'results')", "", refs.test_deleting_the_queue_drops_all_of_it),
    lua("claim", "record[4] and unpack_record", "false and unpack_record", refs.test_bytes_are_those_of_the_bodies),
    lua("prune", "if R then R.release(each[1], dropped) end", "", refs.test_a_result_outlives_its_job),
]

SQL = [
    *step("job_ends", "        if tiered:\n", "        if False:\n", refs.test_cancelling_drops_it),
    *step(
        "held_references",
        "if bytes(reference) != keeping]",
        "]",
        refs.test_a_reference_that_is_given_to_its_job_again_stays,
        way=refs.reschedule,
    ),
    *step(
        "held_references",
        "        if left >= 0:\n",
        "        if False:\n",
        refs.test_a_dead_letter_shares_the_reference,
        first="original",
    ),
    *step(
        "held_references",
        "        flags ^= TIERED\n",
        "",
        refs.test_a_new_body_drops_the_reference,
        way=refs.reschedule,
    ),
    *step("admin", "    release(session, ended, RESULT)\n", "", refs.test_deleting_a_job_drops_its_result),
    *step(
        "dead_letters",
        "            share(session, {new_id: job.id})\n",
        "            pass\n",
        refs.test_a_letter_that_goes_back_shares_it_too,
    ),
    *step(
        "key_entries",
        "if size & REFERENCE_BIT]",
        "if False]",
        refs.test_a_result_outlives_its_job,
    ),
    *step(
        "held_references",
        '    rows = session.rows("all_dropped_references"',
        '    rows = [] and session.rows("all_dropped_references"',
        refs.test_every_reference_is_listed,
    ),
]
REFERENCES = [*REDIS, *SQL]
