"""The first worker of each kit on docs/languages.md, as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pinlater.model import JobState
from tests.kits.columns import java_path, make
from tests.kits.ledger import WITHIN_S
from tests.kits.table import PAGE
from tests.kits.trial import Stand
from tests.stores.process import dies_with_us

FENCES = {"node": "js", "go": "go", "java": "java"}


def made(column: str, source: str, folder: Path) -> Sequence[str]:
    """The command of a program, built beside the trial's own in `folder`."""
    if column == "node":
        (folder / "tests/kits/node/page.mjs").write_text(source, encoding="utf-8")
        return ["node", str(folder / "tests/kits/node/page.mjs")]
    page = folder / "tests/kits/page"
    page.mkdir()
    if column == "go":
        for name in ("go.mod", "go.sum"):
            shutil.copy(folder / "tests/kits/go" / name, page)
        (page / "main.go").write_text(source, encoding="utf-8")
        make(["go", "build", "-o", "page", "."], page)
        return [str(page / "page")]
    (page / "Thumbnails.java").write_text(source, encoding="utf-8")
    path = java_path(folder)
    make(["javac", "-cp", path, "-d", ".", "Thumbnails.java"], page)
    return ["java", "-cp", os.pathsep.join([path, str(page)]), "Thumbnails"]


def runs_a_job(stand: Stand) -> None:
    """It runs a job as the page says, and SIGTERM ends it with 0."""
    fence = FENCES[stand.column.name]
    (source,) = re.findall(rf"^```{fence}\n(.+?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    address = re.compile(r"(http://)?127\.0\.0\.1:901[02]")
    assert len(address.findall(source)) == 1
    command = made(stand.column.name, address.sub(stand.site.address, source), stand.built)
    stand.site.client.create_queue("thumbnails")
    job = stand.site.enqueue("thumbnails", "thumbnail", {"path": "a.jpg", "size": 200})
    with subprocess.Popen([*dies_with_us(), *command], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert stand.site.ended([job])[job].state is JobState.SUCCEEDED
            program.terminate()
            printed, _ = program.communicate(timeout=WITHIN_S)
        finally:
            program.kill()
    assert (program.returncode, printed) == (0, "a.jpg in 200\n")
