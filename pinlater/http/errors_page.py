"""The table of reasons written out as the page docs/errors.md, with the status that each has over HTTP."""

from __future__ import annotations

from pinlater.error_reasons import REASONS, Reason
from pinlater.http.problems import status_of

_PAGE = """# Errors

<!-- Written by `python -m pinlater.http errors`. Edit pinlater/error_reasons.py and http/errors_page.py instead. -->

This page says for each error of a call what it means and what to do about it. Search it for the `reason` that you got.
The error also has a `code`, which is coarser; the [interface](wire.md) has had these codes from its beginning.

- **In a program** compare the `reason`, which stays the same from version to version. Show texts to people, and compare
  none: they may change.
- **In Python** the exceptions of the clients have `reason` and `retryable`. Over HTTP both are in the body of the
  answer ([http.md](http.md)).
- **"Again"** says whether the same call may succeed when it is sent again a little later. `retry_after_ms` says when,
  if the server knows. The Python clients and workers send such calls again by themselves ([client.md](client.md)).

| reason | code | HTTP | again | what it means | what to do |
| --- | --- | --- | --- | --- | --- |
{rows}
Over HTTP there are a few more, about the request itself: `NOT_FOUND` (404: no such address, job, schedule or token),
`NOT_HELD` (410: an assignment that is over) and the names of the statuses of HTTP.
"""


def errors_page() -> str:
    """docs/errors.md."""
    return _PAGE.format(rows="".join(map(_row, REASONS)))


def status_text(reason: Reason) -> str:
    """The status over HTTP. Who shows nothing, and may not, gets 401 in place of 403."""
    return str(int(status_of(reason.error("", reason=reason.name))))


def _row(each: Reason) -> str:
    code = each.error.code
    again = "yes" if each.is_retryable else "no"
    cells = f"`{each.name}`", f"{code.name} {int(code)}", status_text(each), again, each.meaning, each.remedy
    return f"| {' | '.join(cells)} |\n"
