"""The classes that the Go kit carries are those that its script makes of the interface file now."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.kits.go_interface import CALLS, FOLDER, INTERFACE, trimmed, written


def test_the_go_kit_carries_what_the_script_writes_now() -> None:
    if shutil.which("thrift") is None:
        pytest.fail("thrift is not installed: apt-get install thrift-compiler", pytrace=False)
    carried = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    now = written(INTERFACE.read_text(encoding="utf-8"))
    changed = sorted(name for name in carried.keys() | now.keys() if carried.get(name) != now.get(name))
    assert changed == [], "python -m tests.kits.go_interface writes them anew"


def test_what_is_kept_is_whole() -> None:
    """Each definition with its comments, word for word; each call; and no type that is named and not there."""
    interface = INTERFACE.read_text(encoding="utf-8")
    kept = trimmed(interface)
    definitions = kept.partition("namespace go wire\n")[2].split("\n\n")
    changed = [each for each in definitions if each.strip().removesuffix("\n}") not in interface]
    assert changed == []
    in_order = sorted(CALLS, key=lambda name: interface.index(f" {name}(1:"))
    assert re.findall(r"(\w+)\(1: RequestContext context", kept) == in_order


def test_a_call_that_is_not_there_is_an_error() -> None:
    interface = INTERFACE.read_text(encoding="utf-8").replace("heartbeatJobs(", "beatJobs(")
    with pytest.raises(ValueError, match="no method heartbeatJobs"):
        trimmed(interface)
