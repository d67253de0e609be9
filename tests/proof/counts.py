"""How many tests pytest ran, and what became of them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """Tests of a part, as pytest wrote them down."""

    items: int = 0
    failed: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, report: Path) -> Counts:
        """Those of a report; none where pytest came to no report."""
        if not report.is_file():
            return cls()
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))

        def total(*names: str) -> int:
            return sum(int(suite.get(name, "0")) for suite in suites for name in names)

        return cls(total("tests"), total("failures", "errors"), total("skipped"))
