"""`pinlater completion`, and what a shell is offered: queues, schedules, flows, states, shards, clusters, settings.

What is offered comes from the servers that the command line so far means, within a second; where they do not answer,
nothing is offered, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

import pinlater
from pinlater.cli.target import Target
from pinlater.client.addresses import cluster_names
from pinlater.errors import PinLaterError
from pinlater.model import queue_order

_TIMEOUT_S = 1.0
_VARIABLE = "_{}_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("pinlater", "pinlater-worker")

_ROLES = ("producer", "worker", "viewer", "operator", "admin")

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
"""What may stand in place of the word that has begun so; `shell_complete` of an argument or option."""


def begun_with(texts: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of the texts that the word may become."""
    return [CompletionItem(text) for text in texts if text.startswith(incomplete)]


def _answers(ctx: click.Context, ask: Callable[[Any], Iterable[str]]) -> list[str]:
    """What the servers say that are meant so far."""
    try:
        target = Target.taken_from(dict(ctx.params))
        with pinlater.Client(
            servers=target.servers,
            cluster=target.cluster,
            tls=target.tls(),
            token=target.token() or "",
            timeout=_TIMEOUT_S,
            retry_unavailable=False,
        ) as client:
            return list(ask(client))
    except (PinLaterError, ValueError, OSError):
        return []


def offer_queues(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of queues, as people count."""
    return begun_with(sorted(_answers(ctx, lambda client: client.queue_names()), key=queue_order), incomplete)


def offer_schedules(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of schedules."""
    return begun_with(
        _answers(ctx, lambda client: [each.schedule.name for each in client.get_schedules(limit=1000).schedules]),
        incomplete,
    )


def offer_flows(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the newest flows."""
    return begun_with(_answers(ctx, lambda client: [each.id for each in client.get_flows().flows]), incomplete)


def offer_stages(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the stages of the flow that the line names before."""
    flow_id = ctx.params.get("flow_id") or next(iter(ctx.args), "")  # of a line whose last option has no value yet
    names = _answers(ctx, lambda client: [each.stage.name for each in client.get_flow(flow_id).stages])
    return begun_with(names, incomplete)


def offer_tokens(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of tokens."""
    return begun_with(_answers(ctx, lambda client: [each.name for each in client.get_tokens()]), incomplete)


def offer_job_types(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The types of job that workers know or run."""

    def names(client: Any) -> set[str]:
        workers = client.get_workers(include_running=True, limit=1_000).workers
        running = {job.job_type for worker in workers for job in worker.running}
        return (running | {name for worker in workers for name in worker.job_types}) - {""}

    return begun_with(sorted(_answers(ctx, names)), incomplete)


def offer_shards(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return begun_with(
        _answers(ctx, lambda client: [each.id for each in client.cluster_status(queues=[]).shards]), incomplete
    )


def offer_clusters(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names in clusters.toml."""
    try:
        return begun_with(cluster_names(), incomplete)
    except ValueError:
        return []


def only_first(offer: Offer) -> Offer:
    """Of several words of one argument, the first."""

    def first(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [] if ctx.params.get(param.name or "") else offer(ctx, param, incomplete)

    return first


def offer_roles(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those that every server has."""
    return begun_with(_ROLES, incomplete)


def one_of(*words: str) -> Offer:
    def offer(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return begun_with(words, incomplete.lower())

    return offer


@click.command(
    short_help="Print the completion script of a shell.",
    epilog="""\b
Examples:
  eval "$(pinlater completion bash)"                                 in ~/.bashrc
  eval "$(pinlater completion zsh)"                                  in ~/.zshrc, behind compinit
  pinlater completion fish > ~/.config/fish/completions/pinlater.fish
  eval "$(pinlater completion bash --program pinlater-worker)"       the same for pinlater-worker""",
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.option(
    "--program", type=click.Choice(PROGRAMS), default=PROGRAMS[0], show_default=True, help="The program to complete."
)
def completion(shell: str, program: str) -> None:
    """Print the completion script of SHELL.

    It offers commands and options; queues, shards, settings and types of job from the servers that the line names, or
    else the environment, within a second; states; and the clusters of clusters.toml.
    """
    made = get_completion_class(shell)
    assert made is not None
    variable = _VARIABLE.format(program.upper().replace("-", "_"))
    click.echo(made(click.Command(program), {}, program, variable).source())
