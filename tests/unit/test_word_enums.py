"""Values of the model's enums: words in texts, numbers everywhere else."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import pkgutil
from enum import IntEnum

import msgspec
import pytest

import pinlater.model
from pinlater import JobState
from pinlater.model.job_selection import JobPhase

for each in pkgutil.iter_modules(pinlater.model.__path__, "pinlater.model."):
    importlib.import_module(each.name)

_DIRECT = IntEnum.__subclasses__()
_ALL = [*_DIRECT, *(below for kind in _DIRECT for below in kind.__subclasses__())]
ENUMS = [kind for kind in _ALL if kind.__module__.startswith("pinlater.model.") and len(kind)]
VALUES = [pytest.param(value, id=f"{kind.__name__}.{value.name}") for kind in ENUMS for value in kind]


def test_all_enums_of_the_model_are_looked_at() -> None:
    assert len(ENUMS) >= 16
    assert {"JobState", "CancelOutcome", "ItemState", "Misfire", "JobAction"} <= {kind.__name__ for kind in ENUMS}


@pytest.mark.parametrize("value", VALUES)
def test_a_value_reads_as_its_word(value: IntEnum) -> None:
    word = value.word if isinstance(value, JobPhase) else value.name.lower()
    assert (str(value), f"{value}", "%s" % value, f"{value:>20}") == (word, word, word, word.rjust(20))  # noqa: UP031


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_its_number_to_programs(value: IntEnum) -> None:
    number = int(value)
    assert (value, value + 1, hash(value), value < number + 1) == (number, number + 1, hash(number), True)
    assert (f"{value:d}", f"{value:02x}") == (f"{number}", f"{number:02x}")
    assert repr(value) == f"<{type(value).__name__}.{value.name}: {number}>"
    assert json.dumps({"is": value, "in": [value]}) == f'{{"is": {number}, "in": [{number}]}}'
    assert msgspec.json.encode([value]) == f"[{number}]".encode()
    assert pickle.loads(pickle.dumps(value)) is copy.deepcopy(value) is value


def test_a_state_that_is_printed_can_be_read() -> None:
    assert f"the job is {JobState.IN_PROGRESS}" == "the job is in_progress"
    assert f"the job is {JobPhase.IN_PROGRESS}" == "the job is running"
