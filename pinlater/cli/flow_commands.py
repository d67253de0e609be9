"""`pinlater flow`: trees of stages whose items stream through them. What makes, fills and ends them stands here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pinlater.cli.completion import offer_stages
from pinlater.cli.connection import (
    EXIT_CODES,
    ServerGroup,
    can_ask,
    confirm,
    error_text,
    say,
    talks_patiently,
    talks_to_server,
)
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.flow_files import ItemKeys, Line, read_flow, read_lines
from pinlater.cli.flow_views import flow_argument, items, list_flows, metadata_of, status, wait
from pinlater.cli.job import opened
from pinlater.cli.job_views import slices
from pinlater.cli.output import Output, counted, open_output, output_option
from pinlater.cli.progress import Progress
from pinlater.client.client import Client
from pinlater.errors import RequestInvalid
from pinlater.flows.flow_limits import MAX_CALL_BYTES, MAX_ITEMS
from pinlater.model.flow_words import NewFlow, Stage
from pinlater.printable import json_text


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater flow create --file payroll.toml
  pinlater flow create resize --stage shrink:thumbnails --items photos.jsonl --seal
  pinlater flow status 4f1c0b… --watch
  pinlater flow items 4f1c0b… --state failed

{EXIT_CODES}""",
)
def flow() -> None:
    """Run work in several stages, each on many items (docs/flows.md)."""


# -- making and filling ------------------------------------------------------------------------------------------------


def _item_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the keys of items come from, as the argument `keys`."""

    @functools.wraps(command)
    def with_keys(dedupe_key_from: str, serialize_key_from: str, keyed: bool, **options: Any) -> None:
        if keyed and (dedupe_key_from or serialize_key_from):
            raise click.UsageError("--keyed lines have their keys beside the payload: give no --…-key-from")
        command(keys=ItemKeys(dedupe_key_from, serialize_key_from, keyed), **options)

    decorated: Callable[..., Any] = with_keys
    for option in (
        click.option(
            "--keyed",
            is_flag=True,
            help='An item is {"payload": …, "dedupe_key": …, "serialize_key": …}, keys as needed.',
        ),
        click.option(
            "--serialize-key-from",
            default="",
            metavar="FIELD",
            help="The field of the payload, as in user.id, whose items run one at a time, in order.",
        ),
        click.option(
            "--dedupe-key-from",
            default="",
            metavar="FIELD",
            help="The field of the payload, as in user.id, of which a stage takes each value once.",
        ),
    ):
        decorated = option(decorated)
    return decorated


@flow.command(
    short_help="Create a flow, from a file or from --stage.",
    epilog="""\b
Examples:
  pinlater flow create --file payroll.toml
  pinlater flow create --file payroll.toml --dedupe-key 2026-11 --items users.jsonl --dedupe-key-from user --seal
  pinlater flow create mails --stage render:render-mails --stage send:send-mails:send_mail --max-failures 3
  make-users | pinlater flow create mails --stage send:send-mails --items - --seal""",
)
@click.argument("name", required=False)
@click.option("--file", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="A flow in TOML.")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="NAME:QUEUE[:JOB]",
    help="A stage, where there is no file; repeatable: each gets the items of the one before.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(min=0),
    metavar="N",
    help="How often an item may fail and is tried again. [default: 0]",
)
@click.option("--dedupe-key", metavar="KEY", help="While a flow of this name and key is kept, no second one is made.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata of the flow; repeatable.")
@click.option(
    "--items",
    "source",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Items for its first stage, a line of JSON for each; - for standard input.",
)
@_item_options
@click.option("--seal", is_flag=True, help="No items but these come into stages without a parent.")
@output_option
@talks_patiently
def create(
    client: Client,
    name: str | None,
    file: Path | None,
    stages: Sequence[str],
    max_failures: int | None,
    dedupe_key: str | None,
    metadata: Sequence[str],
    source: str | None,
    keys: ItemKeys,
    seal: bool,
    format: str,
) -> None:
    """Make a flow whole, with all its stages, and print its id. Queues that are not there are made.

    Keys of the file: name, dedupe_key, metadata, ttl, on_complete (queue and job, or url), on_failure (go-on,
    stop-stage, stop-flow), and a table [[stage]] for each stage: name, queue, job, parent, payload (an expression in
    JMESPath of what the parent got and returned) or applet, max_failures, backoff, max_backoff, priority, seal (now,
    manual), final, tags, group, items, dedupe_key_from, serialize_key_from. docs/cli.md has an example.

    NAME, --dedupe-key and --metadata take precedence over the file. Items of --items are added behind those of the
    file, in slices of 1,000; with keys of their own, and a --dedupe-key, the same command goes on after a break.
    """
    new = _new_flow(name, file, stages, max_failures or 0)
    if file is not None and max_failures is not None:
        raise click.UsageError("--max-failures is for --stage; the file says it for each stage")
    if source is None and keys != ItemKeys():
        raise click.UsageError("keys of items are for --items")
    roots = [each.name for each in new.stages if not each.parent]
    if source is not None and len(roots) > 1:
        raise click.UsageError(f"--items are for one stage, and {', '.join(roots)} have no parent: use `flow add`")
    sealed = {*new.sealed, *(roots if seal else ())}
    new = replace(
        new,
        dedupe_key=new.dedupe_key if dedupe_key is None else dedupe_key,
        metadata={**new.metadata, **metadata_of(metadata)},
        sealed=() if source is not None else sorted(sealed),
    )
    with ExitStack() as stack:
        lines = None if source is None else _lines(source, keys, stack)
        try:
            created = client.create_flow(new)
        except RequestInvalid as error:
            if file is None:
                raise
            raise click.UsageError(f"{file}: {error_text(error)}") from None
        click.echo(created.id if format == "table" else json_text({"id": created.id, "is_new": created.is_new}))
        if not created.is_new:
            say(f"flow {created.id} was there already for its dedupe key; its stages are as they were")
        if lines is not None:
            _fill(client, created.id, created.is_new, roots[0], lines, keys, bool(sealed))


def _new_flow(name: str | None, file: Path | None, stages: Sequence[str], max_failures: int) -> NewFlow:
    """Without what the command line says besides. UsageError."""
    if (file is None) == (not stages):
        raise click.UsageError("give --file, or NAME and --stage")
    if file is not None:
        return read_flow(file, name)
    if name is None:
        raise click.UsageError("a flow of --stage needs a NAME")
    made: list[Stage] = []
    for text in stages:
        words = text.split(":", 2)
        if len(words) < 2 or not all(words):
            raise click.UsageError(f"--stage {text!r} is not NAME:QUEUE or NAME:QUEUE:JOB")
        parent = made[-1].name if made else ""
        job = words[2] if len(words) == 3 else ""
        made.append(Stage(words[0], job, words[1], parent, max_failures=max_failures))
    made[-1] = replace(made[-1], is_final=True)
    return NewFlow(name, made)


def _fill(
    client: Client, flow_id: str, is_new: bool, stage: str, lines: Iterator[Line], keys: ItemKeys, seal: bool
) -> None:
    """Items of a flow that was made just now, or before a break."""
    if not is_new:
        if not keys.are_named:
            raise click.UsageError(
                f"flow {flow_id} is there, and items without dedupe keys would come twice: nothing was added; "
                f"`pinlater flow add {flow_id} {stage}` adds them all the same"
            )
        if any(each.stage.name == stage and each.is_sealed for each in client.get_flow(flow_id).stages):
            say(f"stage {stage} is sealed already; nothing was added")
            return
    _add(client, flow_id, stage, lines, None)
    if seal:
        client.seal_stage(flow_id)


@flow.command(
    short_help="Add items to a stage.",
    epilog="""\b
Examples:
  pinlater flow add 4f1c0b… calculate '{"user": 1}' '{"user": 2}'
  pinlater flow add 4f1c0b… calculate --file users.jsonl --dedupe-key-from user --seal
  jq -c '{payload: ., dedupe_key: .mail}' users.jsonl | pinlater flow add 4f1c0b… calculate - --keyed""",
)
@flow_argument
@click.argument("stage", shell_complete=offer_stages)
@click.argument("payloads", nargs=-1, metavar="[JSON]...")
@click.option(
    "--file", "file", type=click.Path(allow_dash=True), help="A line of JSON for each item; - for standard input."
)
@_item_options
@click.option("--seal", is_flag=True, help="No more come into the stage after them.")
@output_option
@talks_patiently
def add(
    client: Client,
    flow_id: str,
    stage: str,
    payloads: Sequence[str],
    file: str | None,
    keys: ItemKeys,
    seal: bool,
    format: str,
) -> None:
    """Add items to STAGE of FLOW, and print their numbers. Each is the JSON of its payload; - reads standard input,
    one to a line, as --file does.

    They are added in slices of 1,000 items or 4 MiB, each whole or not at all; empty lines are left out. A line that is
    no item ends it, with its number, and with how many were added before. With dedupe keys the same command goes on
    after a break: an item whose key is taken is not added again, and the number of the one that has it is printed.
    """
    if (file is None) == (not payloads):
        raise click.UsageError("give items as JSON, or --file, or - for standard input")
    if "-" in payloads:
        if len(payloads) > 1:
            raise click.UsageError("- stands for all of standard input: give nothing beside it")
        file, payloads = "-", ()
    output = open_output(format, ["number"])
    with ExitStack() as stack:
        lines = _given(payloads, keys) if file is None else _lines(file, keys, stack)
        _add(client, flow_id, stage, lines, output)
    output.close()
    if seal:
        client.seal_stage(flow_id, stage)
        say(f"stage {stage} is sealed")


def _lines(source: str, keys: ItemKeys, stack: ExitStack) -> Iterator[Line]:
    """Those of a file, which is open until the end of `stack`. UsageError: it cannot be opened."""
    return read_lines(stack.enter_context(opened(source)), "standard input" if source == "-" else source, keys)


def _given(payloads: Sequence[str], keys: ItemKeys) -> Iterator[Line]:
    for number, text in enumerate(payloads, 1):
        try:
            yield Line(number, keys.item(text.encode("utf-8", "surrogateescape")))
        except ValueError as error:
            raise click.UsageError(f"item {number}: {error}") from None


def _add(client: Client, flow_id: str, stage: str, lines: Iterator[Line], output: Output | None) -> None:
    """Slice by slice, and what came of it is said however it ends."""
    with Progress("items added") as progress:
        for part in slices(lines, MAX_ITEMS, MAX_CALL_BYTES, lambda line: len(line.item.payload)):
            numbers = client.add_flow_items(flow_id, stage, [line.item for line in part])
            progress.up_to = f", those up to line {part[-1].number:,},"
            progress.add(len(part))
            if output is not None:
                output.write([{"number": number} for number in numbers])
    say(f"{counted(progress.done, 'item')} of stage {stage}: added, or there already")


@flow.command(
    short_help="Seal a stage: no more items come into it.",
    epilog="""\b
Examples:
  pinlater flow seal 4f1c0b…
  pinlater flow seal 4f1c0b… calculate""",
)
@flow_argument
@click.argument("stage", default="", shell_complete=offer_stages)
@talks_to_server
def seal(client: Client, flow_id: str, stage: str) -> None:
    """Take no more items into STAGE, or into all stages without a parent; a flow ends when its stages are sealed and no
    item is pending. Once more is no error. Stages with a parent are sealed with it, unless they are kept open.
    """
    client.seal_stage(flow_id, stage)
    say(f"stage {stage} is sealed" if stage else "the stages without a parent are sealed")


# -- ending ------------------------------------------------------------------------------------------------------------

_yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _ask(client: Client, flow_id: str, what: str, yes: bool, if_not: str) -> None:
    """Says what is meant before it asks. SystemExit: it is not meant."""
    if yes:
        return
    if not can_ask():
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    found = client.get_flow(flow_id)
    count, pending = (sum(getattr(each, name) for each in found.stages) for name in ("items", "pending"))
    confirm(f"{what} flow {found.name} {flow_id}, with {counted(count, 'item')}, {pending:,} of them pending?", if_not)


@flow.command(
    short_help="End a flow: what has not ended fails as cancelled.",
    epilog="""\b
Examples:
  pinlater flow cancel 4f1c0b…
  pinlater flow cancel 4f1c0b… --yes""",
)
@flow_argument
@_yes_option
@talks_to_server
def cancel(client: Client, flow_id: str, yes: bool) -> None:
    """End a flow: its items that have not ended fail as cancelled, and workers are asked to stop. Once more is no
    error. Its callback is made when nothing of it runs any more.
    """
    _ask(client, flow_id, "Cancel", yes, "nothing was cancelled")
    found = client.cancel_flow(flow_id)
    say(f"flow {flow_id} {'is over' if found.completed_ms is not None else 'ends when nothing of it runs'}")


@flow.command(
    short_help="Remove a flow and all its items.",
    epilog="""\b
Examples:
  pinlater flow delete 4f1c0b…
  pinlater flow delete 4f1c0b… --yes --timeout 10m""",
)
@flow_argument
@_yes_option
@talks_to_server
def delete(client: Client, flow_id: str, yes: bool) -> None:
    """Remove a flow and all its items; one that runs is cancelled first. A large one takes long: give a --timeout, or
    call again where that was too short.
    """
    _ask(client, flow_id, "Delete", yes, "nothing was deleted")
    client.delete_flow(flow_id)
    say(f"flow {flow_id} was deleted")


@flow.command(
    short_help="Try again what a flow failed at.",
    epilog="""\b
Examples:
  pinlater flow resume 4f1c0b…
  pinlater flow resume 4f1c0b… --stage pay --expression '{user: payload.user, amount: result.total}'""",
)
@flow_argument
@click.option("--stage", default="", metavar="NAME", shell_complete=offer_stages, help="Only the items of this stage.")
@click.option("--expression", default="", metavar="JMESPATH", help="Make them by this one from now on.")
@talks_to_server
def resume(client: Client, flow_id: str, stage: str, expression: str) -> None:
    """Try again what a flow failed at: children that could not be made, and a callback that was given up.

    What still keeps it from going on is said.
    """
    found = client.resume_flow(flow_id, stage=stage, expression=expression)
    for problem in found.troubles:
        say(problem)
    say(f"flow {flow_id} {'is over' if found.completed_ms is not None else 'goes on'}")


@flow.command(
    short_help="Try items again that have ended; a flow that is over opens again.",
    epilog="""\b
Examples:
  pinlater flow retry 4f1c0b… --failed
  pinlater flow retry 4f1c0b… --failed --stage pay
  pinlater flow retry 4f1c0b… 17 18
  pinlater flow retry 4f1c0b… 17 --and-follows

\b
Exit codes: 0 all that was meant is tried again; 5 some of it was refused, which is said with the reason; others as of
all commands.""",
)
@flow_argument
@click.argument("numbers", nargs=-1, type=click.IntRange(1), metavar="[ITEM]...")
@click.option("--failed", is_flag=True, help="All items that have failed.")
@click.option("--stage", default="", metavar="NAME", shell_complete=offer_stages, help="With --failed: of this stage.")
@click.option(
    "--and-follows",
    is_flag=True,
    help="Remove first what had followed from them, and let stages go on that were stopped.",
)
@talks_to_server
def retry(client: Client, flow_id: str, numbers: Sequence[int], failed: bool, stage: str, and_follows: bool) -> None:
    """Try items again, by their numbers as `flow items` lists them, or all that have failed. Each gets a whole round of
    tries. A flow that is over opens again; its next end has the next number, and its callback comes once more.

    Refused is an item that has not ended or has succeeded, one whose stage was stopped or cancelled, and one below
    whose stage a caller has sealed one. --and-follows takes all of these that have ended.
    """
    if bool(numbers) == failed:
        raise click.UsageError("give numbers of items, or --failed")
    if stage and not failed:
        raise click.UsageError("--stage is for --failed: a number names its item by itself")
    found = client.retry_flow_items(flow_id, numbers, stage=stage, failed=failed, and_follows=and_follows)
    for each in found.refused:
        named = f" ({', '.join(map(str, each.numbers[:10]))})" if each.numbers else ""
        say(f"{counted(each.count, 'item')} not retried{named}: {each.reason}")
    removed = f", and {found.removed:,} that had followed are removed" if found.removed else ""
    verb = "is" if found.retried == 1 else "are"
    say(f"{counted(found.retried, 'item')} of flow {flow_id} {verb} tried again{removed}")
    if found.refused:
        raise SystemExit(EXIT_INCOMPLETE)


for command in (status, items, wait, list_flows):
    flow.add_command(command)
