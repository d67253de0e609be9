"""The pages of the documents as a whole: none is empty, cut short, without its links, or found from no other page."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.packaging.links import code_links, mistakes

LEAST_BYTES = 1_500
"""Of a page: the shortest that says something is longer."""

LEAST_RECORD_BYTES = 250
"""Of the record of a decision, which needs no links either: the index has it."""

LEAST_CODE_LINKS: Mapping[str, int] = {"tour.md": 25, "where.md": 80}
"""Links by name into the code that a page is made of."""

_TABLE = re.compile(r"^\|(?: ?:?-+:? ?\|)+$\n?(?P<row>\|)?", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def faults(docs: Path, indexes: Collection[Path]) -> Iterator[str]:
    """Of the pages of a folder, whose ways in are `indexes`, and of the records of decisions in it."""
    pages = sorted(docs.glob("*.md"))
    linked = {target for page in (*indexes, *pages) for target in _targets(page)}
    for page in (*pages, *sorted(docs.glob("decisions/*.md"))):
        is_record = page.parent != docs
        least = LEAST_RECORD_BYTES if is_record else LEAST_BYTES
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        if len(text.encode()) < least:
            yield f"{page.name} has fewer than {least} bytes"
        if not re.match(r"# \S", text):
            yield f"{page.name} does not begin with its heading"
        if not is_record and page not in linked:
            yield f"no other page links to {page.name}"
        if not is_record and not _targets(page):
            yield f"{page.name} links to nothing"
        if len(code_links(page)) < LEAST_CODE_LINKS.get(page.name, 0):
            yield f"{page.name} has fewer than {LEAST_CODE_LINKS[page.name]} links into the code"
        if any(table["row"] is None for table in _TABLE.finditer(text)):
            yield f"{page.name} has a table without rows"
        yield from (f"{page.name}: {mistake}" for mistake in mistakes(page))
    yield from (f"there is no {name}" for name in LEAST_CODE_LINKS if not (docs / name).exists())


def _targets(page: Path) -> set[Path]:
    """Files of this repository to which a page links, other than itself."""
    links = _TARGET.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {(page.parent / link).resolve() for link in links if "://" not in link} - {page.resolve()}
