"""How values of settings are written."""

from __future__ import annotations

import tomllib

import pytest

from pinlater.config.values import PasswordHash, UrlPrefix
from pinlater.data_folder.password import hash_password
from pinlater.durations import DAY_MS
from pinlater.setting_kinds import Choice, Duration, Integer, Kind, Size, Text, Words

DURATION = Duration(0, 7 * DAY_MS)
SIZE = Size(1, 2**40)
NO_MESSAGE = r"^$"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("5s", 5000), ("1h30m", 5_400_000), ("1.5h", 5_400_000), ("250ms", 250), ("7d", 604_800_000), ("0s", 0)],
)
def test_a_duration_has_a_unit(text: str, ms: int) -> None:
    assert DURATION.parse(text) == ms


@pytest.mark.parametrize(
    "text", ["5", "", "5 sec", "-5s", "1.5", "0", "s", "8d", "5S", 5, None, "\u0665s", "9" * 400 + "s"]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=NO_MESSAGE):
        DURATION.parse(text)


@pytest.mark.parametrize(
    ("text", "size"), [("16MiB", 2**24), ("1GiB", 2**30), ("512KiB", 2**19), ("7B", 7), ("7", 7), (7, 7)]
)
def test_a_size_may_have_a_unit(text: object, size: int) -> None:
    assert SIZE.parse(text) == size


@pytest.mark.parametrize("text", ["16MB", "", "-1", "1.5MiB", True, 0, None, ["1"]])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=NO_MESSAGE):
        SIZE.parse(text)


@pytest.mark.parametrize("value", [1, 9, "5", "auto"])
def test_a_number_in_its_bounds(value: object) -> None:
    assert Integer(1, 9, auto=True).parse(value) == (None if value == "auto" else int(str(value)))


@pytest.mark.parametrize("value", [0, 10, "0", "x", "", True, 1.0, None, "1_0", "+1"])
def test_what_is_no_such_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=NO_MESSAGE):
        Integer(1, 9).parse(value)


@pytest.mark.parametrize(
    ("text", "path"),
    [("/queue", "/queue"), ("/queue/", "/queue"), ("/a/b.c/~d", "/a/b.c/~d"), ("/v1x", "/v1x"), ("/", ""), ("", "")],
)
def test_a_prefix_is_a_path(text: str, path: str) -> None:
    assert UrlPrefix().parse(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "queue",
        "//x",
        "/a//b",
        "/../x",
        "/a/.",
        "/a?b",
        "/a b",
        "/a%20",
        "/a\n",
        "/v1",
        "/dashboard/x",
        "/docs/",
        5,
        None,
    ],
)
def test_what_is_no_such_path_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=NO_MESSAGE):
        UrlPrefix().parse(text)


def test_a_password_is_not_taken_for_its_hash() -> None:
    hashed = hash_password("secret")
    assert PasswordHash().parse(hashed) == hashed
    with pytest.raises(ValueError, match=NO_MESSAGE):
        PasswordHash().parse("secret")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DURATION, 90_000),
        (DURATION, 1),
        (SIZE, 2**24 + 1),
        (Integer(1, 9, auto=True), None),
        (Integer(1, 9), 3),
        (Text(), 'quote " backslash \\ tab \t del \x7f é'),
        (Choice("a", "b"), "b"),
        (Words(".*", ""), ("1", "zwei")),
    ],
)
def test_what_is_written_as_toml_is_read_as_the_same_value(kind: Kind, value: object) -> None:
    read = tomllib.loads(f"key = {kind.toml(value)}")["key"]
    assert kind.parse(read) == value
