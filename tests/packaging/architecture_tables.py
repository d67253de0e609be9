"""The tables of docs/architecture.md: the layers of the contracts in setup.cfg, with what each module is.

`python -m tests.packaging.architecture_tables` writes them anew; a test compares them. A mark names the contract of its
table. What a module is, is the first sentence of its docstring. A package that is in no table is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages

from tests.packaging.marks import marks, refilled

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = {"pinlater": ROOT, "pinlater_workers": ROOT / "workers"}


def with_layers(page: str) -> str:
    """The page with its tables as they are now."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    names = [name for mark in marks(page) for name in mark.names]
    tables = {name: list(_modules(setup[f"importlinter:contract:{name}"])) for name in names}
    listed = {module for table in tables.values() for _, module in table}
    packages = {each for top, folder in FOLDERS.items() for each in find_packages(str(folder), include=[f"{top}.*"])}
    if packages - listed:
        raise ValueError(f"these packages are in no table: {sorted(packages - listed)}")
    return refilled(page, lambda mark: _rows(tables[mark.names[0]]))


def _modules(contract: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The number of the layer, from the lowest up, and the full name of each module of a contract, the top first."""
    layers = [re.findall(r"[\w.]+", line) for line in contract["layers"].strip().splitlines()]
    for above, names in enumerate(layers, 1):
        for name in sorted(names):
            yield len(layers) - above, f"{contract['containers']}.{name}" if "containers" in contract else name


def _rows(modules: list[tuple[int, str]]) -> Iterator[tuple[str, str, str]]:
    yield "layer", "module", "what it is"
    yield "---", "---", "---"
    for layer, module in modules:
        path = FOLDERS[module.partition(".")[0]] / module.replace(".", "/")
        name = module.rpartition(".")[2]
        if path.is_dir():
            yield str(layer), f"`{name}/`", _sentence(path / "__init__.py")
        else:
            yield str(layer), f"`{name}`", _sentence(path.with_suffix(".py"))


def _sentence(path: Path) -> str:
    """The first one of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    sentence = re.match(r".+?\.(?= |$)", text)
    if sentence is None:
        raise ValueError(f"{path} does not say what it is: its docstring is to begin with a sentence")
    return sentence[0].removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_layers(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
