"""What the site has beside the pages in docs/: hooks of mkdocs.

The README is its first page, other documents of the project are pages too, and so is each file of the project to which
a page links. Each alarm, each reason of an error and each metric has a page of its own, which messages can link to.
Beside each page lies its text as Markdown, and llms.txt lists all of them, for programs that read.

What reads well in a checkout reads well here too: a link that is called after its file is called after its page, and a
picture that follows the colours of the reader's system follows those of the site.
"""

from __future__ import annotations

import json
import posixpath
import re
from base64 import b64encode
from collections.abc import Callable
from configparser import ConfigParser
from hashlib import sha256
from html import escape
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

STYLE = "site.css"

_LANGUAGES = {".py": "python", ".lua": "lua", ".sql": "sql", ".js": "javascript", ".toml": "toml", ".yaml": "yaml"}
_LINK = re.compile(r"(\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL)
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_NAMED_AFTER_FILE = re.compile(r"\[[\w/-]+\.md\]\(([^)\s#:]+\.md)([^)\s]*)\)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_PICTURE = re.compile(r'<picture>.*?<img src="([^"]+)" alt="([^"]*)"></picture>')
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+?)(-light\.png|\.svg)\)")
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n(.*?)\n\}", re.DOTALL)
"""Of a drawing: what its colours are where the reader's system is dark, up to the brace that stands alone."""

_DESCRIPTION_CHARS = 160
"""Of which programs that search show no more."""

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
    for drawing in sorted(DOCS.rglob("*.svg")):
        name, svg = drawing.relative_to(DOCS).with_suffix("").as_posix(), drawing.read_text(encoding="utf-8")
        _add(files, config, f"{name}-light.svg", _DARK.sub("", svg))
        _add(files, config, f"{name}-dark.svg", _DARK.sub(r"\1", svg))
    _add(files, config, STYLE, (Path(__file__).parent / STYLE).read_text(encoding="utf-8"))
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
    page.meta.setdefault("description", escape(_description(markdown)))
    if (whole := _list_of(page.file, files)) is not None:
        markdown = markdown.replace("\n", f"\n\n[{_title_of(whole)}](../{whole.src_uri})\n", 1)
    return _TABS.sub(_tabs, _in_prose(lambda prose: _read_here(prose, page.file, files), markdown))


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """A page of one alarm, or of another part of a list, is in the menu where the list is."""
    _titles.clear()
    for file in files.documentation_pages():
        if (whole := _list_of(file, files)) is not None and file.page is not None and whole.page is not None:
            file.page.parent = whole.page.parent
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


def _list_of(file: File, files: Files) -> File | None:
    """The page that lists this one: errors.md for errors/FORBIDDEN.md."""
    folder = PurePosixPath(file.src_uri).parent
    return files.get_file_from_path(f"{folder}.md")


def _title_of(file: File) -> str:
    return found[1] if (found := _TITLE.search(file.content_string)) else file.src_uri


def _description(markdown: str) -> str:
    """The first paragraph, up to the end of a sentence, as plain text."""
    paragraphs = (part.strip() for part in re.sub(r"<!--.*?-->", "", markdown, flags=re.DOTALL).split("\n\n"))
    first = next((part for part in paragraphs if re.match(r"\w|\[|\*\*|`", part)), "")
    plain = " ".join(re.sub(r"^\*\*\w+\.\*\*|[*`]|!?\[|\]\([^)]*\)", "", first).split())
    if len(plain) <= _DESCRIPTION_CHARS:
        return plain
    sentences, dot, _ = plain[:_DESCRIPTION_CHARS].rpartition(". ")
    return f"{sentences}." if dot else f"{plain[: _DESCRIPTION_CHARS - 1]}…"


def _read_here(prose: str, file: File, files: Files) -> str:
    """What is written for who reads the file in a checkout, as one reads it on the site."""

    def name(match: re.Match[str]) -> str:
        there = files.get_file_from_path(posixpath.normpath(posixpath.join(posixpath.dirname(file.src_uri), match[1])))
        return match[0] if there is None else f"[{_title_of(there)}]({match[1]}{match[2]})"

    def follow_the_switch(match: re.Match[str]) -> str:
        alt, path, end = match.groups()
        extension = end.removeprefix("-light")
        return "".join(
            f"![{alt}]({path}-{side}{extension}#only-{side}){{ loading=lazy }}" for side in ("light", "dark")
        )

    prose = _PICTURE.sub(r"![\2](\1)", prose)
    return _NAMED_AFTER_FILE.sub(name, _IMAGE.sub(follow_the_switch, prose))


def _in_prose(change: Callable[[str], str], markdown: str) -> str:
    """Changes what is no block of code."""
    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


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
        for _, link, _ in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
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

    return _in_prose(lambda prose: _LINK.sub(move, prose), source.read_text(encoding="utf-8"))


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
