"""What the site has beside the pages in docs/: hooks of mkdocs.

The README is its first page, other documents of the project are pages too, and so is each file of the project to which
a page links. Each alarm, each reason of an error and each metric has a page of its own, which messages can link to.
Beside each page lies its text as Markdown, and llms.txt lists all of them, for programs that read.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from configparser import ConfigParser
from hashlib import sha256
from pathlib import Path, PurePosixPath
from textwrap import indent
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from table_pages import LISTS, table_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "workers/examples/README.md": "examples.md",
}
"""Documents of the project outside docs/, and the pages that they are."""

_LANGUAGES = {".py": "python", ".lua": "lua", ".sql": "sql", ".js": "javascript", ".toml": "toml", ".yaml": "yaml"}
_LINK = re.compile(r"(\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL)
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)

_texts: dict[str, str] = {}
"""Of each page of this build, by its path in the site's sources, as Markdown with the links of the site."""
_titles: dict[str, str] = {}
_inline: dict[str, set[str]] = {"script": set(), "style": set()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    config.site_name = f"PinLater {setup['metadata']['version']}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that do not lie in docs/."""
    for source, page in DOCUMENTS.items():
        _add(files, config, page, _moved(ROOT / source, page))
    for path, text in table_pages().items():
        _add(files, config, path, text)
    for source in sorted(_linked_sources()):
        text = source.read_text(encoding="utf-8")
        fence = "`" * 4
        language = _LANGUAGES.get(source.suffix, "text")
        title = source.relative_to(ROOT).as_posix()
        head = f"---\nsearch:\n  exclude: true\n---\n# {title}\n\n"
        _add(files, config, _page_of_source(source), f"{head}{fence}{language}\n{text.rstrip()}\n{fence}\n")
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead out of docs/ lead to the pages that stand for what is there."""
    source = Path(page.file.abs_src_path) if page.file.abs_src_path else None
    if source is not None and source.is_relative_to(DOCS):
        markdown = _moved(source, page.file.src_uri)
    if (name := page.file.src_uri.removesuffix(".md")) in LISTS:
        there = {file.src_uri for file in files}

        def link(row: re.Match[str]) -> str:
            path = f"{name}/{row[1]}.md"
            return f"| [`{row[1]}`]({path}) |" if path in there else row[0]

        markdown = _ROW.sub(link, markdown)
    _texts[page.file.src_uri] = markdown
    return _TABS.sub(_tabs, markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    _titles.clear()
    return nav


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    _titles[page.file.src_uri] = page.title or page.file.src_uri
    for kind, pattern in (("script", _SCRIPT), ("style", _STYLE)):
        _inline[kind].update(pattern.findall(output))
    return output


def on_post_build(config: MkDocsConfig) -> None:
    """Writes the texts of pages, llms.txt, and the hashes of what runs in pages, for the header that allows no more."""
    site = Path(config.site_dir)
    for source, text in _texts.items():
        target = site / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for needless in (*site.rglob("*.map"), *site.glob("sitemap.xml*")):  # no address of its own is known to it
        needless.unlink()
    (site / "llms.txt").write_text(_index(config), encoding="utf-8")
    hashes = {kind: sorted(map(_hash, found)) for kind, found in _inline.items()}
    (site.parent / "inline.json").write_text(json.dumps(hashes, indent=1), encoding="utf-8")


def _tabs(part: re.Match[str]) -> str:
    """Sections between two comments as tabs, which are sections for who reads the file itself."""
    sections = re.split(r"^## ", part[1], flags=re.MULTILINE)[1:]
    titles_and_texts = (section.partition("\n")[::2] for section in sections)
    return "\n".join(f'=== "{title}"\n\n{indent(text, "    ")}' for title, text in titles_and_texts)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _index(config: MkDocsConfig) -> str:
    """llms.txt: each page of the site's menu, by its parts."""
    parts = [f"# {config.site_name}\n\n> {config.site_description}\n"]

    def add(entries: list[Any], level: int) -> None:
        for entry in entries:
            if isinstance(entry, str):
                parts.append(f"- [{_titles.get(entry, entry)}]({entry})\n")
                continue
            for name, below in entry.items():
                if isinstance(below, str):
                    parts.append(f"- [{name}]({below})\n")
                else:
                    parts.append(f"\n{'#' * level} {name}\n\n")
                    add(below, level + 1)

    add(config.nav or [], 2)
    return "".join(parts)


def _add(files: Files, config: MkDocsConfig, path: str, text: str) -> None:
    files.append(File.generated(config, path, content=text))


def _linked_sources() -> set[Path]:
    """Files outside docs/ to which a page links."""
    pages = [*DOCS.rglob("*.md"), *(ROOT / name for name in DOCUMENTS)]
    found = set()
    for page in pages:
        for _, link, _ in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
            target = _target(page, link)
            if target is not None and target.is_file() and _page_of_document(target) is None:
                found.add(target)
    return {each for each in found if each.suffix not in (".png", ".svg", ".jpg")}


def _target(page: Path, link: str) -> Path | None:
    """Of a link in a page. None: it leads out of the project."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    target = (page.parent / link).resolve()
    return target if target.is_relative_to(ROOT) else None


def _page_of_document(target: Path) -> str | None:
    """The page that a document is. None: it is none."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return DOCUMENTS.get(target.relative_to(ROOT).as_posix())


def _page_of_source(source: Path) -> str:
    return f"source/{source.relative_to(ROOT).as_posix()}.md"


def _moved(source: Path, page: str) -> str:
    """The text of a document with the links that hold where it is a page."""

    def move(match: re.Match[str]) -> str:
        begin, link, anchor = match[1], match[2], match[3] or ""
        target = _target(source, link)
        if target is None:
            return match[0]
        if target.is_dir():
            return begin[1:-2]  # a folder has no page: its name alone
        there = _page_of_document(target)
        if there is None:
            there, anchor = _page_of_source(target), ""
        return f"{begin}{_relative(there, page)}{anchor})"

    parts = re.split(r"(^```.*?^```$)", source.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(move, part) for part in parts)


def _relative(target: str, page: str) -> str:
    """
    >>> _relative("queues.md", "errors/FORBIDDEN.md")
    '../queues.md'
    """
    here = PurePosixPath(page).parent.parts
    there = PurePosixPath(target).parts
    while here and there and here[0] == there[0]:
        here, there = here[1:], there[1:]
    return "/".join((*[".."] * len(here), *there))
