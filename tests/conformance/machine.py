"""A Hypothesis state machine that does the same to a shard and to the reference, and compares all there is to see."""

from __future__ import annotations

from tests.conformance.machine_looking import LookingRules
from tests.conformance.machine_operators import OperatorRules
from tests.conformance.machine_records import RecordRules


class ShardMachine(RecordRules, OperatorRules, LookingRules):
    """All rules, two queues, one shard."""
