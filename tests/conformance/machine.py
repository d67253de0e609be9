"""A Hypothesis state machine that does the same to a shard and to the reference, and compares all there is to see."""

from __future__ import annotations

from tests.conformance.machine_config_entries import ConfigEntryRules
from tests.conformance.machine_keys import KeyRules
from tests.conformance.machine_listed import ListedRules
from tests.conformance.machine_operators import OperatorRules
from tests.conformance.machine_queries import QueryRules


class ShardMachine(ConfigEntryRules, KeyRules, ListedRules, OperatorRules, QueryRules):
    """All rules, two queues, one shard."""
