"""The Java kit's own tests, by Maven, in a copy: no file of theirs stays in the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kits.columns import COLUMNS, copied, make, needs


@pytest.mark.slow
@pytest.mark.store("languages")
@pytest.mark.skipif(not COLUMNS["java"].is_there, reason="this checkout has no kit in Java")
def test_its_own_tests_pass(tmp_path: Path) -> None:
    needs(("javac", "default-jdk-headless"), ("mvn", "maven"), ("thrift", "thrift-compiler"))
    server = str(Path(sys.executable).parent / "pinlater")
    quiet = ["mvn", "--batch-mode", "--quiet", "--no-transfer-progress"]
    make([*quiet, "test"], copied("java", tmp_path), PINLATER_COMMAND=server)
