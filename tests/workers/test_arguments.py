"""Arguments are checked in the caller, and arrive as the function's annotations say."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater_workers import App, ArgumentsInvalid, ConfigurationError
from pinlater_workers.envelope import Encoding, read_envelope
from pinlater_workers.jobs.job_type import JobType

if TYPE_CHECKING:
    from fractions import Fraction

ENCODINGS: list[Encoding] = ["json", "msgpack"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Size:
    width: int
    height: int = 1
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    branches: list[Tree]


class Options(TypedDict, total=False):
    quality: int


class Opaque:
    """A class that no body can carry."""

    def __repr__(self) -> str:
        """The same in every process, as the names of tests are."""
        return "Opaque()"


class Called:
    def __call__(self, a: int) -> None: ...


Positive = Annotated[int, msgspec.Meta(ge=1)]


def many(
    a: int,
    b: float,
    c: str | None,
    d: bytes,
    e: datetime,
    f: dict[int, tuple[Decimal, ...]],
    /,
    g: Size,
    h: Colour,
    *,
    i: set[UUID],
    j: Path | None = None,
    k: timedelta = timedelta(0),
    l: Options | None = None,  # noqa: E741
) -> None: ...


def rest(first: int, *others: int, **named: str) -> None: ...


def untyped(value, *, other=None):  # type: ignore[no-untyped-def]
    ...


def job(function: Callable[..., Any], encoding: Encoding = "json") -> JobType:
    return App().job(queue="q", encoding=encoding)(function)


def arrived(job_type: JobType, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a worker makes of the body that a caller makes of these."""
    envelope = read_envelope(job_type.body(*args, **kwargs))
    assert envelope is not None
    return job_type.arguments(envelope)


JOBS = {encoding: job(many, encoding) for encoding in ENCODINGS}
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
POSITIONAL = st.tuples(
    INTS,
    FLOATS,
    st.none() | st.text(),
    st.binary(),
    st.datetimes(timezones=st.just(UTC)),
    st.dictionaries(INTS, st.lists(st.decimals(allow_nan=False, allow_infinity=False)).map(tuple), max_size=2),
    st.builds(Size, INTS, INTS, st.lists(st.text(), max_size=2)),
)
NAMED = st.fixed_dictionaries(
    {"h": st.sampled_from(Colour), "i": st.frozensets(st.uuids(), max_size=2).map(set)},
    optional={
        "j": st.sampled_from([None, Path("a/b"), Path("/")]),
        "k": st.timedeltas(timedelta(-100), timedelta(100)),
        "l": st.just({"quality": 3}),
    },
)


@settings(max_examples=100)
@given(st.sampled_from(ENCODINGS), POSITIONAL, NAMED)
def test_arguments_arrive_as_they_were_given(encoding: Encoding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    found = arrived(JOBS[encoding], *args, **kwargs)
    assert found == (args, kwargs)
    assert [type(value) for value in found[0]] == [type(value) for value in args]


PLAIN = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.sampled_from(ENCODINGS), PLAIN)
def test_plain_values_need_no_annotation(encoding: Encoding, value: Any) -> None:
    assert arrived(job(untyped, encoding), value, other=value) == ((value,), {"other": value})


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "1"),
        (int, 1.5),
        (int, None),
        (int, True),
        (float, "1"),
        (str, 1),
        (str, "\ud800"),
        (bool, 1),
        (bytes, 1),
        (datetime, "yesterday"),
        (date, 1),
        (Colour, "green"),
        (Literal["a", "b"], "c"),
        (Positive, 0),
        (list[int], [1, "2"]),
        (dict[str, int], {"a": "b"}),
        (Size, {"height": 1}),
        (Options, {"quality": "high"}),
        (Path, 1),
        (int, Opaque()),
        (Any, Opaque()),
        (Any, {1, 2}),
        (Any, {"at": datetime(2026, 1, 1)}),
        (Any, [Size(1)]),
        (Any, Path("a")),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused_in_the_caller(encoding: Encoding, annotation: Any, value: Any) -> None:
    def one(value: Any) -> None: ...

    one.__annotations__["value"] = annotation
    with pytest.raises(ArgumentsInvalid, match=r"^job 'one': value is .*allowed: "):
        job(one, encoding).body(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, b"raw"),
        (Any, {1: 2}),
        (Any, [float("nan")]),
        (dict[str, Any], {"a": datetime(2026, 1, 1, tzinfo=UTC)}),
        (float, float("nan")),
        (list[float], [float("inf")]),
    ],
    ids=str,
)
def test_what_json_lacks_and_messagepack_has_is_refused_for_json_alone(annotation: Any, value: Any) -> None:
    def one(value: Any) -> None: ...

    one.__annotations__["value"] = annotation
    with pytest.raises(ArgumentsInvalid, match="value is"):
        job(one).body(value)
    (found,), _ = arrived(job(one, "msgpack"), value)
    assert repr(found) == repr(value)


def test_a_whole_number_is_a_float_and_a_tuple_arrives_as_the_list_that_bodies_have() -> None:
    def one(ratio: float, items: Any) -> None: ...

    (ratio, items), _ = arrived(job(one), 2, (1, ("a", {"b": (2,)})))
    assert (ratio, type(ratio), items) == (2.0, float, [1, ["a", {"b": [2]}]])


def test_a_number_beyond_what_the_encoding_has_is_refused_by_name() -> None:
    assert arrived(job(untyped), 2**70) == ((2**70,), {})
    with pytest.raises(ArgumentsInvalid, match=r"value is \d+"):
        job(untyped, "msgpack").body(2**70)


def test_a_message_names_the_job_the_parameter_the_value_and_what_is_allowed() -> None:
    with pytest.raises(ArgumentsInvalid) as refused:
        job(many).body(1, 2, "c", b"", datetime.now(UTC), {}, Size(1), Colour.RED, i={"no uuid"})
    assert str(refused.value).startswith("job 'many': i is {'no uuid'}: ")
    assert str(refused.value).endswith("; allowed: set[uuid.UUID]")
    assert isinstance(refused.value, TypeError)


def test_the_rest_by_position_and_by_name_is_checked_too() -> None:
    assert arrived(job(rest), 1, 2, 3, a="b") == ((1, 2, 3), {"a": "b"})
    with pytest.raises(ArgumentsInvalid, match="argument 3 is 'x'"):
        job(rest).body(1, 2, "x")
    with pytest.raises(ArgumentsInvalid, match="a is 1"):
        job(rest).body(1, a=1)


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "g, h, i missing|a is missing"),
        ((1, 2.0), {}, "c is missing"),
        ((1,) * 9, {}, "takes 8 arguments by position, 9 are given"),
        ((1, 2.0, "", b"", None, {}, Size(1)), {"g": 1}, "g is given twice"),
        ((1, 2.0, "", b"", None, {}), {"a": 1}, "no parameter 'a'"),
        ((1, 2.0, "", b"", None, {}, Size(1)), {"nobody": 1}, "no parameter 'nobody'"),
        ((1, 2.0, "", b"", None, {}, Size(1)), {"h": Colour.RED}, "i missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> None:
    with pytest.raises(ArgumentsInvalid, match=why):
        job(many).body(*args, **kwargs)


def card(kind: Literal["visa", "amex"] = "visa", colour: Colour = Colour.RED, limit: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kind", r"Invalid enum value; allowed: Literal\['visa', 'amex'\]"),
        ("colour", r"Invalid enum value; allowed: "),
        ("limit", r"Expected `int`, got `str`; allowed: int"),
    ],
)
def test_a_worker_refuses_a_body_that_does_not_fit_without_quoting_it(name: str, why: str) -> None:
    """A status is read by those who may read no bodies."""
    body = json.dumps({"job": "card", "kwargs": {name: "4111' - at `$`\n"}}).encode()
    envelope = read_envelope(b"PINLATER/1 application/json\n" + body)
    assert envelope is not None
    with pytest.raises(ArgumentsInvalid, match=f"{name} is not what it may be: {why}") as refused:
        job(card).arguments(envelope)
    assert "4111" not in str(refused.value)
    assert refused.value.__cause__ is None, "a status would say the reason twice"


def refused_at_decoration(function: Callable[..., Any]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        job(function)
    return str(refused.value)


@pytest.mark.parametrize("annotation", [Opaque, list[Opaque], Iterator[int], Callable[[], int], set[int] | list[int]])
def test_an_annotation_that_no_body_can_carry_is_refused_at_decoration(annotation: Any) -> None:
    def one(value: Any) -> None: ...

    one.__annotations__["value"] = annotation
    assert "parameter 'value' is annotated with" in refused_at_decoration(one)


def test_a_class_may_hold_itself() -> None:
    def one(tree: Tree) -> None: ...

    tree = Tree([Tree([])])
    assert arrived(job(one), tree) == ((tree,), {})


def test_an_annotation_that_is_not_imported_where_it_runs_is_refused_at_decoration() -> None:
    def one(value: Fraction) -> None: ...

    assert "TYPE_CHECKING" in refused_at_decoration(one)


def test_no_name_of_a_parameter_is_reserved() -> None:
    def one(delay: int, run_after: str, *, priority: float, queue: str, headers: int) -> None: ...

    given = {"delay": 1, "run_after": "then", "priority": 0.5, "queue": "q", "headers": 2}
    assert arrived(job(one), **given) == ((), given)


def test_what_is_no_function_is_refused_at_decoration() -> None:
    assert "is a partial; allowed: a function" in refused_at_decoration(partial(rest, 1))
    assert "is a Called; allowed: a function" in refused_at_decoration(Called())


def test_a_default_of_none_may_be_given_whatever_the_annotation_says() -> None:
    def one(at: datetime = None, any: object = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert arrived(job(one), None, any=None) == ((None,), {"any": None})
    with pytest.raises(ArgumentsInvalid, match="at is 3"):
        job(one).body(3)


def test_an_annotation_that_takes_anything_says_what_a_body_can_carry() -> None:
    def one(first, second: Any, third: object, fourth: Any | None, fifth=None) -> None:  # type: ignore[no-untyped-def]
        ...

    names = ("first", "second", "third", "fourth", "fifth")
    for place, name in enumerate(names):
        given: list[object] = [1] * len(names)
        given[place] = Opaque()
        with pytest.raises(ArgumentsInvalid) as refused:
            job(one).body(*given)
        assert str(refused.value) == (
            f"job 'one': {name} is Opaque(): a Opaque cannot be part of a body; allowed: plain values (None, bool, "
            "int, float, str, and lists and dicts of these)"
        )


class Mailer:
    def send(self, to: str) -> None: ...

    @classmethod
    def make(cls, to: str) -> None: ...

    @staticmethod
    def check(to: str) -> None: ...

    def tell(to: str) -> None:  # type: ignore[misc]
        """A plain function, in a class for the sake of its name."""


def test_a_method_is_refused_at_decoration() -> None:
    assert refused_at_decoration(Mailer.send) == (
        "job 'send' is a method of Mailer, and a worker has no Mailer to call it on; allowed: a function, which makes "
        "one from its arguments; or without self, and with @staticmethod above @app.job"
    )
    assert "job 'make' is a method of Mailer" in refused_at_decoration(Mailer.__dict__["make"].__func__)
    assert "is a classmethod; allowed: a function, which may call that method" in refused_at_decoration(
        Mailer.__dict__["make"]
    )
    assert "is a staticmethod; allowed: a function, so @staticmethod above @app.job" in refused_at_decoration(
        Mailer.__dict__["check"]
    )


def test_what_is_no_method_may_stand_in_a_class_and_name_its_parameters_as_it_likes() -> None:
    def local(self: int) -> None: ...

    class Tasks:
        @staticmethod
        @App().job(queue="q")
        def check(to: str) -> None: ...

    assert arrived(job(local), 1) == ((1,), {})
    assert arrived(job(Mailer.tell), "a") == (("a",), {})
    assert arrived(job(Mailer().send), "a") == (("a",), {})
    assert arrived(Tasks.check, "a") == (("a",), {})


def test_the_names_of_other_frameworks_say_what_to_write() -> None:
    told = {
        "delay": r"^a job has no \.delay\(\.\.\.\); write rest\.enqueue\(\.\.\.\)$",
        "apply_async": r"write rest\.enqueue\(\.\.\.\), or options\(delay=\.\.\., priority=\.\.\.\)\.enqueue",
        "send": r"write rest\.enqueue\(",
        "kiq": r"write rest\.enqueue_async\(",
        "colour": r"^'JobFunction' object has no attribute 'colour'$",
    }
    for name, text in told.items():
        with pytest.raises(AttributeError, match=text) as raised:
            getattr(job(rest), name)
        assert raised.value.name == name
    assert not hasattr(job(rest), "delay")


def test_the_options_of_other_frameworks_say_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"^@app\.job.*take max_retries=, for which write attempts="):
        App().job(queue="q", max_retries=3)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match=r"does not take colour=; allowed: queue, name, attempts"):
        App().raw_job(queue="q", colour=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r'take countdown=, for which write delay="5m"; allowed: delay'):
        job(rest).options(countdown=5)  # type: ignore[call-arg]


def test_a_generator_is_refused_at_decoration() -> None:
    def one() -> Iterator[int]:
        yield 1

    assert "generator" in refused_at_decoration(one)
