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


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Links that a reader follows may lead out; a page's own files may not."""
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = re.sub(r"<a\b[^>]*>", "", page.read_text(encoding="utf-8"))
        assert OUTSIDE.findall(text) == [], page


def test_every_script_in_a_page_is_known_by_its_hash(site: Path) -> None:
    known = json.loads((site.parent / "inline.json").read_text(encoding="utf-8"))
    assert known["script"]
    assert known["style"] == []
