"""`python -m pinlater.http` prints docs/http-routes.md, and with `errors` docs/errors.md."""

from __future__ import annotations

import sys

from pinlater.http.errors_page import errors_page
from pinlater.http.reference_pages import docs_page

sys.stdout.write(errors_page() if sys.argv[1:] == ["errors"] else docs_page())
