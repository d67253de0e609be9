"""`python -m pinlater.config` prints docs/configuration.md."""

from __future__ import annotations

import sys

from pinlater.config.reference import docs_page

sys.stdout.write(docs_page())
