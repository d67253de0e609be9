"""`python -m pinlater.queues` prints docs/queues.md."""

from __future__ import annotations

import sys

from pinlater.queues.reference import docs_page

sys.stdout.write(docs_page())
