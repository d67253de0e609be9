"""How many cases ran on each store, bare and through the chain; a whole run with an empty cell fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.bindings import DEPTHS, KINDS, Binding

SERVICES = {"served", "servers", "tight", "fleeting", "outage", "alone"}
HERE = Path(__file__).parent


class Cells:
    """Counts of cases that ran, by store and depth."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, item: pytest.Item) -> None:
        spec = getattr(item, "callspec", None)
        if spec is None:
            return
        binding = next((value for value in spec.params.values() if isinstance(value, Binding)), None)
        if binding is not None:
            self.counts[binding.kind, spec.params.get("depth", self._depth(item))] += 1

    def _depth(self, item: pytest.Item) -> str:
        """A service sees its shards through the chain."""
        return "chain" if SERVICES & set(getattr(item, "fixturenames", ())) else "bare"

    def empty(self, without: Sequence[str]) -> list[tuple[str, str]]:
        """The cells in which nothing ran, but for stores that were left out on purpose."""
        return [
            (kind, depth) for kind in KINDS for depth in DEPTHS if kind not in without and not self.counts[kind, depth]
        ]

    def table(self, without: Sequence[str] = ()) -> str:
        lines = ["{:<10}".format("") + "".join(f"{depth:>10}" for depth in DEPTHS)]
        for kind in KINDS:
            nothing = "left out" if kind in without else "EMPTY"
            lines.append(f"{kind:<10}" + "".join(f"{self.counts[kind, depth] or nothing:>10}" for depth in DEPTHS))
        return "\n".join(lines) + "\n"


def suite_is_whole(session: pytest.Session) -> bool:
    """Whether the whole suite was asked for and ran to its end: no -k, -m, single file or early stop."""
    config = session.config
    if config.option.keyword or config.option.markexpr or config.option.collectonly or session.shouldstop:
        return False
    asked = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    return any(path == HERE or path in HERE.parents for path in asked)
