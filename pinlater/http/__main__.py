"""`python -m pinlater.http` prints docs/http-routes.md."""

from __future__ import annotations

import sys

from pinlater.http.reference_pages import docs_page

sys.stdout.write(docs_page())
