"""docs/proof.md follows from what is promised and from the results that were kept."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.parts import SOAKS
from tests.proof.page import PAGE, page
from tests.proof.planted import FAULTS, Fault
from tests.proof.proofs import PROMISES, PROOFS, Proof
from tests.proof.results import Result, results
from tests.proof.run import run
from tests.proof.trial import Trial, planted
from tests.pythons import ROOT

KILLS = Result(name="kills", command="./kill", outcome="held", is_right=True, seconds=94.0, amounts={"tests": 1_200})


def test_the_page_is_what_the_results_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(results()), "`.venv/bin/python -m tests.proof` writes it"


def test_each_promise_of_the_readme_leads_to_what_tries_to_break_it() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    promised = re.findall(r"^\| \[([^\]]+)\]\(docs/proof\.md#([^)]+)\) \|", readme, re.MULTILINE)
    assert promised == [(promise.text, promise.anchor) for promise in PROMISES]


def test_a_result_is_of_a_command_that_is_there_and_each_long_form_has_one() -> None:
    assert results().keys() <= PROOFS.keys()
    assert sorted({name for proof in PROOFS.values() for name in proof.variables}) == sorted(SOAKS)
    for proof in PROOFS.values():
        assert bool(proof.tests) != bool(proof.module), proof.name
        assert all(map(_is_there, proof.tests)), proof.name
        assert not proof.module or importlib.util.find_spec(proof.module[0]), proof.name
        assert bool(proof.shown) == bool(proof.module), proof.name


def _is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).exists() and (not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text())


def test_a_broken_promise_stands_out_on_the_page() -> None:
    broken = Result(name="drill", command="./drill", outcome="one alarm too many", is_right=False, seconds=9_000.0)
    text = page({"kills": KILLS, "drill": broken})
    assert f"of {KILLS.date}: held; 1,200 tests; 94 s. `./kill` at commit `{KILLS.commit}`" in text
    assert "**one alarm too many**; 2.5 hours." in text
    assert "| 0 of 1 that ran |" in text
    assert "| 1 of 1 that ran |" in text


def test_a_result_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    KILLS.record(tmp_path)
    again = Result(name="kills", command="./kill", outcome="a job was lost", is_right=False, seconds=1.0)
    again.record(tmp_path)
    assert results(tmp_path) == {"kills": again}


def test_a_result_says_how_long_it_was_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINLATER_FAILOVERS", "3")
    module = ["tests.thrift_module"]
    proof = Proof(name="idle", tries="", planted="", module=module, shown="./idle", variables=["PINLATER_FAILOVERS"])
    assert run(proof, folder=tmp_path)[0].command == "PINLATER_FAILOVERS=3 ./idle"
    assert run(proof, is_whole=True, folder=tmp_path)[0].command == "PINLATER_FAILOVERS=3 ./idle"
    monkeypatch.delenv("PINLATER_FAILOVERS")
    assert run(proof, is_whole=True, folder=tmp_path)[0].command == "PINLATER_FAILOVERS=20 ./idle"
    assert run(proof, folder=tmp_path)[0].command == "./idle"


def test_what_fails_is_written_down_as_broken(tmp_path: Path) -> None:
    lies = tmp_path / "test_lies.py"
    lies.write_text("def test_one(): assert 0\n")
    module = ["pytest", str(lies), "-p", "no:cacheprovider", "-c", "/dev/null"]
    result, _ = run(Proof(name="lies", tries="", planted="", module=module, shown="./lie"), folder=tmp_path)
    assert (result.is_right, result.command) == (False, "./lie")
    assert "exit code 1" in result.outcome
    assert results(tmp_path)["lies"] == result


def test_each_proof_has_faults_that_it_finds_or_says_how_else_it_is_known() -> None:
    planted = {fault.proof for fault in FAULTS}
    assert planted == {proof.name for proof in PROOFS.values() if not proof.planted}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.guard.what)
def test_a_guard_that_is_taken_out_is_there_and_so_are_the_tests_of_its_proof(fault: Fault) -> None:
    fault.guard.changed((ROOT / fault.path).read_text(encoding="utf-8"))
    proof, (name, *_) = PROOFS[fault.proof], fault.tests
    file, _, test = name.partition("::")
    own = proof.tests or [proof.module[0].replace(".", "/")]
    assert any(Path(file).is_relative_to(each) for each in own)
    assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")
    assert fault.lengths.keys() <= set(proof.variables)


def test_a_fault_is_in_its_file_for_as_long_as_it_is_planted(tmp_path: Path) -> None:
    fault = FAULTS[0]
    file = tmp_path / fault.path
    file.parent.mkdir(parents=True)
    file.write_text(f"before\n{fault.guard.old}\n")
    with planted(fault, tmp_path):
        assert file.read_text() == f"before\n{fault.guard.new}\n"
        with pytest.raises(AssertionError, match="stands 0 times"), planted(fault, tmp_path):
            pass
    assert file.read_text() == f"before\n{fault.guard.old}\n"


def test_a_fault_is_found_by_what_is_said_of_it_and_by_no_other_failure() -> None:
    fault = next(each for each in FAULTS if each.proof == "version_before")
    assert Trial(fault, ["Failed: it serves a store that it must not open: sqlite:///x"], "", 1, 1.0).is_found
    assert not Trial(fault, ["ImportError: no such module"], "", 1, 1.0).is_found
    assert not Trial(fault, [], "", None, 300.0).is_found
