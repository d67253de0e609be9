"""The earlier path of `Action` and `Outcome`, which programs import from `pinlater_workers` now. It stays."""

from __future__ import annotations

from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Outcome

Verdict = Outcome

__all__ = ["SUCCEEDED", "Action", "Outcome", "Verdict"]
