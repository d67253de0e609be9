"""Which tests belong to changed files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed import BELONGS, ROOT, belonging_to, module_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "tests/__init__.py": "",
        "tests/unit/stand.py": "from pinlater.shards import router",
        "tests/unit/test_other.py": "from tests.unit.stand import *",
        "tests/unit/test_router.py": "import json",
        "tests/unit/test_named.py": "from pinlater.shards.router import Router",
        "tests/unit/test_far.py": "import pinlater.wire.codec",
        "tests/conformance/test_claims.py": "",
        "tests/packaging/test_house.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["tests/unit/test_far.py"], ["tests/unit/test_far.py"]),
        (["tests/unit/test_gone.py"], []),
        (
            ["pinlater/shards/router.py"],
            ["tests/packaging/test_house.py", *(f"tests/unit/test_{name}.py" for name in ("named", "other", "router"))],
        ),
        (["tests/unit/stand.py"], ["tests/packaging/test_house.py", "tests/unit/test_other.py"]),
        (
            ["pinlater/backends/sql/shard.py", "tests/conformance/test_claims.py"],
            ["tests/conformance", "tests/packaging/test_house.py"],
        ),
        (["LICENSE"], []),
    ],
)
def test_a_changed_file_has_its_tests(project: Path, changed: list[str], tests: list[str]) -> None:
    assert belonging_to(changed, project) == tests


def test_a_module_is_known_by_its_file() -> None:
    assert module_of("pinlater/shards/router.py") == "pinlater.shards.router"
    assert module_of("workers/pinlater_workers/app/__init__.py") == "pinlater_workers.app"
    assert module_of("tests/unit/stand.py") == "tests.unit.stand"
    assert module_of("scripts/test") == module_of("workers/examples/demo.py") == ""


def test_the_table_names_tests_that_there_are() -> None:
    named = {test for tests in BELONGS.values() for test in tests}
    assert {test for test in named if not (ROOT / test).exists()} == set()
