"""Write docs/proof.md from the results that were kept; or run commands first that try to break a promise."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence

from tests.proof.page import PAGE, page
from tests.proof.planted import FAULTS
from tests.proof.proofs import PROOFS
from tests.proof.results import results
from tests.proof.run import run
from tests.proof.trial import checkout, planted
from tests.proof.trial import run as try_to_find

EXAMPLES = """
examples:
  python -m tests.proof                       write docs/proof.md from the results that were kept
  python -m tests.proof run kills drill       run two of them, one after the other, and write the page
  python -m tests.proof run kills --whole     as before a release: for hours
  PINLATER_KILL_ROUNDS=50 python -m tests.proof run kills    or for a while
  python -m tests.proof planted               take one guard after the other out of a copy of the checkout: each proof
                                              must fail without each of its own
  python -m tests.proof planted limits kits   those of two proofs
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="{run,planted}", dest="command")
    running = commands.add_parser("run", help="run some, write their results down, and write the page")
    running.add_argument("names", nargs="+", choices=list(PROOFS), metavar="NAME", help=", ".join(PROOFS))
    running.add_argument("--whole", action="store_true", help="for as long as before a release")
    planting = commands.add_parser("planted", help="show that some find something: take out what they prove")
    of_faults = list(dict.fromkeys(fault.proof for fault in FAULTS))
    planting.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(of_faults)} [all of these]")
    planting.add_argument("--intact", action="store_true", help="take nothing out: the same tests must pass")
    options = parser.parse_args(arguments)
    if options.command == "planted":
        if strangers := set(options.names) - set(of_faults):
            planting.error(f"no fault is planted for {', '.join(sorted(strangers))}; allowed: {', '.join(of_faults)}")
        return plant(options.names or of_faults, is_intact=options.intact)
    if lacking := next(filter(None, (PROOFS[name].lacks for name in getattr(options, "names", ()))), ""):
        parser.error(lacking)
    broken = []
    for name in getattr(options, "names", ()):
        result, _ = run(PROOFS[name], is_whole=options.whole)
        print(f"{name}: {result.outcome}", flush=True)
        broken += [] if result.is_right else [name]
    PAGE.write_text(page(results()), encoding="utf-8")
    return int(bool(broken))


def plant(names: Sequence[str], *, is_intact: bool) -> int:
    """0 where each fault of these proofs is found; `is_intact`: where each of their tests passes without one."""
    wrong = 0
    with checkout() as folder:
        for fault in (each for each in FAULTS if each.proof in names):
            with contextlib.nullcontext() if is_intact else planted(fault, folder):
                trial = try_to_find(fault, folder)
            is_right = trial.has_passed if is_intact else trial.is_found
            print(trial.line(was_intact=is_intact), *([] if is_right else [trial.said]), sep="\n", flush=True)
            wrong += not is_right
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
