"""The table of conditions written out as rules of Prometheus: conf/prometheus/rules.yml."""

from __future__ import annotations

import json

from pinlater.alarms.condition import Condition
from pinlater.alarms.condition_table import CONDITIONS
from pinlater.alarms.webhook_bodies import alert_name

_HEAD = """\
# Alarms of PinLater as alerts of Prometheus, over the metrics of the servers.
# Written by `python -m pinlater.alarms rules`. Edit pinlater/alarms/condition_table.py instead.
groups:
  - name: pinlater
    rules:
"""
_ABOUT_THE_JUDGE = """\
      - alert: PinLaterNotJudged
        expr: 'time() - max(pinlater_alarms_judged_at_seconds) > 120 or absent(pinlater_alarms_judged_at_seconds)'
        for: 2m
        labels: {severity: "warning"}
        annotations:
          summary: "Nobody judges the cluster, so other alarms of PinLater may be missing"
          action: "Look at the logs of the servers for alarms_not_read, and at the shards: pinlater shard health"
      - alert: PinLaterDown
        expr: 'up{job="pinlater"} == 0'
        for: 1m
        labels: {severity: "critical"}
        annotations:
          summary: "Server {{ $labels.instance }} cannot be scraped"
          action: "See whether it runs: pinlater cluster status"
"""


def rules_text() -> str:
    """conf/prometheus/rules.yml."""
    return _HEAD + "".join(map(_rule, CONDITIONS)) + _ABOUT_THE_JUDGE


def _rule(each: Condition) -> str:
    subject = "{{ if $labels.subject }}{{ $labels.subject }}: {{ end }}"
    return f"""\
      - alert: {alert_name(each.name)}
        expr: 'max by (job, condition, severity, subject, queue) (pinlater_alarms{{condition="{each.name}"}})'
        annotations:
          summary: {json.dumps(subject + each.holds, ensure_ascii=False)}
          action: {json.dumps(each.remedy, ensure_ascii=False)}
"""
