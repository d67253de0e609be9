"""The tests that belong to what was changed: `scripts/test --changed` runs them.

A test file belongs to a changed file that it imports, by itself or by way of other files of the tests, that its own
name names, or that a row of BELONGS gives to it.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
BELONGS: Mapping[str, tuple[str, ...]] = {
    "*.md": ("tests/packaging/test_docs.py", "tests/packaging/test_places.py"),
    "*.py": ("tests/packaging/test_house.py",),
    ".github/*": ("tests/packaging/test_habits.py",),
    ".pre-commit-config.yaml": ("tests/packaging/test_habits.py",),
    "CHANGELOG.md": ("tests/packaging/test_artifacts.py",),
    "conf/*": ("tests/packaging/test_conf.py", "tests/packaging/test_conf_workers.py"),
    "conf/compose/*": ("tests/packaging/test_compose.py",),
    "conf/helm/*": ("tests/packaging/test_chart.py",),
    "conf/image/*": ("tests/packaging/test_image.py",),
    "conf/prometheus/*": ("tests/server/test_alarm_rules.py", "tests/packaging/test_compose.py"),
    "docs/languages.md": ("tests/kits/test_pages.py",),
    "docs/testing.md": ("tests/unit/test_release.py",),
    "docs/worker-protocol.md": ("tests/kits/test_pages.py",),
    "pinlater/alarms/*": ("tests/server/test_alarms.py", "tests/server/test_alarm_rules.py"),
    "pinlater/backends/*": ("tests/conformance",),
    "pinlater/backends/sql/*": ("tests/unit/test_sql_plans.py", "tests/stores/test_version_before.py"),
    "pinlater/dashboard/*": ("tests/dashboard",),
    "pinlater/flows/*": ("tests/flows",),
    "pinlater/http/*": ("tests/http",),
    "pinlater/idl/*": ("tests/unit/test_interface_file.py",),
    "pinlater/service/*": ("tests/conformance/test_service_binding.py",),
    "scripts/*": ("tests/packaging/test_setup_progress.py",),
    "setup.cfg": ("tests/packaging/test_packages.py",),
    "setup.py": ("tests/packaging/test_packages.py",),
    "tests/parts.py": ("tests/unit/test_release.py",),
    "tests/release.py": ("tests/unit/test_release.py",),
    "thrift/*": (
        "tests/unit/test_interface_file.py",
        "tests/packaging/test_docs.py",
        "tests/server/test_wire_clients.py",
    ),
    "workers/examples/*": ("tests/demo",),
    "workers/go/*": ("tests/kits/test_trial.py", "tests/kits/test_go_files.py"),
    "workers/java/*": ("tests/kits/test_trial.py", "tests/kits/test_java_kit.py"),
    "workers/node/*": ("tests/kits/test_trial.py", "tests/languages/test_node_kit.py"),
}
"""Of a changed file, by a pattern of its path: tests beside those that import it or are named after it."""

PRODUCT = {"pinlater": "pinlater", "workers/pinlater_workers": "pinlater_workers"}


def changed_files(base: str) -> set[str]:
    """What differs from the commit where this branch left `base`: committed, not committed, and new."""
    left_at = _git("merge-base", base, "HEAD").strip()
    return {
        *_git("diff", "--name-only", left_at).splitlines(),
        *_git("ls-files", "--others", "--exclude-standard").splitlines(),
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"scripts/test --changed: git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def module_of(path: str) -> str:
    """The name that a Python file is imported by; "" for one that is not."""
    if not path.endswith(".py"):
        return ""
    for folder, package in {**PRODUCT, "tests": "tests"}.items():
        if path.startswith(f"{folder}/"):
            return f"{package}.{path.removeprefix(f'{folder}/').removesuffix('.py').removesuffix('/__init__')}".replace(
                "/", "."
            )
    return ""


@cache
def imported_by(path: Path) -> frozenset[str]:
    """The modules, and what may be one, that a file names in its imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return frozenset(names)


def importers(modules: Iterable[str], folder: Path) -> set[str]:
    """Test files that import one of these modules, by themselves or by way of other files of the tests."""
    files = {module_of(str(path.relative_to(folder.parent))): path for path in folder.rglob("*.py")}
    found, left = set(), set(modules)
    while left:
        left = {name for name, path in files.items() if name not in found and imported_by(path) & left}
        found |= left
    return {str(files[name].relative_to(folder.parent)) for name in found if files[name].name.startswith("test_")}


def belonging_to(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The paths of the tests that belong to these files, and are there."""
    found: set[str] = set()
    modules: set[str] = set()
    stems: set[str] = set()
    for path in changed:
        name = Path(path)
        if name.name.startswith("test_") and path.startswith("tests/"):
            found.add(path)
            continue
        found |= {test for pattern, tests in BELONGS.items() if fnmatch(path, pattern) for test in tests}
        module = module_of(path)
        if module and not name.name.startswith("__"):
            modules.add(module)
            stems.add(name.stem)
    own = (path for path in (root / "tests").rglob("test_*.py") if path.stem.removeprefix("test_") in stems)
    found |= {str(path.relative_to(root)) for path in own} | importers(modules, root / "tests")
    there = sorted(path for path in found if (root / path).exists())
    return list(_without_those_inside(there))


def _without_those_inside(paths: Iterable[str]) -> Iterator[str]:
    """A folder has its files."""
    folders: list[str] = []
    for path in paths:
        if not any(path.startswith(f"{folder}/") for folder in folders):
            folders.append(path)
            yield path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__)
    parser.add_argument("base", nargs="?", default="main", help="the branch, or commit, to compare with (main)")
    print(*belonging_to(changed_files(parser.parse_args().base)), sep="\n")


if __name__ == "__main__":
    main()
