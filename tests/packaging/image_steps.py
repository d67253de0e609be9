"""A Dockerfile as its steps, and a builder that carries them out in scratch roots."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.packaging.conftest import ROOT
from tests.packaging.scratch_root import ScratchRoot

DOCKERFILE = ROOT / "conf" / "image" / "Dockerfile"

KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME", "WORKDIR"}


@dataclass(frozen=True)
class Step:
    """One instruction, with what stands behind its word."""

    word: str
    text: str

    @property
    def words(self) -> list[str]:
        """Of the JSON form its members, else what a shell takes for words."""
        return [str(each) for each in json.loads(self.text)] if self.text.startswith("[") else shlex.split(self.text)


@dataclass
class Stage:
    """One FROM, its steps, and what they say about containers of it."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def last(self, word: str) -> Step:
        return [step for step in self.steps if step.word == word][-1]

    @property
    def health_check(self) -> list[str]:
        text = self.last("HEALTHCHECK").text
        return Step("CMD", text[text.index(" CMD ") + len(" CMD ") :]).words

    @property
    def command(self) -> list[str]:
        """What a container runs where nothing else is said."""
        return [*self.last("ENTRYPOINT").words, *self.last("CMD").words]


def stages_of(dockerfile: str) -> list[Stage]:
    """ValueError for an instruction that is not known here."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE)
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        if word not in KNOWN:
            raise ValueError(f"not an instruction that is known here: {line}")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        else:
            stages[-1].steps.append(Step(word, rest.strip()))
    return stages


def context_files(root: Path, ignore: str) -> set[str]:
    """The files of a folder that `.dockerignore` leaves in: the last rule that fits one, or a folder of it, decides."""
    rules = [line for line in ignore.splitlines() if line and not line.startswith("#")]

    def left_in(name: str) -> bool:
        kept = True
        outer = [name, *(str(parent) for parent in Path(name).parents if str(parent) != ".")]
        for rule in rules:
            pattern = rule.lstrip("!")
            anywhere = pattern.removeprefix("**/")
            if any(
                fnmatch(each, pattern) or (pattern != anywhere and fnmatch(Path(each).name, anywhere)) for each in outer
            ):
                kept = rule.startswith("!")
        return kept

    skipped = {".git", ".venv", "node_modules", ".mypy_cache", ".hypothesis"}
    files = (
        path for top in root.iterdir() if top.name not in skipped for path in ([top], top.rglob("*"))[top.is_dir()]
    )
    return {name for path in files if path.is_file() and left_in(name := str(path.relative_to(root)))}


def carry_out(
    stage: Stage, root: ScratchRoot, context: Path, earlier: dict[str, ScratchRoot], arguments: dict[str, str]
) -> dict[str, str]:
    """The steps of a stage, in a root; how a container of it starts: `user` and `folder`."""
    start = {"user": "root", "folder": "/"}
    given: dict[str, str] = {}
    for step in stage.steps:
        match step.word:
            case "ARG":
                name, _, default = step.text.partition("=")
                given[name] = arguments.get(name, default)
            case "COPY":
                copy(step.words, root, context, earlier)
            case "RUN":
                root.run(["sh", "-c", step.text], **start, variables=given)
            case "ENV":
                name, _, value = step.text.partition("=")
                root.variables[name] = value.replace(f"${name}", root.variables.get(name, ""))
            case "USER":
                start["user"] = step.text
            case "WORKDIR":
                start["folder"] = step.text
                root.run(["mkdir", "-p", step.text])
    return start


def copy(words: Sequence[str], root: ScratchRoot, context: Path, earlier: dict[str, ScratchRoot]) -> None:
    *options, source, target = words
    if options:
        root.copy(earlier[options[0].removeprefix("--from=")].path(source), target)
        return
    for name in context_files(context, (context / ".dockerignore").read_text()):
        inside = root.path(f"{target}/{name}")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(context / name, inside)


@contextmanager
def image_of_checkout() -> Iterator[tuple[Stage, ScratchRoot, dict[str, str]]]:
    """The image in a root where this checkout stands in place of what the first stage builds; how it starts."""
    image = stages_of(DOCKERFILE.read_text())[-1]
    image.steps = [step for step in image.steps if step.word != "COPY"]
    with ScratchRoot() as root:
        root.path("/opt").mkdir(exist_ok=True)
        root.path("/opt/pinlater").symlink_to(sys.prefix)
        root.variables["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "workers")))
        yield image, root, carry_out(image, root, ROOT, {}, {})
