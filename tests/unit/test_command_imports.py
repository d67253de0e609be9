"""The modules that a command imports: all that `pinlater` waits for before it does anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

HELP = {
    "pinlater",
    "pinlater.cli",
    "pinlater.cli.exit_codes",
    "pinlater.command_group",
    "pinlater.errors",
    "pinlater.near_names",
    "pinlater.printable",
    "pinlater.redaction",
    "pinlater.standard_streams",
}
"""All of ours that `pinlater --help` needs."""

MORE_OF_STATS = {
    "pinlater.api",
    "pinlater.background_tasks",
    "pinlater.clock",
    "pinlater.durations",
    "pinlater.forks",
    "pinlater.held_up_loop",
    "pinlater.log_guard",
    "pinlater.password_search",
    "pinlater.schedule",
    "pinlater.setting_kinds",
    "pinlater.sizes",
    "pinlater.text_table",
    "pinlater.written",
}
"""What `pinlater queue stats` needs besides, beside the packages that follow."""

PACKAGES_OF_STATS = {"cli", "client", "data_folder", "job_filters", "model", "wire"}
COMMANDS_OF_STATS = {
    "admin",
    "bulk_changes",
    "completion",
    "connection",
    "exit_codes",
    "filtered_jobs",
    "job_keys",
    "job_states",
    "job_text",
    "job_views",
    "output",
    "progress",
    "queue",
    "table_looks",
    "target",
    "times",
}
TAKE_LONG = {"aiohttp", "jinja2", "msgspec", "structlog", "sqlalchemy", "thriftpy2", "typing_extensions", "uvloop"}
"""Modules of others, of which each would take a tenth of the time of a command, or more."""


def imported_by(*arguments: str) -> set[str]:
    """What the command imports until it ends, whatever it comes to."""
    code = f"""
import sys
from pinlater.cli import main
try:
    main({[*arguments]})
finally:
    print("\\n", *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_imports_no_client() -> None:
    loaded = imported_by("--help")
    assert {each for each in loaded if each.partition(".")[0] == "pinlater"} == HELP
    assert not {"asyncio", "ssl"} & loaded


@pytest.mark.parametrize(
    "command", [("queue", "stats"), ("job", "scan", "mail", "--state", "failed"), ("queue", "list")]
)
def test_a_command_imports_the_client_and_nothing_that_takes_long(command: tuple[str, ...]) -> None:
    loaded = imported_by(*command, "--server", "127.0.0.1:1")
    assert not TAKE_LONG & loaded
    ours = {each for each in loaded if each.partition(".")[0] == "pinlater"} - HELP - MORE_OF_STATS
    assert {each.split(".")[1] for each in ours} <= PACKAGES_OF_STATS


def test_the_statistics_of_queues_import_these_commands_alone() -> None:
    loaded = imported_by("queue", "stats", "--server", "127.0.0.1:1")
    assert {each.rpartition(".")[2] for each in loaded if each.startswith("pinlater.cli.")} == COMMANDS_OF_STATS
