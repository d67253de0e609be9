"""The worker in curl of two pages does what it says, as it stands there but for the address."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.http.calls import Caller

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/first-job.md", "docs/http.md"])
def test_a_worker_in_four_lines(caller: Caller, api_address: str, tmp_path: Path, page: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    caller.done("PUT", "/v1/queues/mail")
    (script,) = re.findall(r"^```bash\n((?:curl .*\n){4})^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert script.count("http://127.0.0.1:9012") == 4
    script = "set -e\n" + script.replace("http://127.0.0.1:9012", api_address).replace("\ncurl", "; echo\ncurl")
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    stored, _, beats, acked = map(str.strip, done.stdout.split("\n"))
    descriptor = json.loads(stored)["descriptor"]
    assert json.loads(beats) == {"answers": [{"outcome": "ok"}]}
    assert json.loads(acked) == {"outcomes": ["succeeded"]}
    job = caller.done("GET", f"/v1/jobs/{descriptor}?include_body=true")
    assert (job["state"], job["body"]) == ("succeeded", "to: ada@example.org")
