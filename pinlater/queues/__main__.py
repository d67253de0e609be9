"""`python -m pinlater.queues` prints docs/queues.md."""

from __future__ import annotations

import sys

from pinlater.queues.settings_page import docs_page

sys.stdout.write(docs_page())
