"""Addresses of tables in DynamoDB, and what may be shown of them."""

from __future__ import annotations

import pytest

from pinlater.backends.dynamodb.items import read_item, write_item
from pinlater.backends.dynamodb.table_address import BUCKETS, parse_address
from pinlater.config.stores import StoreMistake, parse_store
from pinlater.errors import StoreRefused


def test_an_address_names_region_and_table_and_where_to_ask() -> None:
    here = parse_address("dynamodb://local/jobs-1?endpoint=http://127.0.0.1:8000/&buckets=16")
    assert here == ("local", "jobs-1", "http://127.0.0.1:8000", 16)
    assert parse_address("dynamodb://eu-west-1/jobs").buckets == BUCKETS


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("dynamodb://eu-west-1/x", "name of a table"),
        ("dynamodb:///jobs", "region"),
        ("dynamodb://eu-west-1/jobs?buckets=0", "1 to 64"),
        ("dynamodb://eu-west-1/jobs?buckets=many", "1 to 64"),
        ("dynamodb://eu-west-1/jobs?endpoint=127.0.0.1:8000", "http://"),
        ("dynamodb://eu-west-1/jobs?endpont=http://x", "endpont"),
        ("dynamodb://key:secret@eu-west-1/jobs", "region"),
    ],
)
def test_a_mistake_in_an_address_is_told_without_its_values(url: str, told: str) -> None:
    with pytest.raises(StoreRefused, match=told) as refused:
        parse_address(url)
    assert "secret" not in refused.value.message


def test_credentials_do_not_stand_in_an_address() -> None:
    with pytest.raises(StoreMistake) as mistake:
        parse_store("1=dynamodb://AKIAEXAMPLE:geheimnis@eu-west-1/jobs")
    assert "geheimnis" not in str(mistake.value.value)
    store = parse_store("1=dynamodb://eu-west-1/jobs?endpoint=http://127.0.0.1:8000&buckets=2")
    assert store.masked() == "dynamodb://eu-west-1/jobs?endpoint=http://127.0.0.1:8000&buckets=2"


def test_values_come_back_as_they_were_written() -> None:
    item = {
        **{"text": "ü\0🦆", "none": "", "bytes": b"\0\xff", "empty": b"", "yes": True, "no": False},
        **{"large": 2**53 - 1, "below": -5, "part": 0.1, "tiny": 1e-9, "set": {1, 200}},
        **{"list": ["a", 1, 0.5, b"b", ["c"]]},
    }
    assert read_item(write_item(item)) == item
