"""The process of the guided loop: `python -m tests.fuzz.guided_process TARGET FOLDER PLANTED LIBFUZZER'S ARGUMENTS`.

What it imports of the product counts its branches, so nothing of it may be imported before.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["pinlater", "pinlater_workers"], enable_loader_override=False):
    from tests.fuzz.loops import Watch, keep_in
    from tests.fuzz.planted import plant
    from tests.fuzz.quiet import be_quiet
    from tests.fuzz.targets import TARGETS

NATIVE = 0.35
"""Of the changes, those by libFuzzer itself, which knows with what the product has compared a part of an input."""


def main() -> None:
    """It does not come back: the end of the loop is the end of the process."""
    name, folder, planted, *arguments = sys.argv[1:]
    be_quiet()
    if planted != "-":
        plant(planted)
    target = TARGETS[name]
    watch = Watch(target, keep_in(Path(folder)))

    def change(data: bytes, most_bytes: int, seed: int) -> bytes:
        dice = Random(seed)
        if not data or dice.random() < NATIVE:
            return bytes(atheris.Mutate(data, most_bytes))
        return target.change(data, dice)[:most_bytes]

    atheris.Setup([sys.argv[0], *arguments], watch.look_quietly, custom_mutator=change)
    atheris.Fuzz()


main()
