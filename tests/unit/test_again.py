"""What failed beside others is tried once more, alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST, again

ALONE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_late(number):
    tried = Path(__file__).with_name("tried" + str(number))
    is_first = not tried.exists()
    tried.touch()
    assert not is_first

def test_wrong():
    assert {right}

def test_right():
    pass
"""
PLAIN = ["-c", "plain.ini", "--rootdir", "."]


@pytest.mark.parametrize(
    ("tests", "right", "code"), [(2, True, 0), (2, False, 1), (MOST, True, 0), (MOST + 1, True, 1), (0, True, 1)]
)
def test_few_that_pass_alone_fail_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], tests: int, right: bool, code: int
) -> None:
    (tmp_path / "plain.ini").touch()
    (tmp_path / "test_some.py").write_text(ALONE.format(tests=tests, right=right))
    subprocess.run([sys.executable, "-m", "pytest", "-q", *PLAIN], cwd=tmp_path, check=False)
    capfd.readouterr()
    assert again(tmp_path, PLAIN) == code
    told = capfd.readouterr().out
    assert ("passed alone, and failed beside others:" in told) == (code == 0)
    assert ("test_some.py::test_late[1]" in told) == (0 < tests <= MOST)
    assert "test_right" not in told
