"""Which servers a client talks to: addresses, clusters.toml, the environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pinlater import AsyncClient, Client
from pinlater.client.addresses import (
    Address,
    DnsName,
    Target,
    cluster_servers,
    default_source,
    parse_address,
    parse_target,
    target_servers,
)
from pinlater.client.joining import JoiningLimits

LOCAL = [Address("127.0.0.1", 9010)]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PINLATER_SERVER", "PINLATER_CLUSTER", "PINLATER_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    file = tmp_path / "given.toml"
    file.write_text('[clusters]\nmail = ["a:1", "b"]\nempty = []\nodd = 7\n')
    return file


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("queue-1", Address("queue-1", 9010), "queue-1:9010"),
        ("10.0.0.1:80", Address("10.0.0.1", 80), "10.0.0.1:80"),
        ("[::1]:7", Address("::1", 7), "[::1]:7"),
        (" [::1] ", Address("::1", 9010), "[::1]:9010"),
    ],
)
def test_an_address_is_a_host_with_or_without_a_port(text: str, address: Address, shown: str) -> None:
    assert parse_address(text) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    "text", ["", ":9010", "a:", "a:0", "a:65536", "a:b", "::1", "a b", "http://a:1", "[a]:1", "[]:1"]
)
def test_anything_else_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        (" dns:queue.internal:77", DnsName("queue.internal", 77), "dns:queue.internal:77"),
        ("dns:queue", DnsName("queue", 9010), "dns:queue:9010"),
        ("dns:77", Address("dns", 77), "dns:77"),
        ("dns", Address("dns", 9010), "dns:9010"),
    ],
)
def test_a_name_may_stand_for_several_servers(text: str, target: Target, shown: str) -> None:
    assert parse_target(text) == target
    assert str(target) == shown
    assert parse_target(shown) == target


@pytest.mark.parametrize("text", ["dns:", "dns::77", "dns:a:0", "dns:a:b", "dns:[::1]:77", "dns:dns:a:7", "srv:a:1"])
def test_any_other_name_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_target(text)


def test_names_are_understood_wherever_servers_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    file.write_text('[clusters]\nmail = ["dns:queue:1", "b:2"]\n')
    named = [DnsName("queue", 1), Address("b", 2)]
    assert target_servers(cluster="mail", clusters_file=file) == named
    assert target_servers(["dns:queue:1,b:2"]) == named
    monkeypatch.setenv("PINLATER_SERVER", "dns:queue:1, b:2")
    assert target_servers() == named
    assert AsyncClient().servers == named


def test_a_text_may_hold_several_addresses_and_each_counts_once() -> None:
    assert target_servers(["a:1, b:2", "a:1"]) == [Address("a", 1), Address("b", 2)]


def test_without_anything_this_machine_is_meant() -> None:
    assert target_servers() == LOCAL


def test_what_is_given_counts_before_the_environment(monkeypatch: pytest.MonkeyPatch, clusters: Path) -> None:
    monkeypatch.setenv("PINLATER_CLUSTERS", str(clusters))
    monkeypatch.setenv("PINLATER_CLUSTER", "mail")
    assert target_servers() == [Address("a", 1), Address("b", 9010)]
    monkeypatch.setenv("PINLATER_SERVER", "c:3,d:4")
    assert target_servers() == [Address("c", 3), Address("d", 4)]
    assert target_servers(cluster="mail") == [Address("a", 1), Address("b", 9010)]
    assert target_servers(["e:5"]) == [Address("e", 5)]


def test_servers_and_a_cluster_contradict_each_other(clusters: Path) -> None:
    with pytest.raises(ValueError, match="not both"):
        AsyncClient("a:1", cluster="mail", clusters_file=clusters)


def test_the_file_given_counts_before_the_usual_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clusters: Path
) -> None:
    home = tmp_path / ".config" / "pinlater" / "clusters.toml"
    here = tmp_path / "conf" / "clusters.toml"
    for file, port in ((home, 2), (here, 1)):
        file.parent.mkdir(parents=True)
        file.write_text(f'[clusters]\nmail = ["x:{port}"]\n')
    assert cluster_servers("mail", clusters)[0] == Address("a", 1)
    assert cluster_servers("mail") == [Address("x", 1)]
    here.unlink()
    assert cluster_servers("mail") == [Address("x", 2)]
    monkeypatch.setenv("PINLATER_CLUSTERS", str(clusters))
    assert cluster_servers("mail")[0] == Address("a", 1)


@pytest.mark.parametrize(
    ("name", "says"),
    [("maul", "known: empty, mail, odd"), ("empty", "a list of HOST:PORT"), ("odd", "a list of HOST:PORT")],
)
def test_a_cluster_that_cannot_be_used_is_named_with_its_file(clusters: Path, name: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*given.toml.*{says}"):
        cluster_servers(name, clusters)


def test_a_missing_file_and_a_broken_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no clusters\.toml.*PINLATER_CLUSTERS"):
        cluster_servers("mail")
    broken = tmp_path / "broken.toml"
    broken.write_text("clusters = [")
    with pytest.raises(ValueError, match=r"broken\.toml"):
        cluster_servers("mail", broken)
    broken.write_text("")
    with pytest.raises(ValueError, match="no table"):
        cluster_servers("mail", broken)


def test_a_list_in_place_of_an_address_is_told_how_to_be_written() -> None:
    with pytest.raises(ValueError, match="each server is a text of its own"):
        AsyncClient(["a:9010", "b:9010"])  # type: ignore[arg-type]


def test_every_client_is_another_source() -> None:
    assert default_source() != default_source()
    assert AsyncClient(source="me").source == "me"


def test_the_clusters_that_are_shipped_can_be_read() -> None:
    assert cluster_servers("local", Path(__file__).parents[2] / "conf" / "clusters.toml") == LOCAL


async def test_the_names_that_options_had_before_go_on_working() -> None:
    async with AsyncClient("a", patient=False, stay_s=60.0, joining=JoiningLimits(batch_jobs=1)) as client:
        client.end_waits()
    Client("a", patient=False, stay_s=60.0).close()


def test_an_option_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'paitent'"):
        AsyncClient("a", paitent=False)  # type: ignore[call-arg]
