"""Django: jobs in the `jobs` module of each installed app, and database connections that are looked after.

    app = App(servers=[...], include=job_modules, middleware=[DjangoConnections()])

A worker sets Django up when it imports the jobs; DJANGO_SETTINGS_MODULE says which settings, as for every program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import django
from django.apps import apps
from django.db import close_old_connections, reset_queries
from django.utils.module_loading import module_has_submodule

from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.middleware import Middleware


def job_modules(module: str = "jobs") -> Iterable[str]:
    """The modules of that name in the installed apps, as `include` takes them. Sets Django up where nobody has yet."""
    if not apps.ready:
        django.setup()
    found = [config for config in apps.get_app_configs() if module_has_submodule(config.module, module)]
    return [f"{config.name}.{module}" for config in found]


class DjangoConnections(Middleware):
    """Around a job what Django does around a request: connections that are broken or older than CONN_MAX_AGE are
    closed, and the list of queries that DEBUG keeps begins anew.

    For plain functions. A coroutine calls Django by its asynchronous methods, whose threads have connections of their
    own.
    """

    def before(self, context: JobContext) -> None:
        reset_queries()
        close_old_connections()

    def after(self, context: JobContext, result: Any) -> None:
        close_old_connections()

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        close_old_connections()
