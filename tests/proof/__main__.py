"""Write docs/proof.md from the results that were kept; or run commands first that try to break a promise."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.proof.page import PAGE, page
from tests.proof.proofs import PROOFS
from tests.proof.results import results
from tests.proof.run import run

EXAMPLES = """
examples:
  python -m tests.proof                       write docs/proof.md from the results that were kept
  python -m tests.proof run kills drill       run two of them, one after the other, and write the page
  python -m tests.proof run kills --whole     as before a release: for hours
  PINLATER_KILL_ROUNDS=50 python -m tests.proof run kills    or for a while
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="run")
    running = commands.add_parser("run", help="run some, write their results down, and write the page")
    running.add_argument("names", nargs="+", choices=list(PROOFS), metavar="NAME", help=", ".join(PROOFS))
    running.add_argument("--whole", action="store_true", help="for as long as before a release")
    options = parser.parse_args(arguments)
    if lacking := next(filter(None, (PROOFS[name].lacks for name in getattr(options, "names", ()))), ""):
        parser.error(lacking)
    broken = []
    for name in getattr(options, "names", ()):
        result, _ = run(PROOFS[name], is_whole=options.whole)
        print(f"{name}: {result.outcome}", flush=True)
        broken += [] if result.is_right else [name]
    PAGE.write_text(page(results()), encoding="utf-8")
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
