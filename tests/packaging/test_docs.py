"""The documents are true where a machine can tell: links lead somewhere, tables are what the code has."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

from pinlater.error_reasons import REASONS
from pinlater.http.errors_page import errors_page
from pinlater.metrics import FAMILIES
from pinlater.shard_factory import DRIVERS
from tests.packaging.architecture_tables import PAGE, with_layers
from tests.packaging.conftest import ROOT
from tests.packaging.pages import LEAST_BYTES, LEAST_CODE_LINKS, LEAST_RECORD_BYTES, faults
from tests.unit.test_convert import SENT

DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("workers/**/*.md"))
    if "node_modules" not in path.parts
)
FROM_AN_INDEX = re.compile(
    r"(?:\b(?:pip3?|pipx|uv|uvx|poetry|pdm|conda|mamba|npm|npx|yarn|pnpm|brew|apt|apt-get|dnf|gem|go)\s+"
    r"(?:(?:install|add|i|get|run|tool|pip|inject)\s+)*|--with[= ])"
    r"(?:-{1,2}[\w-]+[= ])*[\"'`]?pinlater(?:[-_]\w+)?(?![\w/.-])",
    re.IGNORECASE,
)
"""A command that takes PinLater from a package index, where it is not."""

TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".cfg", ".js", ".json", ".sh", ".service", ".thrift", ".txt", ""}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


def test_every_page_is_whole_and_found_from_another() -> None:
    assert list(faults(ROOT / "docs", (ROOT / "README.md", ROOT / "CONTRIBUTING.md"))) == []


FILLING = "Words of a page, one after another, until it is as long as a page has to be. " * 20


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", f"where.md has fewer than {LEAST_BYTES} bytes"),
        ("# Where\n", f"where.md has fewer than {LEAST_BYTES} bytes"),
        (f"{FILLING}[it](tour.md)", "where.md does not begin with its heading"),
        (f"# Where\n{FILLING}", "where.md links to nothing"),
        (
            f"# Where\n{FILLING}[it](tour.md)",
            f"where.md has fewer than {LEAST_CODE_LINKS['where.md']} links into the code",
        ),
        (f"# Where\n{FILLING}[it](tour.md)\n| a | b |\n| --- | --- |\n\nMore.", "where.md has a table without rows"),
        (f"# Where\n{FILLING}[it](tour.md)\n| a |\n| --- |", "where.md has a table without rows"),
        (f"# Where\n{FILLING}[`Shard.fly`](../shard.py)", "where.md: shard.py does not define Shard.fly"),
        (f"# Where\n{FILLING}[`Ship`](../ship.py)", "where.md: there is no ship.py for Ship"),
        (
            f"# Where\n{FILLING}[`Shard`](../shard.py#L12)",
            "where.md: ../shard.py#L12 has a line number: name what is there",
        ),
    ],
)
def test_a_page_that_is_not_whole_is_found(tmp_path: Path, text: str, fault: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "README.md").write_text("[there](docs/where.md)")
    (tmp_path / "shard.py").write_text("class Shard:\n    def open(self): ...\n")
    (docs / "where.md").write_text(text)
    (docs / "tour.md").write_text(f"# Tour\n{FILLING}[it](where.md) [`Shard.open`](../shard.py)\n| a |\n| --- |\n| b |")
    found = list(faults(docs, [tmp_path / "README.md"]))
    assert fault in found
    assert [each for each in found if each.startswith("tour.md") and "links into the code" not in each] == []


def test_a_page_that_no_other_links_to_is_found(tmp_path: Path) -> None:
    (tmp_path / "alone.md").write_text(f"# Alone\n{FILLING}[itself](alone.md)")
    (tmp_path / "README.md").write_text("[elsewhere](https://example.org/alone.md)")
    found = list(faults(tmp_path, [tmp_path / "README.md"]))
    assert "no other page links to alone.md" in found
    assert {"there is no tour.md", "there is no where.md"} <= set(found)


def test_a_record_of_a_decision_that_is_not_whole_is_found(tmp_path: Path) -> None:
    records = tmp_path / "decisions"
    records.mkdir()
    (records / "1-whole.md").write_text(f"# Whole\n{FILLING}")
    (records / "2-short.md").write_text("# Short\n")
    (records / "3-odd.md").write_text(f"{FILLING}\n| a |\n| --- |\n")
    assert {each for each in faults(tmp_path, []) if re.match(r"\d", each)} == {
        f"2-short.md has fewer than {LEAST_RECORD_BYTES} bytes",
        "3-odd.md does not begin with its heading",
        "3-odd.md has a table without rows",
    }


@pytest.mark.parametrize(
    ("text", "finds_nothing"),
    [
        ("pip install 'pinlater[server]'", True),
        ('pip install "pinlater[workers]"', True),
        ("pip install pinlater", True),
        ("`python -m pip install --upgrade pinlater`", True),
        ("uv pip install pinlater-workers", True),
        ("npm install pinlater", True),
        ("pipx run pinlater serve", True),
        ("pip install '.[server]'", False),
        ('pip install "/src[workers]"', False),
        ("pip install ./pinlater-0.1.0-py3-none-any.whl", False),
        ("pip install pinlater-0.1.0-py3-none-any.whl", False),
        ("pip install /srv/pinlater", False),
        ("kubectl apply -f conf/kubernetes/pinlater.yaml", False),
    ],
)
def test_what_takes_pinlater_from_an_index_is_found(text: str, finds_nothing: bool) -> None:
    assert bool(FROM_AN_INDEX.search(text)) is finds_nothing


def test_nothing_tells_anybody_to_install_pinlater_from_an_index_where_it_is_not() -> None:
    """Documents, texts and code say what works in a checkout; `errors.install_command` is the one place for code."""
    found = {}
    made = ("build", ".")  # what scripts/docs made of these files, and what is hidden
    for folder in (ROOT, *(each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(made))):
        for path in folder.glob("*") if folder == ROOT else folder.rglob("*"):
            if path.suffix not in TEXTS or not path.is_file() or path == Path(__file__) or "node_modules" in path.parts:
                continue
            lines = FROM_AN_INDEX.findall(path.read_text(encoding="utf-8", errors="replace"))
            if lines and not path.is_relative_to(ROOT / "pinlater.egg-info"):
                found[str(path.relative_to(ROOT))] = lines
    assert set(found) == {"pinlater/errors.py"}, found


def test_the_table_of_reasons_has_every_reason() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("pinlater/**/*.py"))
    told = {*re.findall(r'reason="?([A-Z_]+)', source), *(cls("x").reason for cls in SENT)}
    assert {"QUEUE_PAUSED", "OVERFLOW_FULL", "OUTCOME_UNKNOWN", "QUEUE_NOT_FOUND"} <= told
    assert told - {each.name for each in REASONS} == set()


def test_the_page_of_errors_is_the_table_of_reasons() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == errors_page(), (
        "write it anew: python -m pinlater.http errors > docs/errors.md"
    )


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    newest = re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == setup["metadata"]["version"]


def test_the_page_of_metrics_has_every_metric_as_it_is() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    for name, family in FAMILIES.items():
        row = f"| `{name}` | {family.kind} | {', '.join(family.labels) or '-'} | {family.help} |"
        assert row in page, row


def test_the_page_of_the_architecture_has_the_layers_of_the_contracts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_layers(page) == page, "write them anew: python -m tests.packaging.architecture_tables"
    emptied = re.sub(r"^\| \d+ \| .*\n", "", page, flags=re.MULTILINE)
    assert emptied != page
    assert with_layers(emptied) == page
    with pytest.raises(ValueError, match=re.escape("in no table: ['pinlater_workers.app', ")):
        with_layers(page.replace("<!-- layers: workers -->", ""))


STORES = {"server": "SQLite", "redis": "Redis", "mysql": "MariaDB", "postgresql": "PostgreSQL", "dynamodb": "DynamoDB"}


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("pinlater/backends/__init__.py", '"""'),
        ("docs/concepts.md", "A **store** keeps jobs"),
    ],
)
def test_pages_that_list_the_stores_name_every_kind(page: str, line: str) -> None:
    kinds = {extra for _, _, extra in DRIVERS.values()} - {"mysqldb"}  # a second driver of one kind
    assert kinds == STORES.keys()
    (listed,) = [each for each in (ROOT / page).read_text(encoding="utf-8").splitlines() if each.startswith(line)]
    assert [name for name in STORES.values() if name not in listed] == []
