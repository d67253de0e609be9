"""`python -m pinlater.alarms` prints docs/alarms.md."""

from __future__ import annotations

import sys

from pinlater.alarms.alarms_page import docs_page

sys.stdout.write(docs_page())
