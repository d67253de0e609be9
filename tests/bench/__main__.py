"""How fast this is, beside a floor and a yardstick of the same run: `scripts/bench --help`.

Clients, servers, workers and stores are separate processes on this machine's cores, as in life. A floor is the same
statements or scripts called directly by one client, with no server in between. The yardstick of the machine is
`redis-benchmark -P 16` SET, taken before and after each measure: by it, figures are scaled to a quiet machine, on which
it says 1.3 million. Machines are noisy: trust ratios of one round, and figures that are scaled.
"""

from __future__ import annotations

import argparse

from tests.bench.figures import Figure, keep, table
from tests.bench.measures import NAMES, measure_of, what_is
from tests.bench.run import Run, Sizes


def _parser() -> argparse.ArgumentParser:
    measures = "\n".join(f"  {name:18} {what_is(name)}" for name in NAMES)
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        epilog=f"measures:\n{measures}\n\nexamples:\n  scripts/bench\n  scripts/bench cycle --rounds 5 --json b.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("measure", nargs="*", metavar="MEASURE", help="only these; all without one")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured [3]")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the usual number of jobs [1.0]")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    return parser


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    unknown = [name for name in options.measure if name not in NAMES]
    if unknown:
        parser.error(f"no such measure: {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    figures: list[Figure] = []
    with Run(Sizes(options.rounds, options.scale)) as run:
        for name in options.measure or NAMES:
            run.say(f"{name}: {what_is(name)}")
            figures += run.measured(measure_of(name))
            keep(figures, options.json)
    print(table(figures))


if __name__ == "__main__":
    main()
