"""The interface file, loaded at run time, and its methods.

The file is shipped inside the package `pinlater.idl`; in a checkout it lies in `thrift/`, beside the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import thriftpy2

from pinlater.wire.header import REPLY, SEQID_BYTES, Protocol, write_header
from pinlater.wire.layout import Layout, Layouts

FILE_NAME = "pinlater.thrift"


def interface_path() -> Path:
    """Where the interface file lies: in this checkout, else in the installed package."""
    beside = Path(__file__).resolve().parents[2] / "thrift" / FILE_NAME
    if beside.is_file():
        return beside
    return Path(str(resources.files("pinlater.idl") / FILE_NAME))


def load() -> ModuleType:
    """The interface as a thriftpy2 module, whose classes any plain thriftpy2 client can use."""
    return thriftpy2.load(str(interface_path()), module_name="pinlater_thrift")


@dataclass(frozen=True, slots=True)
class Signature:
    """One call: what it takes and what it answers (`success` and, for an error, `e`)."""

    name: str
    args: Layout
    others: Layout
    """The arguments without the context."""

    result: Layout
    void: bool
    reply_head: bytes
    """With what an answer in the binary protocol begins; the sequence id follows."""

    bodies: Callable[[Any], list[bytes]] | None = None
    """The bodies in its arguments, where it carries many; TypeError where one is missing."""


def _job_bodies(args: Any) -> list[bytes]:
    return [job.body for job in args.request.jobs]


_BODIES = {"enqueueJobs": _job_bodies}


def _methods(module: ModuleType, layouts: Layouts) -> dict[str, Signature]:
    service = module.PinLater
    methods = {}
    for name in service.thrift_services:
        args = layouts.of(getattr(service, f"{name}_args"), all_required=True)
        result = getattr(service, f"{name}_result")
        methods[name] = Signature(
            name,
            args,
            Layout(args.name, [field for field in args.fields.values() if field.name != "context"], args.cls),
            layouts.of(result),
            void=0 not in result.thrift_spec,
            reply_head=write_header(Protocol.BINARY, REPLY, name, 0)[:-SEQID_BYTES],
            bodies=_BODIES.get(name),
        )
    return methods


MODULE = load()
LAYOUTS = Layouts()
CONTEXT = LAYOUTS.of(MODULE.RequestContext)
SIGNATURES: dict[str, Signature] = _methods(MODULE, LAYOUTS)


def struct(name: str) -> type:
    """The plain class that a struct of the interface is decoded into; a field that was not sent is None."""
    return LAYOUTS.of(getattr(MODULE, name)).cls
