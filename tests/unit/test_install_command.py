"""Hints for packages that are missing, in a checkout and where PinLater is installed as a package."""

from __future__ import annotations

import json
from pathlib import Path

from pinlater.errors import install_command

PACKAGE = "pinlater"


def test_a_checkout_is_told_what_works_there_and_a_package_what_works_anywhere(tmp_path: Path) -> None:
    assert install_command("server") == "pip install '.[server]' in the checkout of PinLater"
    assert install_command("server", str(tmp_path)) == f"pip install '{PACKAGE}[server]'"
    (tmp_path / "setup.cfg").touch()
    assert "checkout" not in install_command("server", str(tmp_path)), "a file of some other package"


def test_what_came_from_a_folder_is_told_that_folder(tmp_path: Path) -> None:
    """No index has the package, so its name alone would bring nothing, or that of somebody else."""
    record = tmp_path / "pinlater-0.1.0.dist-info" / "direct_url.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"dir_info": {}, "url": f"file://{tmp_path}"}))
    assert install_command("server", str(tmp_path)) == f"pip install '{tmp_path}[server]'"
    record.write_text(json.dumps({"archive_info": {}, "url": "file:///wheels/pinlater-0.1.0-py3-none-any.whl"}))
    assert install_command("server", str(tmp_path)) == f"pip install '{PACKAGE}[server]'"
