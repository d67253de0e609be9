"""`pinlater dashboard`: a link that opens the dashboard once, and a browser that follows it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import webbrowser
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

import click

from pinlater.cli.admin import PASSWORD_HELP, data_folder, find_password, needs_password
from pinlater.cli.connection import EXIT_CODES, ServerCommand, say, server_options, who
from pinlater.cli.dashboard_link import DEFAULT_URL, Shown, make_link, reachable, read_address
from pinlater.cli.output import output_option, write_one
from pinlater.cli.target import Target
from pinlater.client.addresses import cluster_dashboard, target_cluster
from pinlater.client.client_tls import Tls
from pinlater.config.values import UrlPrefix
from pinlater.password_search import is_here
from pinlater.written import variable

API_VARIABLE = "PINLATER_API"
_READ_WITHIN_S = 10.0
"""So long a browser may take to read the file that leads it to the link."""


@click.command(
    cls=ServerCommand,
    help=f"""Open the dashboard in a browser.

    It shows a token, or the admin password, to the HTTP interface, which answers with a link that opens the dashboard
    once, within five minutes. Without a display the link is printed.

    The address is that of --url, or of the cluster in clusters.toml (`dashboard`), or the one that the server of the
    data folder wrote there; else {DEFAULT_URL}.

    {PASSWORD_HELP}""",
    epilog=f"""\b
Examples:
  pinlater dashboard
  pinlater dashboard --print                        only print the link
  pinlater dashboard --cluster mail
  pinlater dashboard --url https://queues.example:9012 --token-file me.token --ca ca.pem

{EXIT_CODES}""",
)
@click.option("--url", metavar="URL", help="Where the HTTP interface is, as http://HOST:PORT or https://HOST/PREFIX.")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open nothing.")
@output_option
@needs_password
@server_options
def dashboard(url: str | None, only_print: bool, target: Target, format: str) -> None:
    try:
        address = (url or _address(target)).rstrip("/")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or not _is_prefix(parts.path):
            raise ValueError(
                f"--url: {address!r} is no address; allowed: http://HOST:PORT or https://HOST:PORT, with the path of "
                "--api-prefix behind it where there is one"
            )
        token, tls = target.token(), target.tls()
        text = "" if token is None else token.read()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    password = "" if text else find_password("" if is_here(parts.hostname) else parts.hostname)
    link = make_link(address, Shown(text, password, who()), tls if isinstance(tls, Tls) else None)
    if only_print or format != "table" or not _has_display() or not _open(link):
        write_one(format, "link", link)


def _address(target: Target) -> str:
    """ValueError."""
    if name := target_cluster(target.servers, target.cluster):
        return cluster_dashboard(name)
    if found := read_address(data_folder()):
        return found
    host, _, port = variable(API_VARIABLE).rpartition(":")
    if host and port.isdecimal() and port != "0":
        return reachable(f"http://{host}:{port}")
    return DEFAULT_URL


def _is_prefix(path: str) -> bool:
    try:
        UrlPrefix().parse(path)
    except ValueError:
        return False
    return True


def _has_display() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open(link: str) -> bool:
    """Have a browser follow it. The link is in a file that this user alone can read: what a program is started with is
    for all users of the machine to see.
    """
    with tempfile.NamedTemporaryFile(
        "w", prefix="pinlater-", suffix=".html", dir=os.environ.get("XDG_RUNTIME_DIR") or None, delete=False
    ) as file:
        file.write(
            '<!DOCTYPE html><meta charset="utf-8"><title>PinLater</title>'
            f'<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={escape(link)}">'
            f'<a href="{escape(link)}">Go on to the dashboard</a>\n'
        )
    try:
        is_open = webbrowser.open(Path(file.name).as_uri())
        if is_open:
            say("the dashboard is open in a browser; where it is not: pinlater dashboard --print")
            time.sleep(_READ_WITHIN_S)
        return is_open
    finally:
        os.unlink(file.name)
