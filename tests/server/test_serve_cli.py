"""The command line's entry: help without a server's packages, and `pinlater admin`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pinlater.data_folder.password import verify_password
from pinlater.errors import install_command

WITHOUT_EXTRAS = """
import sys
for name in ("structlog", "uvloop", "apscheduler", "re2", "redis", "hiredis", "sqlalchemy", "pymysql"):
    sys.modules[name] = None
from pinlater.cli import main
main()
"""


def run(*arguments: str, text: str = "", code: str = "from pinlater.cli import main; main()") -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], input=text, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def test_the_hash_of_a_password_on_standard_input() -> None:
    code, out, err = run("admin", "hash-password", text="open sesame\nmore\n")
    assert (code, err) == (0, "")
    assert verify_password("open sesame", out.strip())
    assert out != run("admin", "hash-password", text="open sesame\n")[1], "salted"


def test_no_password_is_a_usage_error() -> None:
    assert run("admin", "hash-password") == (2, "", "pinlater: no password on standard input\n")


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["--version"], ["queue", "--help"], ["job", "--help"], ["admin", "--help"]]
)
def test_all_but_the_server_works_without_its_packages(arguments: list[str]) -> None:
    code, out, err = run(*arguments, code=WITHOUT_EXTRAS)
    assert code == (0 if arguments else 2)
    assert "Traceback" not in err
    assert out or err.startswith("Usage")


def test_the_server_says_what_it_lacks() -> None:
    code, _, err = run("serve", code=WITHOUT_EXTRAS)
    assert code == 1
    assert err.startswith("pinlater: serve needs the Python package ")
    assert err.endswith(f": {install_command('server')}\n")
    assert err.count("\n") == 1
