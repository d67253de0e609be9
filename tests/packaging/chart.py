"""The chart of conf/helm as Helm renders it for the five usual cases: `python -m tests.packaging.chart` writes that.

Helm is built from its Go module, which takes two minutes and is done once for a user: so CI judges what was rendered,
with a digest of the chart that it was rendered from, and `--release` renders it anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.packaging.conftest import ROOT

CHART = ROOT / "conf" / "helm" / "pinlater"
CASES = sorted((ROOT / "conf" / "helm" / "cases").glob("*.yaml"))
RENDERED = Path(__file__).parent / "rendered"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
WITHOUT_RULES = ["--set", "monitoring.rules.enabled=false"]
"""They are a file of their own, which is checked by itself and changes more often than the chart."""


def digest(case: Path) -> str:
    """Of all that a case is rendered from, the rules left out."""
    found = hashlib.sha256()
    for path in sorted([*(each for each in CHART.rglob("*") if each.is_file() and each.parent.name != "files"), case]):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def manifests(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each is not None]


def helm_program() -> str:
    """Helm: the one on PATH, or one that Go builds in the user's cache. OSError where neither can be."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pinlater" / HELM.rpartition("@")[2]
    found = shutil.which("helm") or shutil.which("helm", path=str(folder))
    if found is not None:
        return found
    if shutil.which("go") is None:
        raise OSError("the chart is rendered by Helm 3, which is not on PATH, nor is Go, which would build it")
    environment = os.environ | {"GOBIN": str(folder)}
    done = subprocess.run(["go", "install", HELM], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"Helm could not be built: {done.stderr}")
    return str(folder / "helm")


def render(helm: str, case: Path, *options: str) -> str:
    """ValueError: what Helm has against it."""
    place = ["template", "mail", str(CHART), "--namespace", "queues", "--kube-version", "1.34.0"]
    done = subprocess.run([helm, *place, "-f", str(case), *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


def rendered(helm: str, case: Path) -> str:
    """As it is kept."""
    head = f"# Helm's answer to conf/helm/cases/{case.name}: python -m tests.packaging.chart\n# of {digest(case)}\n"
    return head + render(helm, case, *WITHOUT_RULES)


def main(cases: Sequence[Path] = CASES) -> None:
    helm = helm_program()
    RENDERED.mkdir(exist_ok=True)
    for case in cases:
        (RENDERED / case.name).write_text(rendered(helm, case), encoding="utf-8")


if __name__ == "__main__":
    main()
