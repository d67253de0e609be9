"""Models of pydantic as arguments: written as plain values, made again where the job runs."""

from __future__ import annotations

import enum
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

import pydantic
import pytest

from pinlater_workers import App, ArgumentsInvalid, ConfigurationError
from pinlater_workers.envelope import Encoding, read_envelope
from pinlater_workers.jobs.job_type import JobType

ENCODINGS: list[Encoding] = ["json", "msgpack"]
ItemT = TypeVar("ItemT")


class Colour(enum.Enum):
    RED = "red"


class Line(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)

    sku: str
    price: Decimal
    due: date
    tags: tuple[str, ...] = ()


class Order(pydantic.BaseModel):
    id: UUID
    placed_at: datetime = pydantic.Field(alias="placedAt")
    lines: list[Line]
    wait: timedelta = timedelta(0)
    colour: Colour | None = None


class Page(pydantic.BaseModel, Generic[ItemT]):
    items: list[ItemT]


class Tags(pydantic.RootModel[list[str]]):
    pass


@dataclass
class Parcel:
    order: Order
    weight: float


LINE = Line(sku="a-1", price=Decimal("9.90"), due=date(2026, 12, 24), tags=("new", "blue"))
ORDER = Order(
    id=UUID(int=7),
    placedAt=datetime(2026, 11, 23, 8, 30, tzinfo=UTC),
    lines=[LINE, LINE],
    wait=timedelta(seconds=90),
    colour=Colour.RED,
)


def ship(order: Order, *lines: Line, page: Page[Line] | None = None, tags: Tags | None = None) -> None: ...


def pack(parcel: Parcel, by_name: dict[str, Line]) -> None: ...


def job(function: Any, encoding: Encoding = "json") -> JobType:
    return App().job(queue="q", encoding=encoding)(function)


def arrived(job_type: JobType, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a worker makes of the body that a caller makes of these."""
    envelope = read_envelope(job_type.body(*args, **kwargs))
    assert envelope is not None
    return job_type.arguments(envelope)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_models_arrive_as_they_were_given(encoding: Encoding) -> None:
    given = {"page": Page[Line](items=[LINE]), "tags": Tags(["x"])}
    assert arrived(job(ship, encoding), ORDER, LINE, **given) == ((ORDER, LINE), given)
    assert arrived(job(pack, encoding), Parcel(ORDER, 1.5), {"a": LINE}) == ((Parcel(ORDER, 1.5), {"a": LINE}), {})
    assert arrived(job(ship, encoding), ORDER, page=None) == ((ORDER,), {"page": None})


def test_a_body_has_what_any_language_can_write() -> None:
    envelope = read_envelope(job(ship).body(ORDER))
    assert envelope is not None
    line = {"sku": "a-1", "price": "9.90", "due": "2026-12-24", "tags": ["new", "blue"]}
    assert envelope.args == [
        {
            "id": "00000000-0000-0000-0000-000000000007",
            "placedAt": "2026-11-23T08:30:00Z",
            "lines": [line, line],
            "wait": "PT1M30S",
            "colour": "red",
        }
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sku": "a"}, r"price: Field required; due: Field required; allowed: Line$"),
        ({"sku": 1, "price": "1", "due": "2026-01-01"}, r"sku: Input should be a valid string; allowed: Line$"),
        ({"a": 1, "b": 2, "c": 3}, r"; and 3 more; allowed: Line$"),
        (7, r"Input should be an object; allowed: Line$"),
        (None, r"Expected .*got .*None.*|Input should be an object; allowed: Line$"),
    ],
)
def test_what_is_no_such_model_is_refused_in_the_caller_and_in_the_worker(given: Any, why: str) -> None:
    def one(line: Line) -> None: ...

    with pytest.raises(ArgumentsInvalid, match=rf"^job 'one': line is .*: .*{why}") as refused:
        job(one).body(given)
    assert "\n" not in str(refused.value)
    envelope = read_envelope(job(of_anything).body(given))
    assert envelope is not None
    with pytest.raises(ArgumentsInvalid, match=why) as in_worker:
        job(one).arguments(envelope)
    assert in_worker.value.__cause__ is None


def of_anything(line: Any) -> None: ...


def test_the_place_of_a_fault_is_named() -> None:
    broken = ORDER.model_dump(mode="json", by_alias=True)
    broken["lines"][1]["due"] = "tomorrow"
    with pytest.raises(ArgumentsInvalid, match=r"order is .*: lines\.1\.due: Input should be a valid date"):
        job(ship).body(broken)


def test_a_model_that_cannot_be_written_is_refused_in_the_caller() -> None:
    class Holder(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        held: object

    def one(holder: Holder) -> None: ...

    one.__annotations__["holder"] = Holder
    with pytest.raises(ArgumentsInvalid, match=r"^job 'one': holder is .*Unable to serialize unknown type"):
        job(one).body(Holder(held=threading.Lock()))


def test_a_model_for_a_parameter_without_annotation_is_refused() -> None:
    with pytest.raises(ArgumentsInvalid, match=r"would arrive as dict; annotate it, so that .* as Line"):
        job(of_anything).body(LINE)


def test_a_model_among_other_types_is_refused_at_decoration() -> None:
    def one(value: Line | int) -> None: ...

    with pytest.raises(ConfigurationError, match="Type unions containing a custom type"):
        job(one)


def test_pydantic_is_not_imported_by_the_framework(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        """
import sys
from pathlib import Path
from pinlater_workers import App

@App().job(queue="q")
def one(at: Path, other: object) -> None: ...

try:
    one.body(Path("a"), {1, 2})
except TypeError:
    print(one.body(Path("a"), 1), "pydantic" in sys.modules)
"""
    )
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
