"""The files of the habits of development: they name commands, files, versions and Pythons that there are."""

from __future__ import annotations

import re
import subprocess
from configparser import ConfigParser
from typing import Any

import yaml

from tests.packaging.conftest import ROOT
from tests.packaging.release import version_of_project
from tests.pythons import SMOKE, VERSIONS

GITHUB = ROOT / ".github"


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_hooks_run_the_programs_of_the_environment() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local", "hooks from elsewhere would have other versions than scripts/test"
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for hook in local["hooks"]:
        program = hook["entry"].split()[0]
        if program.startswith(".venv/bin/"):
            package = {"lint-imports": "import-linter"}.get(name := program.rpartition("/")[2], name)
            assert re.search(rf"^{package}\b", setup["options.extras_require"]["test"], re.MULTILINE), program
        else:
            assert (ROOT / program).is_file(), program


def test_hosted_tests_run_on_every_python_by_scripts_that_there_are() -> None:
    jobs = read(".github/workflows/tests.yml")["jobs"]
    assert tuple(jobs["fast"]["strategy"]["matrix"]["python"]) == VERSIONS
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    scripts = [word for line in lines for word in re.findall(r"(?:\./scripts|\.ci|conf)/[\w./-]+", line)]
    assert len(scripts) >= 5
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    assert any(line.endswith(" ".join(SMOKE)) for line in lines), "it runs elsewhere what CI runs on other Pythons"
    (built,) = [line for line in lines if line.startswith("docker build")]
    assert f"pinlater:{version_of_project()} " in built


def test_packages_that_are_kept_new_lie_where_it_says() -> None:
    files = {"pip": "setup.cfg", "npm": "package.json", "gomod": "go.mod", "docker": "Dockerfile"}
    updates = read(".github/dependabot.yml")["updates"]
    for update in updates:
        name = files.get(update["package-ecosystem"])
        for folder in update.get("directories", [update.get("directory")]):
            assert name is None or (ROOT / folder.strip("/") / name).is_file(), update
    assert {"pip", "github-actions"} <= {update["package-ecosystem"] for update in updates}


def test_forms_for_issues_ask_for_something() -> None:
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for form in forms:
        asked = [field for field in yaml.safe_load(form.read_text())["body"] if field["type"] != "markdown"]
        assert any(field.get("validations", {}).get("required") for field in asked)
        assert len({field["id"] for field in asked}) == len(asked)


def test_a_change_is_asked_for_what_the_project_has() -> None:
    text = (GITHUB / "pull_request_template.md").read_text()
    named = re.findall(r"(?:docs/)?[\w./]+\.md|\./scripts/\w+", text)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_files_are_as_the_editor_leaves_them() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = {".py", ".md", ".yaml", ".yml", ".cfg", ".toml", ".lua", ".sql", ".js", ".css", ".thrift", ".sh"}
    bad = []
    for name in listed:
        if name.endswith(".min.js") or name.startswith("tests/packaging/rendered/"):
            continue  # as others' programs wrote them
        path = ROOT / name
        if path.suffix in texts and path.is_file():
            content = path.read_bytes()
            if (
                b"\r\n" in content
                or (content and not content.endswith(b"\n"))
                or re.search(rb"[ \t]$", content, re.MULTILINE)
            ):
                bad.append(name)
    assert bad == []
