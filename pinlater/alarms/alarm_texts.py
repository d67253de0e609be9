"""Numbers, names and filters of jobs as alarms say them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote_plus

from pinlater.job_filters.job_filter import FilterLine, Term


def some_jobs(number: int, kind: str) -> str:
    """
    >>> some_jobs(1, "ready"), some_jobs(1_204, "failed")
    ('1 ready job', '1,204 failed jobs')
    """
    return f"{number:,} {kind} job{'' if number == 1 else 's'}"


def waiting_text(ready: int) -> str:
    """
    >>> waiting_text(2)
    '2 ready jobs wait'
    """
    return f"{some_jobs(ready, 'ready')} {'waits' if ready == 1 else 'wait'}" if ready else ""


def names_text(names: Sequence[str]) -> str:
    """
    >>> names_text(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more:,} more" if more > 0 else "")


def jobs_line(queue: str, state: str, job_type: str = "", error: str = "") -> str:
    """The filter that finds these jobs.

    >>> jobs_line("shop", "failed"), jobs_line("shop", "failed", "make invoice", "too many crashes")
    ('queue:shop state:failed', 'queue:shop state:failed error:"too many crashes" type:"make invoice"')
    """
    terms = [Term("queue", (queue,)), Term("state", (state,))]
    terms += [Term(field, (value,)) for field, value in (("error", error), ("type", job_type)) if value]
    return FilterLine(tuple(terms)).text()


def jobs_page(line: str) -> str:
    """The page that shows what a filter finds.

    >>> jobs_page(jobs_line("shop", "failed", "a&b"))
    '/dashboard/jobs?filter=queue:shop+state:failed+type:a%26b'
    """
    return f"/dashboard/jobs?filter={quote_plus(line, safe=':,*')}"
