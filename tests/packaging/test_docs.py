"""The documents are true where a machine can tell: links lead somewhere, the wire page is the interface file."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

from pinlater.metrics import FAMILIES
from tests.packaging.conftest import ROOT
from tests.packaging.links import PAGES, with_lines
from tests.unit.test_convert import SENT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("workers/**/*.md")])
STRUCT = re.compile(r"^(?:struct|exception) (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^ +(\d+): (required|optional) ([\w<>, ]+?) (\w+)(?: = ([^,]+))?,$", re.MULTILINE)
ROW = re.compile(r"^\| (\w+)(?: \(exception\))? \| (\d.*?) \|", re.MULTILINE)
WRITTEN_FIELD = re.compile(r"(\d+) ([ro]) ([\w<>, ]+?) (\w+)(?: = (\S+))?(?= ·| \(|$)")
METHOD = re.compile(r"^  ([\w<>, ]+) (\w+)\(1: RequestContext context(?:, )?(.*?)\)\s+throws", re.MULTILINE)
Field = tuple[int, str, str, str, str]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_into_the_code_lead_to_the_lines_where_their_names_are(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == with_lines(page), "run: python -m tests.packaging.links"


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
    for folder in (ROOT, *(each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith("."))):
        for path in folder.glob("*") if folder == ROOT else folder.rglob("*"):
            if path.suffix not in TEXTS or not path.is_file() or path == Path(__file__) or "node_modules" in path.parts:
                continue
            lines = FROM_AN_INDEX.findall(path.read_text(encoding="utf-8", errors="replace"))
            if lines and not path.is_relative_to(ROOT / "pinlater.egg-info"):
                found[str(path.relative_to(ROOT))] = lines
    assert found == {}


def interface() -> str:
    text = (ROOT / "thrift" / "pinlater.thrift").read_text(encoding="utf-8")
    return re.sub(r"^ *(/\*\*.*?\*/|//.*?)\n", "", text, flags=re.MULTILINE | re.DOTALL)


def wire_page() -> str:
    return (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")


def fields_of_the_interface() -> dict[str, set[Field]]:
    return {
        name: {(int(number), need[0], kind, field, value) for number, need, kind, field, value in FIELD.findall(body)}
        for name, body in STRUCT.findall(interface())
    }


def fields_of_the_page() -> dict[str, set[Field]]:
    written: dict[str, set[Field]] = {}
    for name, cell in ROW.findall(wire_page()):
        for number, need, kind, field, value in WRITTEN_FIELD.findall(cell):
            written.setdefault(name, set()).add((int(number), need, kind, field, value))
    return written


def test_the_wire_page_has_every_field_of_the_interface_file() -> None:
    written = fields_of_the_page()
    told_with_their_method = {"CancelJobsRequest", "CancelJobsResponse"}
    for name, fields in fields_of_the_interface().items():
        if name not in told_with_their_method:
            assert written.pop(name) == fields, name
    assert written == {}


def test_the_wire_page_has_every_member_of_every_enum() -> None:
    enums = re.findall(r"^enum (\w+) \{(.*?)^\}", interface(), re.MULTILINE | re.DOTALL)
    assert len(enums) > 10
    for name, body in enums:
        lacking = [
            member
            for member in re.findall(r"^  (\w+) = (\d+)", body, re.MULTILINE)
            if not re.search(rf"\b{member[0]} {member[1]}\b", wire_page())
        ]
        assert lacking == [], name
    for name in ("CancelOutcome", "AckOutcome"):  # one of its own names is in others too
        (line,) = [each for each in wire_page().splitlines() if each.startswith(f"- `{name}`")]
        members = re.findall(r"^  (\w+) = (\d+)", dict(enums)[name], re.MULTILINE)
        assert re.findall(r"([A-Z_]+) (\d+)", line) == members


def test_the_wire_page_has_every_method_of_the_interface_file() -> None:
    methods = METHOD.findall(interface())
    assert len(methods) == 46
    for returns, name, _arguments in methods:
        assert re.search(rf"^\| {name}(?: \(ours\))? \|.*\| {re.escape(returns)}", wire_page(), re.MULTILINE), name


def test_the_wire_page_names_every_reason() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("pinlater/**/*.py"))
    told = {*re.findall(r'reason="?([A-Z_]+)', source), *(cls("x").reason for cls in SENT)}
    assert {"QUEUE_PAUSED", "OVERFLOW_FULL", "OUTCOME_UNKNOWN", "QUEUE_NOT_FOUND"} <= told
    words = set(re.findall(r"[A-Z_]+", wire_page().partition("## Reasons")[2]))
    assert told - words == set()


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
