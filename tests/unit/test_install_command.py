"""Hints for packages that are missing, in a checkout and where PinLater is installed as a package."""

from __future__ import annotations

from pathlib import Path

from pinlater.errors import install_command

PACKAGE = "pinlater"


def test_a_checkout_is_told_what_works_there_and_a_package_what_works_anywhere(tmp_path: Path) -> None:
    assert install_command("server") == "pip install '.[server]' in the checkout of PinLater"
    assert install_command("server", str(tmp_path)) == f"pip install '{PACKAGE}[server]'"
    (tmp_path / "setup.cfg").touch()
    assert "checkout" not in install_command("server", str(tmp_path)), "a file of some other package"
