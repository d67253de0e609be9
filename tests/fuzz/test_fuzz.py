"""Each target for some executions, faults that are planted and must be found, and inputs that were found once."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.__main__ import FOUND, main, replayed
from tests.fuzz.faults import Judge
from tests.fuzz.live import run_live
from tests.fuzz.loops import guided, plain
from tests.fuzz.planted import PLANTED, planted
from tests.fuzz.quiet import quiet
from tests.fuzz.targets import TARGETS

EXECUTIONS = int(os.environ.get("PINLATER_FUZZ_EXECUTIONS", "1500"))
"""Of each target, the same ones in each run; `--release` runs the command, which makes others each time."""

HAS_WHEEL = sys.version_info < (3, 14) and sys.platform == "linux" and platform.machine() == "x86_64"
LIVE_EXECUTIONS = 300
PLANTED_EXECUTIONS = 8_000
GUIDED_EXECUTIONS = 3_000
SEED = 1
FILES = sorted(path for path in FOUND.glob("*/*") if path.suffix != ".md")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_of_each_target_are_taken_or_refused_as_documented(name: str) -> None:
    tally = plain(TARGETS[name], EXECUTIONS, SEED)
    assert tally.executions == EXECUTIONS
    assert not tally.faults, "\n".join(f"{each.kind}: {each.data!r}\n{each.text}" for each in tally.faults)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_valid(name: str) -> None:
    """Of the parsers; a service also refuses what is well written, and says so in its answer."""
    target = TARGETS[name]
    with target.open() as run:
        judge = Judge(target, run)
        assert [each for each in target.seeds() if judge.fault(each) is not None] == []
    assert judge.refused == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once_is_mended(path: Path) -> None:
    assert replayed(path) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name) as fault:
        tally = plain(TARGETS[fault.target], PLANTED_EXECUTIONS, SEED, until=fault.kind)
    assert [each.kind for each in tally.faults if fault.kind in each.kind], [each.kind for each in tally.faults]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_WHEEL, reason="atheris has no wheel for this Python or this machine")
def test_the_loop_with_coverage_sees_branches_and_finds_a_planted_fault() -> None:
    fault = PLANTED["negative length"]
    tally = guided(
        TARGETS[fault.target], SEED, lambda tally: None, executions=GUIDED_EXECUTIONS, planted="negative length"
    )
    assert tally.coverage > 100
    assert [each.kind for each in tally.faults if fault.kind in each.kind], [each.text for each in tally.faults]


@pytest.mark.slow
def test_a_real_server_answers_and_a_steady_caller_is_served() -> None:
    tally = run_live(SEED, executions=LIVE_EXECUTIONS)
    assert tally.executions == LIVE_EXECUTIONS
    assert not tally.faults, "\n".join(f"{each.kind}: {each.data!r}\n{each.text}" for each in tally.faults)


def test_the_same_seed_makes_the_same_inputs() -> None:
    target = TARGETS["thrift-calls"]
    seeds = list(target.seeds())

    def made(seed: int) -> list[bytes]:
        dice = Random(seed)
        return [target.change(dice.choice(seeds), dice) for _ in range(200)]

    assert made(7) == made(7)
    assert made(7) != made(8)


def test_the_command_names_a_fault_and_how_to_see_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with planted("unread entry"):
        code = main(["stored-entries", "--plain", "--executions", "3000", "--seed", "1", "--found", str(tmp_path)])
        path, *_ = (tmp_path / "stored-entries").iterdir()
        out = capsys.readouterr().out
        assert code == 1
        assert f"--replay {path}" in out
        assert "a shard's use raises" in out
        assert main(["--replay", str(path)]) == 1
    assert main(["--replay", str(path)]) == 0
