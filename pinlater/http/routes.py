"""The routes of the HTTP interface, one table. docs/http-routes.md and the OpenAPI document are made of it.

A further route is a function in one of the modules that are named like it; each makes one call of wire/methods.py.
"""

from __future__ import annotations

from aiohttp import web

from pinlater.http.flow_routes import FLOW_ROUTES
from pinlater.http.job_routes import JOB_ROUTES
from pinlater.http.job_tree_routes import JOB_TREE_ROUTES
from pinlater.http.operator_routes import OPERATOR_ROUTES
from pinlater.http.route import Route, add_route

ROUTES: tuple[Route, ...] = (*JOB_ROUTES, *FLOW_ROUTES, *JOB_TREE_ROUTES, *OPERATOR_ROUTES)


def add_routes(app: web.Application) -> None:
    """Every route, to an application that is not running yet."""
    for route in ROUTES:
        add_route(app.router, route.verb, route.path, route.handler())
