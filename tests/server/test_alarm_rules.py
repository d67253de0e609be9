"""The rules for Prometheus, by its own tool: they can be read, and raise what the servers' metrics say."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater.alarms.condition_table import CONDITIONS
from pinlater.alarms.prometheus_rules import rules_text
from pinlater.alarms.webhook_bodies import alert_name
from pinlater.metrics import FAMILIES
from tests.packaging.conftest import ROOT

RULES = ROOT / "conf" / "prometheus" / "rules.yml"
SERVER = 'job="pinlater", instance="a:9011"'


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is not installed: apt-get install prometheus (or leave it out: --without prometheus)")
    return found


def run(program: str, *words: str) -> None:
    ended = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def series(metric: str, labels: Mapping[str, str], values: str) -> dict[str, str]:
    inside = ", ".join([SERVER, *(f"{name}={json.dumps(value)}" for name, value in labels.items())])
    return {"series": f"pinlater_{metric}{{{inside}}}", "values": values}


def alerts(name: str, at: str, expected: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"alertname": name, "eval_time": at, "exp_alerts": expected}


def scenario(inputs: Sequence[Mapping[str, str]], expected: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"interval": "30s", "input_series": inputs, "alert_rule_test": expected}


def check(promtool: str, folder: Path, *scenarios: Mapping[str, Any]) -> None:
    """What Prometheus makes of these series by the rules. JSON is YAML, too."""
    path = folder / "rules_test.json"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": scenarios}))
    run(promtool, "test", "rules", str(path))


def test_the_file_follows_the_table_of_conditions() -> None:
    assert RULES.read_text(encoding="utf-8") == rules_text(), (
        "python -m pinlater.alarms rules > conf/prometheus/rules.yml"
    )
    assert {"alarms", "alarms_judged_at_seconds"} <= FAMILIES.keys()


def test_prometheus_can_read_them(promtool: str) -> None:
    run(promtool, "check", "rules", str(RULES))


def test_each_condition_is_an_alert_while_its_alarm_stands(promtool: str, tmp_path: Path) -> None:
    scenarios = []
    for condition in CONDITIONS:
        labels = {"condition": condition.name, "severity": "warning", "subject": "it", "queue": "mail"}
        raised = {
            "exp_labels": {"job": "pinlater", **labels},
            "exp_annotations": {"summary": f"it: {condition.holds}", "action": condition.remedy},
        }
        name = alert_name(condition.name)
        others = [alerts(alert_name(each.name), "1m", []) for each in CONDITIONS if each is not condition]
        inputs = [series("alarms", labels, "1 1 1 stale")]
        scenarios.append(scenario(inputs, [alerts(name, "1m", [raised]), alerts(name, "2m", []), *others]))
    check(promtool, tmp_path, *scenarios)


def test_nobody_who_judges_is_an_alert_too(promtool: str, tmp_path: Path) -> None:
    text = rules_text().split("PinLaterNotJudged")[1]
    summary, action = (text.split(f'{word}: "')[1].split('"')[0] for word in ("summary", "action"))
    raised = {"exp_labels": {"severity": "warning"}, "exp_annotations": {"summary": summary, "action": action}}
    times = "0+30x40"
    check(
        promtool,
        tmp_path,
        scenario([series("alarms_judged_at_seconds", {}, times)], [alerts("PinLaterNotJudged", "10m", [])]),
        scenario([series("alarms_judged_at_seconds", {}, "0x40")], [alerts("PinLaterNotJudged", "10m", [raised])]),
        scenario([series("connections", {}, "1x40")], [alerts("PinLaterNotJudged", "10m", [raised])]),
    )


def test_a_server_that_is_away_is_an_alert(promtool: str, tmp_path: Path) -> None:
    labels = {"job": "pinlater", "instance": "a:9011"}
    raised = {
        "exp_labels": {**labels, "severity": "critical"},
        "exp_annotations": {
            "summary": "Server a:9011 cannot be scraped",
            "action": "See whether it runs: pinlater cluster status",
        },
    }
    up = {"series": f"up{{{SERVER}}}", "values": "1 1 0 0 0 0 0"}
    check(
        promtool, tmp_path, scenario([up], [alerts("PinLaterDown", "1m", []), alerts("PinLaterDown", "3m", [raised])])
    )
