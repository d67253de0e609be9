"""All that is fuzzed in this process. A further parser is a row in one of the files, or a file beside them."""

from __future__ import annotations

from tests.fuzz import server_targets, stored_targets, text_targets, wire_targets

TARGETS = {
    each.name: each
    for each in (
        *wire_targets.TARGETS,
        *server_targets.TARGETS,
        *stored_targets.TARGETS,
        *text_targets.TARGETS,
    )
}
