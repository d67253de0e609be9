"""The harness as its authors wrote it, with PinLater among its systems: `PYTHON registered.py --help`.

PYTHON is the one that has the harness's packages. Nothing of the checkout is changed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

SYSTEM = "pinlater"
ROOT = Path(__file__).parents[3]


def register(checkout: str, python: str) -> Any:
    """The harness's program, which knows this adapter now. `python`: the one that has PinLater."""
    sys.path.insert(0, checkout)
    adapters = importlib.import_module("bench_harness.adapters")

    def launch(manifest: Any, overrides: dict[str, str]) -> Any:
        env = adapters._base_env(manifest, overrides) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'workers'}"}
        return adapters.LaunchSpec(argv=[python, "-m", "tests.bench.harness.adapter"], env=env, cwd=str(ROOT))

    adapters.ADAPTERS[SYSTEM] = adapters.AdapterEntry(Path(__file__).parent, lambda skip: None, launch)
    return importlib.import_module("bench_harness.orchestrator")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: PYTHON registered.py --checkout ../harness --python .venv/bin/python "
        "run --systems pinlater --scenario chaos_crash_recovery --replicas 2 --producer-rate 300",
    )
    parser.add_argument("--checkout", required=True, metavar="DIR", help="of the harness")
    parser.add_argument("--python", required=True, metavar="FILE", help="the Python that has PinLater")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="those of the harness's own command line")
    options = parser.parse_args()
    sys.argv = ["bench", *options.words]
    return int(register(options.checkout, options.python).main(options.words))


if __name__ == "__main__":
    sys.exit(main())
