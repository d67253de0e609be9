"""The grammar by which thriftpy2 reads the interface file: it stands in docstrings, which `python -OO` leaves out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

_MODULES = ("thriftpy2.parser.lexer", "thriftpy2.parser.parser")


@contextmanager
def with_grammar() -> Iterator[None]:
    """What imports thriftpy2 in this block gets its grammar, also under -OO."""
    if sys.flags.optimize < 2:
        yield
        return
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self.get_data(self.path), self.path, "exec", dont_inherit=True, optimize=0)
        return code


class _Finder:
    """An entry of `sys.meta_path`."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _MODULES else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec
