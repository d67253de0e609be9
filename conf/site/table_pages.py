"""A page of the site for each row of a table of the product: alarms, reasons of errors, metrics.

So each message, alarm and graph has an address of its own to link to. Keys are paths in the site's sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pinlater.alarms.condition import Condition
from pinlater.alarms.condition_table import CONDITIONS
from pinlater.error_reasons import REASONS, Reason
from pinlater.http.errors_page import status_text
from pinlater.metric_family import Family
from pinlater.metrics import FAMILIES, PREFIX

_LINK = re.compile(r"\]\((?!https?:)([a-z-]+\.md)")


LISTS = ("alarms", "errors", "metrics")
"""Pages of docs/ with a table that names each in its first column."""


def table_pages() -> dict[str, str]:
    """All of them."""
    pages = {f"alarms/{each.name}.md": _alarm(each) for each in CONDITIONS}
    pages |= {f"errors/{each.name}.md": _error(each) for each in REASONS}
    pages |= {f"metrics/{name}.md": _metric(name, family) for name, family in FAMILIES.items()}
    return {path: _LINK.sub(r"](../\1", text) for path, text in pages.items()}


def _alarm(each: Condition) -> str:
    causes = [other.name for other in CONDITIONS if each.name in other.absorbs]
    parts = [
        f"# Alarm `{each.name}`\n",
        each.holds,
        f"## What to do\n\n{each.remedy}",
        f"## When\n\n- Severity: {each.severity}.\n- Threshold: {each.threshold}.\n- Set where: {each.set_where}.",
    ]
    if each.not_for:
        parts.append(f"It is not raised for {each.not_for}.")
    if each.absorbs:
        parts.append(f"Listed inside it, as what it causes: {_links(each.absorbs)}.")
    if causes:
        parts.append(f"Where one of these stands it is listed there: {_links(causes)}.")
    parts.append(
        "## Look and mute\n\n```sh\npinlater alarms\npinlater alarms --ended\n"
        f"pinlater alarms mute {each.name} --for 2h --reason 'known, and worked on'\n```\n\n"
        f'Prometheus has it as `{PREFIX}alarms{{condition="{each.name}"}}`: [webhooks.md](webhooks.md).'
    )
    return "\n\n".join(parts) + "\n"


def _links(names: Iterable[str]) -> str:
    return ", ".join(f"[`{name}`]({name}.md)" for name in names)


def _error(each: Reason) -> str:
    again = "may succeed a little later" if each.is_retryable else "fails again"
    return (
        f"# Error `{each.name}`\n\n{each.meaning}\n\n## What to do\n\n{each.remedy}\n\n## For programs\n\n"
        f"- Code: `{each.error.code.name}` ({int(each.error.code)}).\n- Over HTTP: {status_text(each)}.\n"
        f"- The same call {again}.\n- In Python: `pinlater.errors.{each.error.__name__}`.\n"
    )


def _metric(name: str, family: Family) -> str:
    labels = "".join(f"- `{label}`\n" for label in family.labels) or "It has none.\n"
    full = PREFIX + name
    queries = {
        "counter": f"sum(rate({full}[5m]))" if not family.labels else f"sum by ({family.labels[0]}) (rate({full}[5m]))",
        "gauge": full if not family.labels else f"max by ({family.labels[0]}) ({full})",
        "histogram": f"histogram_quantile(0.95, sum by (le) (rate({full}_bucket[5m])))",
    }
    return (
        f"# Metric `{name}`\n\n{family.help}\n\nA {family.kind}, in Prometheus `{full}`.\n\n## Labels\n\n{labels}\n"
        f"## A query\n\n```promql\n{queries[family.kind]}\n```\n"
    )
