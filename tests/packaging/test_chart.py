"""The Helm chart: what it makes of the five usual cases would be taken by Kubernetes, the server and the workers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pinlater.config import load
from pinlater.data_folder.password import hash_password
from pinlater.metrics import FAMILIES
from tests.packaging.chart import (
    CASES,
    CHART,
    RENDERED,
    WITHOUT_RULES,
    digest,
    helm_program,
    manifests,
    render,
    rendered,
)
from tests.packaging.conftest import ROOT
from tests.packaging.release import version_of_project
from tests.packaging.test_conf import SUFFIXES
from tests.packaging.test_conf_workers import parsed

SECRETS = {
    "stores": "1=postgresql+psycopg://pinlater:secret@db/pinlater\n",
    "flows": "postgresql+psycopg://pinlater:secret@db/pinlater\n",
    "admin-password-hash": hash_password("a password of a test"),
    "bodies": "s3://bodies/pinlater\n",
    "alarm-webhook": "slack=https://hooks.example/secret\n",
    "alarm-webhook-secret": "0123456789abcdef\n",
}
Manifest = dict[str, Any]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)


def kept(case: Path) -> list[Manifest]:
    return manifests((RENDERED / case.name).read_text(encoding="utf-8"))


def of_kind(case: Path, *kinds: str) -> list[Manifest]:
    return [each for each in kept(case) if each["kind"] in kinds]


def component(manifest: Manifest) -> str:
    return str(manifest["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"])


def server_of(case: Path) -> Manifest:
    (found,) = [each for each in of_kind(case, "Deployment", "StatefulSet") if component(each) == "server"]
    return found


def workers_of(case: Path) -> list[Manifest]:
    return [each for each in of_kind(case, "Deployment") if component(each) != "server"]


@each_case
def test_what_is_kept_was_rendered_from_this_chart(case: Path) -> None:
    text = (RENDERED / case.name).read_text(encoding="utf-8")
    assert f"# of {digest(case)}\n" in text, "the chart has changed: python -m tests.packaging.chart"


def test_the_chart_has_the_version_of_the_package_and_its_rules() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version_of_project()
    assert (CHART / "files" / "rules.yml").resolve() == ROOT / "conf" / "prometheus" / "rules.yml"


@each_case
def test_kubernetes_would_take_all_of_it(case: Path) -> None:
    found = kept(case)
    assert len(found) >= 6
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(names) == len(set(names))
    for manifest in found:
        group = manifest["apiVersion"].rpartition("/")[0]
        if group in ("keda.sh", "monitoring.coreos.com"):  # of operators, which Kubernetes' schemas do not know
            continue
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@each_case
def test_the_server_takes_its_configuration(case: Path, tmp_path: Path) -> None:
    (map_,) = of_kind(case, "ConfigMap")
    for name, text in SECRETS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    text = map_["data"]["pinlater.toml"].replace("/etc/pinlater-secret", str(tmp_path))
    assert "/etc/pinlater/" not in text.replace("/etc/pinlater/rules.toml", "")
    if "rules.toml" in map_["data"]:
        (tmp_path / "rules.toml").write_text(map_["data"]["rules.toml"])
        text = text.replace("/etc/pinlater/rules.toml", str(tmp_path / "rules.toml"))
    text = re.sub(r"^tls-.*\n", "", text, flags=re.MULTILINE)
    (tmp_path / "pinlater.toml").write_text(text)
    config = load({"config": str(tmp_path / "pinlater.toml")}, {}).config
    pod = server_of(case)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    addresses = (config.http, config.api)
    assert ports == dict(
        zip(("thrift", "http", "api"), (config.port, *(int(a.rpartition(":")[2]) for a in addresses)), strict=True)
    )
    assert pod["terminationGracePeriodSeconds"] * 1000 > config.drain_timeout_ms
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(config.data), "/etc/pinlater"} <= mounted
    assert {
        folder for folder in ("/etc/pinlater-secret", "/etc/pinlater-tls") if folder in map_["data"]["pinlater.toml"]
    } <= mounted


@each_case
def test_what_lasts_lies_on_a_volume_and_only_that(case: Path) -> None:
    server = server_of(case)
    lasting = case.stem in ("sqlite", "secure")
    assert (server["kind"] == "StatefulSet") == lasting == ("volumeClaimTemplates" in server["spec"])
    if case.stem == "sqlite":
        assert server["spec"]["replicas"] == 1
        assert not [each for each in of_kind(case, "PodDisruptionBudget") if each["metadata"]["name"] == "mail"]
    scaled = [
        each["spec"]["scaleTargetRef"]["name"] for each in of_kind(case, "HorizontalPodAutoscaler", "ScaledObject")
    ]
    for each in (server, *workers_of(case)):
        assert ("replicas" in each["spec"]) == (each["metadata"]["name"] not in scaled)


@each_case
def test_every_selector_finds_pods(case: Path) -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind(case, "Deployment", "StatefulSet")]
    named = {each["metadata"]["name"] for each in of_kind(case, "Deployment")}
    for manifest in kept(case):
        spec = manifest.get("spec", {})
        selector = spec.get("selector", {}) if manifest["kind"] != "ServiceMonitor" else {}
        wanted = selector.get("matchLabels", selector if manifest["kind"] == "Service" else {})
        assert any(wanted.items() <= labels.items() for labels in pods), manifest["metadata"]
        assert spec.get("scaleTargetRef", {}).get("name") in {None, *named}
    services = [each["metadata"]["labels"] for each in of_kind(case, "Service")]
    for monitor in of_kind(case, "ServiceMonitor"):
        assert any(monitor["spec"]["selector"]["matchLabels"].items() <= labels.items() for labels in services)


@each_case
def test_the_command_takes_the_arguments_of_the_workers(case: Path) -> None:
    services = {each["metadata"]["name"] for each in of_kind(case, "Service")}
    assert workers_of(case)
    for worker in workers_of(case):
        pod = worker["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        files = [each for each in container["args"] if "=/etc/" in each]
        beside = [*files, "--server-name=mail"]  # which are no settings of the worker's own
        given, settings = parsed([each for each in container["args"] if each not in beside])
        assert given["app"] == "shop.jobs:app"
        assert [server.split(":")[1] in services for server in given["servers"]] == [True]
        assert settings.queues
        assert pod["terminationGracePeriodSeconds"] > settings.grace_s
        assert settings.http == f"0.0.0.0:{container['ports'][0]['containerPort']}"
        mounted = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
        assert {each.partition("=")[2].rpartition("/")[0] for each in files} == mounted
        assert (len(files) == 2) == (case.stem == "secure")


@pytest.mark.store("prometheus")
def test_keda_asks_for_figures_that_there_are(tmp_path: Path) -> None:
    (case,) = [each for each in CASES if each.stem == "keda"]
    triggers = [each for scaled in of_kind(case, "ScaledObject") for each in scaled["spec"]["triggers"]]
    queries = [each["metadata"]["query"] for each in triggers]
    assert len(queries) == 4
    known = {f"pinlater_{name}{suffix}" for name, family in FAMILIES.items() for suffix in SUFFIXES[family.kind]}
    assert all(name in known for query in queries for name in re.findall(r"pinlater_\w+", query))
    assert all('namespace="queues"' in query for query in queries)
    minimum = {each["metadata"]["name"]: each["spec"]["minReplicaCount"] for each in of_kind(case, "ScaledObject")}
    assert minimum == {"mail-thumbnails": 0, "mail-mail": 1}
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.fail("promtool is not installed: apt-get install prometheus (or leave it out: --without prometheus)")
    rules = [{"record": f"one:of:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "keda", "rules": rules}]}))
    command = [promtool, "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # a queue whose groups are throttled, and one of a server of a version before, which counts no limited jobs
    mail, thumbnails = (f'namespace="queues",queue="{queue}",shard="1"' for queue in ("mail", "thumbnails"))
    series = {
        f'pinlater_queue_jobs{{{mail},state="ready"}}': 70,
        f'pinlater_queue_jobs{{{mail},state="in_progress"}}': 5,
        f"pinlater_queue_ready_limited_jobs{{{mail}}}": 60,
        f"pinlater_queue_oldest_ready_seconds{{{mail}}}": 900,
        f'pinlater_queue_jobs{{{thumbnails},state="ready"}}': 40,
        f"pinlater_queue_oldest_ready_seconds{{{thumbnails}}}": 30,
    }
    asked = [
        {"expr": query, "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": value}]}
        for query, value in zip(queries, (15, 0, 40, 30), strict=True)
    ]
    given = [{"series": name, "values": f"{value}x5"} for name, value in series.items()]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"tests": [{"input_series": given, "promql_expr_test": asked}]}))
    command = [promtool, "test", "rules", str(tmp_path / "tests.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def helm() -> str:
    return helm_program()


def test_helm_renders_what_is_kept(helm: str) -> None:
    for case in CASES:
        assert rendered(helm, case) == (RENDERED / case.name).read_text(encoding="utf-8")
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True, capture_output=True)


def test_helm_renders_the_rules_as_they_are(helm: str) -> None:
    (case,) = [each for each in CASES if each.stem == "redis"]
    (rule,) = [each for each in manifests(render(helm, case)) if each["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((ROOT / "conf" / "prometheus" / "rules.yml").read_text())


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--set", "workers.mail.scaling.by=cron"], "it is hpa or keda"),
        (["--set", "workers.mail.image="], "an image with your code"),
        (["--set", "workers.mail.app="], "MODULE:NAME"),
        (["--set", "secret.name="], "say its name in secret.name"),
    ],
)
def test_helm_says_what_is_missing(helm: str, options: list[str], refusal: str) -> None:
    (case,) = [each for each in CASES if each.stem == "redis"]
    with pytest.raises(ValueError, match=refusal):
        render(helm, case, *WITHOUT_RULES, *options)
