"""A program that takes the jobs of a product without workers: `python -m tests.bench.peers.consume --help`.

Runs in the environment of the product, until it is ended.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from inspect import iscoroutinefunction

import uvloop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--product", required=True)
    consume = import_module(f"tests.bench.peers.on_{parser.parse_args().product}").consume
    if iscoroutinefunction(consume):
        uvloop.run(consume())
    else:
        consume()


if __name__ == "__main__":
    main()
