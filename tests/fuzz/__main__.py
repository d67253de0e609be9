"""The command: `python -m tests.fuzz [TARGET...] --minutes N --seed S`. docs/testing.md (Fuzzing)."""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.faults import Fault, Judge
from tests.fuzz.live import LIVE, replay_live, run_live
from tests.fuzz.loops import Tally, can_be_guided, guided, plain
from tests.fuzz.quiet import be_quiet
from tests.fuzz.targets import TARGETS
from tests.proof.results import FOLDER, Result

FOUND = Path(__file__).parent / "found"
SAID_EVERY_S = 10.0


def replayed(path: Path, target: str = "") -> Fault | None:
    """What is wrong with the input in a file, which is in a folder of its target's name unless one is given."""
    name = target or path.parent.name
    if name == LIVE:
        return replay_live(path.read_bytes())
    one = TARGETS[name]
    with one.open() as run:
        return Judge(one, run).fault(path.read_bytes())


def _kept(faults: Sequence[Fault], folder: Path) -> list[str]:
    """Writes the inputs, and says of each what it does and how to see it again."""
    lines = []
    for fault in faults:
        path = folder / fault.target / fault.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fault.data)
        last = fault.text.strip().splitlines()[-1][:300]
        lines.append(f"{fault.target}: {fault.kind}\n  {last}\n  python -m tests.fuzz --replay {path}")
    return lines


class _Progress:
    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, tally: Tally) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + SAID_EVERY_S
            print(tally.line(), flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers of the product.")
    names = [*TARGETS, LIVE]
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, unless named: {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (default: 1)")
    parser.add_argument("--executions", type=int, default=0, help="of each target, in place of --minutes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31), help="of the changes")
    parser.add_argument("--plain", action="store_true", help="by chance alone, also where atheris is installed")
    parser.add_argument("--corpus", type=Path, help="a folder where inputs of use are kept from run to run")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="where inputs of faults are written")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input that was found, and end")
    parser.add_argument("--record", action="store_true", help="write down what came of it for docs/proof.md")
    options = parser.parse_args(arguments)
    if unknown := set(options.targets) - set(names):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    options.targets = options.targets or names
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    be_quiet()
    if options.replay is not None:
        if options.replay.parent.name not in (*TARGETS, LIVE):
            print(f"{options.replay} is in no folder of a target: {', '.join((*TARGETS, LIVE))}", file=sys.stderr)
            return 2
        fault = replayed(options.replay)
        print("nothing is wrong with it" if fault is None else f"{fault.kind}\n{fault.text}")
        return int(fault is not None)
    is_guided = can_be_guided() and not options.plain
    print(f"seed {options.seed}, {'by coverage (atheris)' if is_guided else 'by chance alone'}", flush=True)
    tallies = [_run(name, options, is_guided) for name in options.targets]
    faults = [each for tally in tallies for each in tally.faults]
    print()
    for tally in tallies:
        print(tally.line())
    for text in _kept(faults, options.found):
        print(text)
    if options.record:
        _record(options, tallies, faults, is_guided)
    return int(bool(faults))


def _run(name: str, options: argparse.Namespace, is_guided: bool) -> Tally:
    progress = _Progress()
    seconds = 0 if options.executions else round(options.minutes * 60)
    if name == LIVE:
        return run_live(options.seed, progress, seconds=seconds, executions=options.executions)
    target = TARGETS[name]
    if not is_guided:
        return plain(target, options.executions, options.seed, progress, seconds)
    corpus = options.corpus / name if options.corpus else None
    return guided(target, options.seed, progress, seconds=seconds, executions=options.executions, corpus=corpus)


def _record(options: argparse.Namespace, tallies: Sequence[Tally], faults: Sequence[Fault], is_guided: bool) -> None:
    amount = f"--executions {options.executions}" if options.executions else f"--minutes {options.minutes:g}"
    named = " ".join(options.targets) if len(options.targets) <= len(TARGETS) else ""
    words = f"python -m tests.fuzz {named} {amount} --seed {options.seed}{'' if is_guided else ' --plain'}"
    amounts = {"targets": len(tallies), "executions": sum(each.executions for each in tallies)}
    amounts |= {f"executions of {each.target}": each.executions for each in tallies}
    amounts |= {"branches seen": sum(each.coverage for each in tallies), "kinds of fault": len(faults)}
    kinds = "; ".join(f"{each.target}: {each.kind}" for each in faults)
    FOLDER.mkdir(exist_ok=True)
    path = Result(
        name="fuzz",
        command=" ".join(shlex.split(words)),
        outcome=kinds or "every input was taken, or refused as documented, and nobody beside it was disturbed",
        is_right=not faults,
        seconds=round(sum(each.seconds for each in tallies), 1),
        amounts=amounts,
    ).record()
    print(f"written: {path}")


if __name__ == "__main__":
    sys.exit(main())
