"""Marked secrets, planted in every form in which a server can be given one, and a search for them in what it tells.

To plant another kind: a form in `LIVE`, `MISTAKEN` or `REFUSED`, with {} where the secret stands, or `Marks.new()`
anywhere else. To search in another place: `Search.text` with its name. `Search.leaks` names what was found, and where.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from tests.forked_programs import run
from tests.server.running import PROGRAM

_MARK = re.compile(r"MARK[0-9a-f]{8}")
WITHIN_S = 60.0

LIVE = {
    "sentinels' redis": "redis+sentinel://u:{}@{down}/jobs/0",
    "sentinels": "redis+sentinel://{down}/jobs/0?sentinel_password={}",
    "cluster": "redis+cluster://u:{}@{down}/?shard=1",
    "postgres user": "postgresql+psycopg://u:{}@{down}/db",
    "postgres password=": "postgresql+psycopg://u@{down}/db?password={}",
    "mysql user": "mysql+pymysql://u:{}@{down}/db",
    "mysql user, encoded": "mysql+pymysql://u:a%2F{}%23%40@{down}/db",
    "mysql user, a slash behind digits": "mysql+pymysql://u:12/{}@{down}/db",
    "mysql password=": "mysql+pymysql://u@{down}/db?password={}",
    "mysql passwd=": "mysql+pymysql://u@{down}/db?charset=utf8mb4&passwd={}",
    "mysql Password= with an @": "mysql+pymysql://u@{down}/db?password={}@x",
    "mysql key": "mysql+pymysql://u@{down}/db?ssl_key=/none.pem&ssl_key_password={}",
    "redis user": "redis://u:{}@{down}/0",
    "redis user, encoded": "redis://:{}%2F%C3%A4@{down}/0",
    "redis user, an @ in it": "redis://:a@{}@{down}/0",
    "redis alone": "redis://{}@{down}/0",
    "redis password=": "redis://{down}/0?prefix=a&password={}",
    "redis over TLS": "rediss://u:{}@{down}/0?ssl_cert_reqs=none&ssl_check_hostname=false",
}
"""Stores that a server starts with, and cannot reach at {down}."""

MISTAKEN = {
    "a slash": "redis://u:{}/{}@h/0",
    "a slash, mysql": "mysql+pymysql://u:{}/{}@h/db",
    "a hash": "mysql+pymysql://u:{}#{}@h/db",
    "a question mark": "mysql+pymysql://u:{}?{}@h/db",
    "two @": "mysql+pymysql://u:{}@{}@h/db",
    "a slash behind digits": "redis://u:12/{}@h/0",
    "a bracket": "redis://u:{}[{}@h/0",
    "another scheme": "postgres://u:{}@h/db",
    "another scheme, a parameter": "postgres://u@h/db?password={}",
    "one slash": "redis:/u:{}@h/0",
    "no colon": "redis//:{}@h/0",
    "no slash": "redis:u:{}@h",
    "no scheme": "u:{}@h:6379",
    "no database": "mysql+pymysql://u:{}@h",
    "no host": "redis://u:{}@/0",
    "no host, a port that is none": "redis://u:{}",
    "a wrong id": "a-b=redis://u:{}@h/0",
    "sqlite with a host": "sqlite://u:{}@h/path",
}
"""Stores that no server starts with: mistakes of the configuration."""

REFUSED = {
    "a driver that is not there": "mysql+mysqldb://u@h/db?passwd={}",
    "a port that is none": "mysql+pymysql://u:{}@h:33x6/db",
    "a parameter that redis has not": "redis://h/0?passwrd={}",
    "a parameter that mysql has not": "mysql+pymysql://u@{down}/db?passwrd={}",
    "an ampersand in a password": "redis://h/0?password=a&{}=b",
    "a wrong database": "redis://u:{}@h/mail",
}
"""Stores that look right, and are not."""


@dataclass
class Marks:
    """Secrets that are found wherever they turn up; each knows what it was for."""

    meant_for: dict[str, str] = field(default_factory=dict)

    def new(self, what: str) -> str:
        mark = f"MARK{token_hex(4)}"
        self.meant_for[mark] = what
        return mark

    def urls(self, forms: Mapping[str, str], down: str = "127.0.0.1:1") -> list[str]:
        """With a mark of its own in each place."""
        found = []
        for what, form in forms.items():
            text = form.replace("{down}", down)
            while "{}" in text:
                text = text.replace("{}", self.new(what), 1)
            found.append(text)
        return found


@dataclass
class Search:
    """`literal`: secrets without a mark, as a hash."""

    marks: Marks
    literal: dict[str, str] = field(default_factory=dict)
    looked_at: dict[str, int] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def text(self, where: str, *texts: object) -> None:
        """Look into texts, bytes, or what anything else says of itself."""
        for each in texts:
            text = each.decode(errors="replace") if isinstance(each, bytes) else str(each)
            self.looked_at[where] = self.looked_at.get(where, 0) + len(text)
            for line in text.splitlines():
                found = {self.marks.meant_for.get(mark, mark) for mark in _MARK.findall(line)}
                found |= {what for secret, what in self.literal.items() if secret in line}
                self.found += [f"{where}: {what}: {line[:300]}" for what in sorted(found)]

    def error(self, where: str, error: BaseException) -> None:
        """With all that caused it."""
        link: BaseException | None = error
        while link is not None:
            self.text(where, str(link), repr(link), vars(link))
            link = link.__cause__ or link.__context__

    def command(
        self, *arguments: str, folder: Path, variables: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `pinlater ARGUMENTS` to its end and look at what it prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        ended = run(
            [PROGRAM, *arguments],
            cwd=folder,
            env={**environment, "HOME": str(folder), **(variables or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        self.text(
            " ".join(("pinlater", *(each for each in arguments[:2] if each[:1] != "-"))), ended.stdout, ended.stderr
        )
        return ended

    def processes(self, pids: Iterable[int]) -> None:
        """What every user of the machine can read of these processes, titles included."""
        for pid in pids:
            for name in ("cmdline", "comm"):
                self.text(f"/proc/PID/{name}", Path(f"/proc/{pid}/{name}").read_bytes())

    def files(self, folder: Path) -> None:
        """What is kept there."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.text(path.name, path.read_bytes())

    def leaks(self) -> list[str]:
        """What was found."""
        assert self.looked_at
        return self.found


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def toml(urls: Iterable[str]) -> str:
    """Stores with the ids 1, 2, 3, …"""
    return "".join(f'[[store]]\nid = "{number}"\nurl = "{url}"\n' for number, url in enumerate(urls, 1))
