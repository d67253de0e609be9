"""The guards of tags, in the SQL statements and steps and in the Lua scripts."""

from __future__ import annotations

from tests.conformance import test_tags as tags
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import sql, step

TAGS = [
    *sql("tagged", "tagged.tag = $", "tagged.tag >= $", tags.test_tags_are_shown_and_found),
    *sql("tagged", "tagged.job_id < $", "tagged.job_id <= $", tags.test_a_page_by_tag_has_what_the_request_says),
    *sql("tagged", "ORDER BY tagged.job_id DESC", "ORDER BY 1", tags.test_a_page_by_tag_has_what_the_request_says),
    *step("queries", "if state in states and", "if", tags.test_a_page_by_tag_has_what_the_request_says),
    *step("queries", "and low <= run_after_ms <= high", "", tags.test_a_page_by_tag_has_what_the_request_says),
    *step("queries", "priority in request.priorities and", "", tags.test_a_page_by_tag_has_what_the_request_says),
    *step(
        "dead_letters",
        "    put_tags(session, target_id, tags)\n",
        "",
        tags.test_letters_and_what_is_sent_back_have_the_tags,
    ),
    *step(
        "dead_letters",
        "            new_flags = tag_flags(new_flags)\n",
        "",
        tags.test_letters_and_what_is_sent_back_have_the_tags,
    ),
    lua("scan", "if wanted[priority] then", "do", tags.test_a_page_by_tag_has_what_the_request_says),
    lua("scan", " and time >= lowest", "", tags.test_a_page_by_tag_has_what_the_request_says),
    lua("scan", " and time <= highest", "", tags.test_a_page_by_tag_has_what_the_request_says),
    lua("dead_letter", "e.flags = e.flags + TAGGED", "", tags.test_letters_and_what_is_sent_back_have_the_tags),
    lua("replay", "e.flags = e.flags + TAGGED", "", tags.test_letters_and_what_is_sent_back_have_the_tags),
]
