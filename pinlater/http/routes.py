"""The routes of the HTTP interface."""

from __future__ import annotations

from aiohttp import web


def add_routes(app: web.Application) -> None:
    """Every route, to an application that is not running yet."""
