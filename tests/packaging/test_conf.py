"""The files of conf/ that other programs read: manifests that fit the schema, a dashboard that names what there is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pinlater.config import load
from pinlater.metrics import FAMILIES

CONF = Path(__file__).parents[2] / "conf"
SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "histogram": {"_bucket", "_sum", "_count"}}
MANIFESTS = list(yaml.safe_load_all((CONF / "kubernetes" / "pinlater.yaml").read_text()))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
def test_kubernetes_would_take_the_manifest(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def by_kind(kind: str) -> dict[str, Any]:
    (manifest,) = [each for each in MANIFESTS if each["kind"] == kind]
    return dict(manifest)


def test_the_configuration_in_the_manifests_is_one_and_its_ports_are_those_of_the_probes(tmp_path: Path) -> None:
    text = by_kind("ConfigMap")["data"]["pinlater.toml"]
    file = tmp_path / "pinlater.toml"
    file.write_text(text)
    config = load({"config": str(file)}, {}).config
    (container,) = by_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"thrift": config.port, "http": int(config.http.rpartition(":")[2])}
    grace_s = by_kind("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s * 1000 > config.drain_timeout_ms
    assert tomllib.loads(text)["data"] in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_dashboard_names_metrics_and_labels_that_there_are() -> None:
    dashboard = json.loads((CONF / "grafana" / "pinlater.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) > 20
    known = {
        f"pinlater_{name}{suffix}": family for name, family in FAMILIES.items() for suffix in SUFFIXES[family.kind]
    }
    seen = set()
    for expression in expressions:
        names = re.findall(r"pinlater_[a-z_]+", expression)
        assert names
        for name in names:
            assert name in known, expression
        seen.update(names)
        labels = {label for name in names for label in known[name].labels} | {"le", "instance"}
        for listed in re.findall(r"by \(([a-z_, ]+)\)", expression):
            assert set(listed.split(", ")) <= labels, expression
        for label in re.findall(r"([a-z_]+)=~?\"", expression):
            assert label in labels, expression
    shown = {known[name] for name in seen}
    assert all(family in shown for name, family in FAMILIES.items() if family.kind == "counter" and "queue" in name)
