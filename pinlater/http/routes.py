"""The routes of the HTTP interface, one table. docs/http-routes.md and the OpenAPI document are made of it.

A further route is an entry in job_routes.py or operator_routes.py; each makes one call of wire/methods.py.
"""

from __future__ import annotations

from aiohttp import web

from pinlater.http.job_routes import JOB_ROUTES
from pinlater.http.operator_routes import OPERATOR_ROUTES
from pinlater.http.route import Route

ROUTES: tuple[Route, ...] = (*JOB_ROUTES, *OPERATOR_ROUTES)


def add_routes(app: web.Application) -> None:
    """Every route, to an application that is not running yet."""
    for route in ROUTES:
        app.router.add_route(route.verb, route.path, route.handler())
