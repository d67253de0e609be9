"""Each planted fault is found by its proof: one run of that, on a copy of the checkout, for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.planted import FAULTS, Fault
from tests.proof.trial import checkout, planted, run


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with checkout() as copied:
        yield copied


def parameter(fault: Fault) -> object:
    return pytest.param(fault, id=f"{fault.proof}: {fault.guard.what}", marks=[*map(pytest.mark.store, fault.needs)])


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(map(parameter, FAULTS)))
def test_each_fault_is_found_by_its_proof(fault: Fault, folder: Path) -> None:
    with planted(fault, folder):
        trial = run(fault, folder)
    assert trial.is_found, f"{trial.line()}\n{trial.said}"
