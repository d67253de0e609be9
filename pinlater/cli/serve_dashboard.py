"""The announcer of a server's dashboard: its address in the data folder, and on a terminal a link that opens it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from pinlater.background_tasks import BackgroundTasks
from pinlater.cli.connection import who
from pinlater.cli.dashboard_link import Shown, make_link, reachable, write_address
from pinlater.client.client_tls import PinnedTls
from pinlater.data_folder.password import PASSWORD_FILE, PasswordFileUnsafe, read_password_file
from pinlater.errors import PinLaterError
from pinlater.password_search import is_here


class DashboardAnnouncer:
    """Hears where the HTTP process of a server answers. A link is written to a terminal alone, never to a log: who has
    it may do what the admin password allows.
    """

    def __init__(self) -> None:
        self._tasks = BackgroundTasks()
        self._has_announced = False

    def api_ready(self, url: str, config: Mapping[str, Any]) -> None:
        """`config` as `config.to_plain` writes it."""
        address, folder = reachable(url), Path(config["data"]).expanduser()
        with suppress(OSError):  # then `pinlater dashboard` has to be told
            write_address(folder, address)
        if self._has_announced or not sys.stderr.isatty() or not is_here(urlsplit(address).hostname or ""):
            return
        self._has_announced = True
        try:
            password = read_password_file(folder / PASSWORD_FILE, is_server=True)
        except (OSError, PasswordFileUnsafe):
            return  # no server on the embedded store made one
        cert = config["tls_cert"]
        tls = PinnedTls(cert, cert, config["tls_key"] or None) if cert else None
        self._tasks.start(self._tell(address, Shown("", password, who()), tls))

    async def close(self) -> None:
        await self._tasks.drain()

    async def _tell(self, address: str, shown: Shown, tls: PinnedTls | None) -> None:
        with suppress(PinLaterError, OSError):  # the log has the address, and `pinlater dashboard` says what is wrong
            link = await asyncio.to_thread(make_link, address, shown, tls)
            click.echo(f"The dashboard, by a link that opens it once, within five minutes:\n  {link}", err=True)
