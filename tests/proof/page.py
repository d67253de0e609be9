"""docs/proof.md: each promise, the commands that try to break it, and what came of each the last time."""

from __future__ import annotations

from collections.abc import Mapping

from tests.proof.planted import FAULTS
from tests.proof.proofs import PROMISES, SINCE, Promise, Proof
from tests.proof.results import Result
from tests.pythons import ROOT

PAGE = ROOT / "docs" / "proof.md"
HEAD = f"""# What tries to break the promises
Each promise of this project has commands that try to break it.
This page says of each what it does, how it went the last time, and what it has found.
Where no result was kept, the command was not run to its end, or before results were kept.

    .venv/bin/python -m tests.proof run kills drill     # run these two, and write down what came of it
    .venv/bin/python -m tests.proof run kills --whole   # for as long as before a release: hours
    .venv/bin/python -m tests.proof planted limits      # plant faults, and see that the proof fails with each
    .venv/bin/python -m tests.proof                     # write this page from the results

Faults that were found before {SINCE} were mended then, and are not listed.
"""


def page(recorded: Mapping[str, Result]) -> str:
    """The whole page, of the results by name."""
    rows = ["| promise | commands | held the last time | found |", "| --- | --- | --- | --- |"]
    rows += [_row(promise, recorded) for promise in PROMISES]
    parts = [_part(promise, recorded) for promise in PROMISES]
    return "\n".join([HEAD, *rows, "", *parts]).rstrip() + "\n"


def _row(promise: Promise, recorded: Mapping[str, Result]) -> str:
    known = [recorded[proof.name] for proof in promise.proofs if proof.name in recorded]
    held = f"{sum(each.is_right for each in known)} of {len(known)} that ran" if known else ""
    found = sum(len(proof.found) for proof in promise.proofs)
    return f"| [{promise.text}](#{promise.anchor}) | {len(promise.proofs)} | {held} | {found or ''} |"


def _part(promise: Promise, recorded: Mapping[str, Result]) -> str:
    lines = [f"## {promise.heading}", f"**{promise.text}.**", ""]
    for proof in promise.proofs:
        lines += [f"### {proof.name}", proof.tries, "", f"    {proof.command}", "", *_said(proof, recorded), ""]
    if promise.open:
        lines += ["**Never tried:**", "", *(f"- {text}" for text in promise.open), ""]
    return "\n".join(lines)


def _said(proof: Proof, recorded: Mapping[str, Result]) -> list[str]:
    result = recorded.get(proof.name)
    lines = ["- The last result: none was kept." if result is None else f"- {_last(result)}"]
    if proof.longer:
        variables = " ".join(f"{name}={value}" for name, value in proof.longer.items())
        lines.append(f"- Before a release with `{variables}`.")
    lines.append(f"- That it can find something: {proof.planted or _planted(proof)}.")
    lines += [f"- Found: {text}" for text in proof.found]
    return lines


def _planted(proof: Proof) -> str:
    """The faults of which each makes it fail."""
    faults = "; ".join(fault.guard.what for fault in FAULTS if fault.proof == proof.name)
    return f"it fails with each fault of `python -m tests.proof planted {proof.name}`: {faults}"


def _last(result: Result) -> str:
    outcome = result.outcome if result.is_right else f"**{result.outcome}**"
    said = [
        outcome.rstrip("."),
        *(_amount(what, amount) for what, amount in result.amounts.items()),
        _duration(result.seconds),
    ]
    return (
        f"The last result, of {result.date}: {'; '.join(said)}. "
        f"`{result.command}` at commit `{result.commit}`, {result.machine}; {result.load}."
    )


def _amount(what: str, amount: float | str) -> str:
    return f"{what}: {amount}" if isinstance(amount, str) else f"{amount:,} {what}"


def _duration(seconds: float) -> str:
    """
    >>> _duration(94), _duration(600), _duration(9000)
    ('94 s', '10 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
