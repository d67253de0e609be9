"""The table of docs/workers-retries.md, from the policies themselves: `python -m pinlater_workers.retry_table`."""

from __future__ import annotations

from pinlater.durations import seconds_text
from pinlater_workers.jobs.retry import delays
from pinlater_workers.jobs.retry_text import parse_policy

SHOWN = (
    "default",
    "constant delay=30s",
    "linear step=10s",
    "exponential first=1s",
    "exponential first=1m factor=3 retries=6",
    "delays 1s 5s 1m",
    "never",
)


def table() -> str:
    return "| policy | attempts | delays | all in all |\n| --- | --- | --- | --- |\n" + "".join(map(_row, SHOWN))


def _row(text: str) -> str:
    policy = parse_policy(text)
    waits = delays(policy, policy.retries + 1)
    shown = " ".join(seconds_text(wait) for wait in waits) or "-"
    return f"| `{text}` | {len(waits) + 1} | {shown} | {seconds_text(sum(waits))} |\n"


if __name__ == "__main__":
    print(table(), end="")
