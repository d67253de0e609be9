"""The chart of docs/fairness.md, docs/images/fairness.svg: `python -m tests.bench.fairness_chart` measures it anew.

One tenant has put 2,000 jobs of 10 ms into a queue with 10 slots (SQLite); another one brings 40 jobs, 20 a second. The
chart shows how long each of these waits: without groups, and with a group for each tenant.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.processes import Program, served

CHART = Path(__file__).parents[2] / "docs" / "images" / "fairness.svg"
FLOOD, JOBS, PER_S, SLOTS, RUN_MS = 2_000, 40, 20, 10, 10
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 480, 240, 56, 36, 34
TITLE = (
    "How long the jobs of a calm tenant wait beside the flood of another: seconds without groups, and hardly with them."
)
_STYLE = """
.ground { fill: #ffffff; stroke: #d4d8e0 } text { fill: #1d2433; font: 12px system-ui, sans-serif }
.axis { stroke: #75809a } .without { stroke: #c62828; fill: none; stroke-width: 2 }
.with { stroke: #4051b5; fill: none; stroke-width: 2 } .quiet { fill: #4b566e }
@media (prefers-color-scheme: dark) {
.ground { fill: #1e2129; stroke: #3a4050 } text { fill: #e6e9f2 } .axis { stroke: #8b95ab }
.without { stroke: #ff8a80 } .with { stroke: #8c9eff } .quiet { fill: #c3cada }
}"""


def waits(apart: str) -> Sequence[float]:
    """In milliseconds, in the order in which the jobs were handed out."""
    with tempfile.TemporaryDirectory() as folder, served([f"sqlite:///{folder}/jobs.db"], 1) as server:
        load = Program(
            "slots_client",
            server=server.address,
            slots=SLOTS,
            run_ms=RUN_MS,
            flood=FLOOD,
            jobs=JOBS,
            warm_up=0,
            per_s=PER_S,
            apart=apart,
        )
        load.go()
        found: Sequence[float] = load.result()["ms"]
    return found


def line(values: Sequence[float], most: float, name: str) -> str:
    across, up = (WIDTH - LEFT - 16) / (JOBS - 1), (HEIGHT - BOTTOM - TOP) / most
    points = " ".join(f"{LEFT + at * across:.1f},{HEIGHT - BOTTOM - ms * up:.1f}" for at, ms in enumerate(values))
    return f'<polyline class="{name}" points="{points}"/>'


def chart(without: Sequence[float], grouped: Sequence[float]) -> str:
    """As SVG."""
    most = max(without)
    base, end = HEIGHT - BOTTOM, WIDTH - 16
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
            f' height="{HEIGHT}" role="img">\n<title>{TITLE}</title>\n<style>{_STYLE}</style>',
            f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
            f'<path class="axis" d="M{LEFT} {TOP}V{base}H{end}" fill="none"/>',
            f'<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end">{most / 1000:.1f} s</text>',
            f'<text x="{LEFT - 6}" y="{base + 4}" text-anchor="end">0</text>',
            f'<text class="quiet" x="{LEFT}" y="{HEIGHT - 14}">the first job</text>',
            f'<text class="quiet" x="{end}" y="{HEIGHT - 14}" text-anchor="end">job {JOBS}</text>',
            f'<text x="{end}" y="20" text-anchor="end">its wait behind {FLOOD:,} jobs of another tenant</text>',
            line(without, most, "without"),
            line(grouped, most, "with"),
            f'<text x="{LEFT + 210}" y="{TOP + 24}">without groups: {max(without) / 1000:.1f} s at most</text>',
            f'<text x="{LEFT + 150}" y="{base - 12}">with groups: {max(grouped):.0f} ms at most</text>',
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    CHART.write_text(chart(waits("nothing"), waits("groups")), encoding="utf-8")
