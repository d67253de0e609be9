"""`python -m pinlater.alarms` prints docs/alarms.md, and with `rules` conf/prometheus/rules.yml."""

from __future__ import annotations

import sys

from pinlater.alarms.alarms_page import docs_page
from pinlater.alarms.prometheus_rules import rules_text

sys.stdout.write(rules_text() if sys.argv[1:] == ["rules"] else docs_page())
