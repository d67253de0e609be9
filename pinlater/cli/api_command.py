"""`pinlater api`: the HTTP interface alone, for a cluster whose servers run elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog

from pinlater.api_process import OF_HTTP, POOL, ApiProcess, history_path
from pinlater.cli.connection import say, server_options
from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from pinlater.cli.target import Target
from pinlater.client.addresses import target_cluster
from pinlater.client.async_client import AsyncClient
from pinlater.client.token import Token
from pinlater.config import SETTINGS, Config, ConfigInvalid, default_of, load
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.http.openapi import openapi_json
from pinlater.listener import listening, raise_descriptor_limit
from pinlater.logs import configure
from pinlater.model import AccessAction, RequestContext
from pinlater.program_start import begin_service, stop_signals
from pinlater.redaction import SECRETS
from pinlater.server.server_process import StartRefused, new_loop

_log = structlog.get_logger("pinlater.api")
_CHECK_WITHIN_S = 5.0
_DEFAULT_ADDRESS = "127.0.0.1:9012"
_FLAGS = (
    *("api_prefix", "http_names", "drain_timeout_ms", "tls_cert", "tls_key", "tls", "tls_client_ca"),
    *("max_connections", "max_peer_connections", "max_frame_bytes", "max_buffered_bytes"),
    *("half_sent_timeout_ms", "write_timeout_ms", "history", "log_level", "log_format"),
)
"""Settings that mean here what they mean for a server."""


def _setting_options(command: Any) -> Any:
    for setting in reversed([each for each in SETTINGS if each.field in _FLAGS]):
        text = f"{setting.help} Allowed: {setting.kind.allowed}. [default: {default_of(setting) or 'none'}]"
        metavar, multiple = setting.kind.metavar, setting.kind.repeatable
        command = click.option(f"--{setting.name}", setting.field, metavar=metavar, multiple=multiple, help=text)(
            command
        )
    return command


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  pinlater api --server queue-1:9010 --server queue-2:9010 --listen 0.0.0.0:9012 --http-names queues.example
  pinlater api --cluster mail --tls-cert api.pem --tls-key api.key
  pinlater api --server queue-1:9010 --ca ca.pem --client-cert gateway.pem --client-key gateway.key

--tls-cert is what it shows to its own callers, --client-cert what it shows to the servers.

\b
Callers are known by the tokens that they show. To speak for those with a certificate (--tls-client-ca), and for those
with neither, it needs a token of its own whose only role is gateway: --token-file, PINLATER_TOKEN_FILE, or in
clusters.toml. The history of queues, which the dashboard shows, is kept in memory unless --history PATH names a file.
It has what the token of --history-token-file may read (role history), else what callers without one may.

\b
SIGTERM or SIGINT answers what was read and ends. The settings here may stand in the environment too.
Exit codes: 0 stopped by a signal, 1 cannot start, 2 mistakes in the command line.""",
)
@click.option("--listen", metavar="HOST:PORT", default=_DEFAULT_ADDRESS, show_default=True, help="Where it is served.")
@click.option(
    "--history-token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The token by which the history is recorded, with the role history.",
)
@server_options
@_setting_options
@click.pass_context
def api(
    context: click.Context,
    /,
    listen: str,
    history_token_file: Path | None,
    target: Target,
    **given: Any,
) -> None:
    """Serve the HTTP interface for a cluster."""
    if context.invoked_subcommand is not None:
        return
    names = {setting.field: setting.name for setting in SETTINGS}
    flags: dict[str, str | Sequence[str]] = {"api": listen, "http": "none"}
    flags |= {names[field]: value for field, value in given.items() if value not in (None, ())}
    own = {f"PINLATER_{names[field].upper().replace('-', '_')}" for field in _FLAGS}
    try:
        config = load(flags, {name: value for name, value in os.environ.items() if name in own}).config
    except ConfigInvalid as invalid:
        for mistake in invalid.mistakes:
            say(str(mistake))
        raise SystemExit(EXIT_USAGE) from None
    begin_service()
    configure(config.log_level, config.log_format)
    raise_descriptor_limit()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(config, target, history_token_file))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except (OSError, StartRefused) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        say(f"cannot start: {reason}")
        raise SystemExit(EXIT_FAILED) from None


@api.command()
def openapi() -> None:
    """Print the OpenAPI document of the HTTP interface."""
    click.echo(openapi_json())


async def _serve(config: Config, target: Target, history_token_file: Path | None) -> None:
    """Until a signal. OSError: the address cannot be had. StartRefused, ValueError."""
    found = target.token()
    token = "" if found is None else found.read()
    history_token = "" if history_token_file is None else Token(file=str(history_token_file)).read()
    SECRETS.keep([each for each in (token, history_token) if each])
    connect = partial(AsyncClient, servers=target.servers, cluster=target.cluster, tls=target.tls(), **OF_HTTP)
    client = connect(pool=POOL)
    try:
        process = ApiProcess(
            client,
            config,
            token,
            history_token=history_token,
            history_path=history_path(config, None),
            cluster=target_cluster(target.servers, target.cluster) or "",
            connect=connect,
        )
        await _check_gateway(client, token)
        host, _, port = config.api.rpartition(":")
        listeners = listening(host.strip("[]"), int(port))
    except BaseException:
        await client.close()
        raise
    await process.open()
    bound = f"{host}:{listeners[0].getsockname()[1]}"
    for listener in listeners:
        process.adopt(listener)
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    url = f"{'https' if config.tls_cert else 'http'}://{bound}{config.api_prefix}/"
    _log.info("api_ready", address=url, dashboard=f"{url}dashboard")
    try:
        await stop.wait()
        _log.info("stopping")
        await process.drain(None, config.drain_timeout_ms / 1000)
    finally:
        await process.close()
    _log.info("stopped")


async def _check_gateway(client: AsyncClient, token: str) -> None:
    """Who shows nothing must not get what this process may. StartRefused."""
    context = RequestContext("http", token=token or None)
    try:
        view = await client.get_access(context=context, timeout=_CHECK_WITHIN_S)
    except MethodUnknown:  # servers of before tokens and certificates
        return
    except PinLaterError as error:
        raise StartRefused(f"no server says what this process may: {error.message}") from error
    actions = {action for grant in view.grants for action in grant.actions}
    if token and actions != {AccessAction.GATEWAY}:
        raise StartRefused(
            "the token is not one that may only speak for others; make one: `pinlater token create NAME --role gateway`"
        )
    if not token and view.identity.startswith("cert:"):
        raise StartRefused(
            "the servers know this process by its certificate, so callers without one would get its rights: give it a "
            "token whose only role is gateway (--token-file)"
        )
