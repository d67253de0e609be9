"""The documentation site is built without a warning, loads nothing from elsewhere, and has every page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater.alarms.condition_table import CONDITIONS
from pinlater.error_reasons import REASONS
from pinlater.metrics import FAMILIES
from tests.packaging.conftest import ROOT

OUTSIDE = re.compile(r"""(?:src|href)="(?:https?:)?//[^"]*"|url\((?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As scripts/docs builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    paths = [ROOT / "conf" / "site", ROOT]
    config = ROOT / "conf" / "site" / "mkdocs.yml"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "--site-dir", folder, "--config-file", config],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "NO_MKDOCS_2_WARNING": "1"},
    )
    return folder


def test_each_alarm_error_and_metric_has_a_page(site: Path) -> None:
    names = [("alarms", each.name) for each in CONDITIONS]
    names += [("errors", each.name) for each in REASONS] + [("metrics", name) for name in FAMILIES]
    assert [name for name in names if not (site / name[0] / name[1] / "index.html").is_file()] == []
    assert 'href="QUEUE_NOT_FOUND/"' in (site / "errors" / "index.html").read_text(encoding="utf-8")


def test_each_document_is_a_page_and_a_text_and_in_the_menu(site: Path) -> None:
    index = (site / "llms.txt").read_text(encoding="utf-8")
    for document in sorted(ROOT.glob("docs/*.md")):
        assert (site / document.stem / "index.html").is_file()
        assert (site / document.name).read_text(encoding="utf-8").strip()
        assert f"]({document.name})" in index, "it is to stand in nav of conf/site/mkdocs.yml"


def test_each_picture_of_a_page_is_there_in_the_colours_of_the_switch(site: Path) -> None:
    pictures = {
        (page.parent / path).resolve(): switch
        for page in site.rglob("*.html")
        for path, switch in re.findall(
            r"""<(?:img|source)\b[^>]*\b(?:src|srcset)="([^"#]+)([^"]*)\"""", page.read_text("utf-8")
        )
    }
    assert [picture for picture in pictures if not picture.is_file()] == []
    assert {switch for picture, switch in pictures.items() if "images" in picture.parts} == {
        "#only-light",
        "#only-dark",
    }
    drawings = [(site / f"images/drawings/parts-{colours}.svg").read_text("utf-8") for colours in ("light", "dark")]
    assert "@media" not in "".join(drawings), "the switch decides, and not the reader's system"
    assert drawings[0] != drawings[1]


def test_pages_say_what_they_are_about_and_belong_to_a_part_of_the_menu(site: Path) -> None:
    for path, part in ("errors/QUEUE_NOT_FOUND", "Reference"), ("alarms/shard_out", "Run it"), ("wire", "Reference"):
        text = (site / path / "index.html").read_text("utf-8")
        (about,) = re.findall(r'<meta name="description" content="([^"]+)">', text)
        assert about.endswith(".")
        assert "keeps jobs" not in about, "that is what the whole site is about"
        (active,) = re.findall(r"md-tabs__item--active.*?<a[^>]*>\s*(.*?)\s*</a>", text, re.DOTALL)
        assert active == part


def test_links_are_called_after_pages(site: Path) -> None:
    names = re.compile(r"""<a href="(?!\.\./source/)[^>]*>[\w-]+\.md</a>""")
    assert [page for page in site.rglob("*.html") if names.search(page.read_text("utf-8"))] == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Links that a reader follows may lead out; a page's own files may not."""
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = re.sub(r"<a\b[^>]*>", "", page.read_text(encoding="utf-8"))
        assert OUTSIDE.findall(text) == [], page


def test_every_script_in_a_page_is_known_by_its_hash(site: Path) -> None:
    known = json.loads((site.parent / "inline.json").read_text(encoding="utf-8"))
    assert known["script"]
    assert known["style"] == []
