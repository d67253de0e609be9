"""The rules of the house that a program can check: whole files, nouns, one name for one thing, public seams.

Each exception has its reason, and fails the test when it is needed no more.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "pinlater", ROOT / "workers" / "pinlater_workers")
MOST_LINES = 600

NOUNS_IN_ING = {"batching", "framing", "logging", "routing", "string", "testing", "tracing"}
"""Last words of module names in -ing that are nouns of the field."""

OPENINGS = {"What", "Where", "Who", "Whom", "Whose", "How", "Which", "When"}

NAMED_TUPLE = {"_replace", "_asdict", "_fields"}
"""Public in spite of their names, which every named tuple has."""

MODULES_IN_ING = {
    "pinlater/client/joining.py": "programs import a name from it that has moved",
}

SAME_MODULES = {
    "admin": "the commands, and the SQL stores' part of the same operations",
    "app": "a package, and the module of its main class",
    "client": "a package, and the module of its main class",
    "cluster": "the commands, and what they show",
    "connection": "one for each kind of peer: Redis, commands, client, server",
    "coordination": "one for each kind of store",
    "descriptors": "of a service's jobs, and of those on an overflow shard",
    "jobs": "of a store, of the model, and of the worker framework",
    "messages": "one for each kind of child process of a worker",
    "overflow": "a package, and the module of its main class",
    "records": "one for each kind of store",
    "service": "a package, the module of its main class, and the same over an overflow shard",
    "settings": "one for each part that has some",
    "shard": "one for each kind of store, and the commands",
    "site": "the HTTP interface, and the dashboard that is added to it",
    "worker": "a package, and the module of its main class",
}
"""Modules of one name in one distribution, and what keeps them apart."""

PRIVATE: dict[str, tuple[int, str]] = {
    "tests/bench/alone.py": (1, "the measure needs the one task that the server starts by itself"),
    "tests/conformance/mutation.py": (1, "a mutation replaces a statement where the store reads it"),
    "tests/unit/test_cli_draining.py": (2, "the pauses of a command that waits are no option"),
    "tests/unit/test_sql_servers.py": (1, "a warning is given once in a process, and tests share one"),
    "tests/unit/test_web.py": (1, "how long a page is kept is no option"),
}
"""How many accesses to private members of the product a test file has, and why."""


@cache
def sources() -> dict[str, ast.Module]:
    """The product's modules by their paths."""
    files = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def name_of(path: str) -> str:
    """The module's own name; a package's is that of its folder."""
    file = Path(path)
    return file.parent.name if file.stem == "__init__" else file.stem


def compare(found: set[str], exceptions: Collection[str], what_to_do: str) -> None:
    assert sorted(found.difference(exceptions)) == [], what_to_do
    assert sorted(set(exceptions) - found) == [], "needed no more: take these out of tests/packaging/test_house.py"


def test_a_file_holds_one_idea_of_readable_length() -> None:
    long = {path for path in sources() if len((ROOT / path).read_text(encoding="utf-8").splitlines()) > MOST_LINES}
    compare(long, (), f"longer than {MOST_LINES} lines: find the second idea in the file and give it a file")


def test_a_module_is_named_by_a_noun() -> None:
    last_words = {path: name_of(path).rpartition("_")[2] for path in sources()}
    verbs = {path for path, word in last_words.items() if word.endswith("ing") and word not in NOUNS_IN_ING}
    compare(
        verbs, MODULES_IN_ING, "name the module by the thing it holds (wait_queue, health_monitor), not by an activity"
    )


def test_a_docstring_opens_with_a_noun_phrase() -> None:
    docs = {path: (ast.get_docstring(tree) or "").split(maxsplit=1) for path, tree in sources().items()}
    questions = {path for path, words in docs.items() if words and words[0].rstrip(",:") in OPENINGS}
    compare(questions, (), "open the module's docstring with a noun phrase that names what the module is")


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(set)
    for path, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    several = {name for name, paths in places.items() if len(paths) > 1}
    compare(several, (), "rename one: a name stands for one class")


def test_a_module_has_a_name_of_its_own() -> None:
    places = defaultdict(set)
    for path in sources():
        if Path(path).stem != "__main__":
            places[path.partition("/")[0], name_of(path)].add(path)
    several = {name for (_, name), paths in places.items() if len(paths) > 1}
    compare(several, SAME_MODULES, "name each module of a distribution by what it holds and others do not")


@cache
def private_names() -> frozenset[str]:
    """Private attributes, methods and functions that the product defines."""
    names = set()
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return frozenset(name for name in names if name.startswith("_") and not name.startswith("__")) - NAMED_TUPLE


def own_names(tree: ast.Module) -> set[str]:
    """Private members that the classes of a test file define for themselves."""
    stored = {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return stored | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def accesses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines that reach for a private name of the product, other than through `self` and `cls`."""
    theirs = private_names()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in theirs:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pinlater"):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in theirs)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from ((node.lineno, str(text)) for text in texts if str(text).rpartition(".")[2] in theirs)


def test_tests_speak_to_public_seams() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        theirs = [f"line {line}: {name}" for line, name in accesses(tree) if name not in own_names(tree)]
        if theirs:
            found[str(path.relative_to(ROOT))] = theirs
    others = {path: lines for path, lines in found.items() if len(lines) > PRIVATE.get(path, (0, ""))[0]}
    assert others == {}, "ask through a public method or a value that is returned; where none is, add a small one"
    fewer = {path: most for path, (most, _) in PRIVATE.items() if len(found.get(path, ())) < most}
    assert fewer == {}, "needed no more: lower these counts in tests/packaging/test_house.py"
