"""Options that make a body of the worker framework: a type of job, and its arguments as JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from pinlater.cli.completion import offer_job_types


def call_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--job and --args, as the argument `call`: the body, or None. UsageError: --args without --job."""

    @functools.wraps(command)
    def with_call(job_name: str | None, job_args: object, **options: Any) -> None:
        if job_name is None and job_args is not None:
            raise click.UsageError("--args are those of a --job")
        command(call=None if job_name is None else _call(job_name, job_args), **options)

    decorated: Callable[..., Any] = with_call
    for option in (
        click.option(
            "--args",
            "job_args",
            type=_arguments,
            metavar="JSON",
            help='With --job: its arguments, in order as in \'["ada", 3]\', or by name as in \'{"to": "ada"}\'.',
        ),
        click.option(
            "--job",
            "job_name",
            metavar="NAME",
            shell_complete=offer_job_types,
            help="The body is a call of this type of job, as the worker framework reads it.",
        ),
    ):
        decorated = option(decorated)
    return decorated


def _arguments(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"it is no JSON: {error}") from None
    if not isinstance(found, list | dict):
        raise click.BadParameter('it is no list and no object; write it as in \'["ada", 3]\' or \'{"to": "ada"}\'')
    return found


def _call(name: str, arguments: Any) -> bytes:
    # its format takes time to import, and most commands make no call
    from pinlater.job_body import call_body  # noqa: PLC0415

    try:
        return call_body(name, arguments if arguments is not None else [])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--job") from None
