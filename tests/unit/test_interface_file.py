"""What is read of the interface file, beside what a parser of the whole language finds in it."""

from __future__ import annotations

from typing import Any

import pytest
from thriftpy2.thrift import TType

from pinlater.wire.interface_file import FieldSpec, interface_path, read_interface
from tests.thrift_module import MODULE

INTERFACE = read_interface(interface_path().read_text(encoding="utf-8"))
WORDS = {getattr(TType, name.upper()): name for name in ("bool", "byte", "double", "i16", "i64", "string", "binary")}
OUTER = {TType.LIST: "list", TType.SET: "set"}


def written(ttype: int, inner: Any = None) -> str:
    """A type of thriftpy2, as the file has it. Of an enum it knows no more than that it is a number."""
    if ttype == TType.I32:
        return "i32"
    if ttype == TType.STRUCT:
        return str(inner.__name__)
    parts = [each if isinstance(each, tuple) else (each,) for each in (inner if ttype == TType.MAP else [inner])]
    if ttype == TType.MAP:
        return f"map<{', '.join(written(*each) for each in parts)}>"
    return f"{OUTER[ttype]}<{written(*parts[0])}>" if ttype in OUTER else WORDS[ttype]


def plain(type_text: str) -> str:
    """With i32 for each enum."""
    for name in INTERFACE.enums:
        type_text = type_text.replace(f"<{name}>", "<i32>").replace(f", {name}>", ", i32>")
    return "i32" if type_text in INTERFACE.enums else type_text


def theirs(cls: Any) -> set[tuple[object, ...]]:
    defaults = dict(cls.default_spec)
    return {
        (number, name, written(ttype, *more[:-1]), more[-1], defaults[name])
        for number, (ttype, name, *more) in cls.thrift_spec.items()
    }


def ours(fields: list[FieldSpec]) -> set[tuple[object, ...]]:
    return {(each.id, each.name, plain(each.type), each.is_required, each.default) for each in fields}


def test_structs_have_the_fields_types_and_defaults_that_thriftpy2_finds() -> None:
    found = {name for name, each in vars(MODULE).items() if hasattr(each, "thrift_spec")}
    assert found == set(INTERFACE.structs)
    for name, fields in INTERFACE.structs.items():
        assert ours(fields) == theirs(getattr(MODULE, name)), name


def test_enums_and_methods_are_those_that_thriftpy2_finds() -> None:
    for name, members in INTERFACE.enums.items():
        assert members == getattr(MODULE, name)._NAMES_TO_VALUES
    assert list(INTERFACE.methods) == MODULE.PinLater.thrift_services
    for name, method in INTERFACE.methods.items():
        assert ours(method.args) == theirs(getattr(MODULE.PinLater, f"{name}_args"))
        assert ours(method.result) == theirs(getattr(MODULE.PinLater, f"{name}_result"))


@pytest.mark.parametrize("text", ["union Odd { 1: i32 x }", "struct A { one: i32 x }", "service S { void f() }"])
def test_what_the_reader_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pinlater\.thrift has what is not known here"):
        read_interface(text)
