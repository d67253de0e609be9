"""The templates of the pages: Jinja, with everything escaped that a template does not write itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pinlater.dashboard import formats
from pinlater.dashboard.part_failed import PartFailed
from pinlater.dashboard.static_files import StaticFiles
from pinlater.durations import span_text
from pinlater.http.manual import is_manual_here
from pinlater.job_filters.job_filter import quoted

_CLOCKS = re.compile(r"(<time\b[^>]*>)[^<]*(?=</time>)")


class TemplateEngine:
    """Renders templates of the folder `templates/`.

    What they write passes `formats.shown` and is escaped; the filters `lines`, for texts of several lines, and
    `segment`, for parts of paths, do their own. A value that is not there is an error.
    """

    def __init__(self, static: StaticFiles, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        folder = resources.files("pinlater.dashboard") / "templates"
        self._environment = Environment(
            loader=FileSystemLoader(Path(str(folder))),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=formats.shown,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            cache_size=-1,
        )
        self._environment.globals["static"] = static.path
        self._environment.globals["has_manual"] = is_manual_here()
        self._environment.tests["failed"] = lambda part: isinstance(part, PartFailed)
        self._environment.filters |= {
            "number": formats.number_text,
            "bytes": formats.bytes_text,
            "span": span_text,
            "moment": lambda ms, is_span=False: formats.time_element(ms, now_ms(), is_span=is_span),
            "segment": formats.segment,
            "clock": formats.clock_text,
            "detail": lambda detail: formats.detail_text(detail, now_ms()),
            "lines": formats.lines_text,
            "quoted": quoted,
        }

    def render(self, template: str, /, **values: Any) -> str:
        return self._environment.get_template(template).render(values)


def without_clocks(html: str) -> str:
    """The page without the texts that change as time passes by itself, which scripts keep right."""
    return _CLOCKS.sub(r"\1", html)
