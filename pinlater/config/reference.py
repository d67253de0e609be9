"""The table of settings written out: as a TOML file that `--config` reads back, and as docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from pinlater.config.loader import HIDDEN_NAMES, Loaded
from pinlater.config.settings import SETTINGS, STORE_NAME, Setting
from pinlater.config.stores import ALLOWED_URL, StoreConfig
from pinlater.redaction import MASK, redact, redact_url
from pinlater.setting_kinds import quoted

_NOTE = f"# Secrets are shown as {MASK}; `pinlater serve --print-config --show-secrets` shows them.\n"


def config_toml(loaded: Loaded, *, show_secrets: bool = False) -> str:
    """The configuration as a file, each value with its origin. Masked secrets are said to be so, and commented out."""
    lines = []
    for section, settings in groupby(SETTINGS, key=lambda setting: setting.section):
        lines += ["", f"# {section}"]
        lines += [_line(setting, loaded, show_secrets) for setting in settings]
    for store in loaded.config.stores:
        lines += ["", *_store_lines(store, loaded.origins[STORE_NAME], show_secrets)]
    text = "\n".join(lines).strip() + "\n"
    return text if show_secrets or MASK not in text else _NOTE + text


def _line(setting: Setting, loaded: Loaded, show_secrets: bool) -> str:
    value, origin = getattr(loaded.as_written, setting.field), loaded.origins[setting.name]
    literal = setting.kind.toml(value)
    shown = literal
    if setting.is_secret and not show_secrets:
        shown = quoted(MASK) if setting.name in HIDDEN_NAMES and value else redact(literal)
    return f"{'# ' * (shown != literal)}{setting.name} = {shown}  # {origin}"


def _store_lines(store: StoreConfig, origin: str, show_secrets: bool) -> Iterable[str]:
    yield f"[[{STORE_NAME}]]  # {origin}"
    if store.id:
        yield f"id = {quoted(store.id)}"
    yield f"url = {quoted(store.url if show_secrets else redact_url(store.url))}"
    if store.dequeue_only:
        yield "dequeue-only = true"


_PAGE = """# Configuration

<!-- Written by `python -m pinlater.config`. Edit pinlater/config/settings.py instead of this page. -->

This page says how to configure a server, and lists every setting.
A server runs without any: `pinlater serve` keeps its jobs in one SQLite file in its data folder.
You can give each setting in three ways; the first that is given decides, else the default:

| | for example |
| --- | --- |
| a flag of `pinlater serve` | `--claim-timeout 5m` |
| an environment variable | `PINLATER_CLAIM_TIMEOUT=5m` |
| a key of the TOML file that `--config FILE` names | `claim-timeout = "5m"` |

Times have a unit: `250ms`, `90s`, `1h30m`, `1.5h`, `7d`. Sizes: `512KiB`, `16MiB`, `1GiB`, or plain bytes.

**See what holds.** `pinlater serve --print-config` prints the configuration and where each value came from, as a file
that `--config` reads. A server with mistakes in its configuration does not start, and names all of them.

**Change a running server.** SIGHUP makes it read the file again and roll its processes. If the new configuration has
mistakes, nothing changes.

**Secrets.** Put a value with a secret into a file of its own that only its owner may read: `--store-file FILE`,
`store-file = ["FILE"]`, `PINLATER_STORE_FILE=FILE`. Other settings below that have a `-file` work in the same way.
If a setting may be given several times, its file has one value a line.
Every user of the machine can read a command line, so a server logs `password_in_process_list` if its own has a secret.

**Spaces and quotes.** Around a value the server ignores white space, line breaks, no-break spaces and a byte order
mark, and in variables one pair of quotes, which `docker --env-file` keeps. An empty variable is not set.
The server also ignores what Kubernetes sets for a Service named `pinlater` (`PINLATER_PORT=tcp://…`,
`PINLATER_SERVICE_HOST`).

## Stores

A store keeps jobs; without any, they are in one SQLite file in the data folder.
Give `--store URL` or `--store ID=URL` once per shard, in `PINLATER_STORE` separated by commas, or in the file:

```toml
[[store]]
id = "1"
url = "redis://127.0.0.1:6379/0"

[[store]]
id = "2"
url = "mysql+pymysql://pinlater:secret@127.0.0.1:3306/pinlater"
dequeue-only = true   # takes no new jobs; workers empty it
```

or shorter `store = ["1=redis://127.0.0.1:6379/0"]`. The URL is one of {urls}.

**The ID** is 1 to 16 letters and digits, and is part of every job descriptor.
The server writes it into the store when it first opens it, and it never changes afterwards.
Without an ID the id in the store decides; a single new store without one becomes shard 1.

**TLS to a store** uses the parameters of redis-py, PyMySQL and libpq in the URL. Name a certificate of PinLater's own
if the store asks for one:

- `rediss://queue.example:6379/0?ssl_ca_certs=ca.pem&ssl_certfile=me.pem&ssl_keyfile=me.key`
- `mysql+pymysql://pinlater@queue.example/pinlater?ssl_ca=ca.pem&ssl_cert=me.pem&ssl_key=me.key`
- `postgresql+psycopg://pinlater@queue.example/pinlater?sslmode=verify-full&sslrootcert=ca.pem&sslcert=me.pem&sslkey=me.key`

The store's certificate and the name in it are checked; for PostgreSQL only with `sslmode=verify-full`.

**A new store in place of an old one** is refused, since the descriptors that workers hold must never reach another job.
The data folder has `shards.json`, the record of which store each shard is, and by that the server notices a store that
was wiped or replaced. If you mean it, `pinlater serve --accept-new-store ID` starts with the new one.

**The admin password.** A server that listens on a loopback address, keeps all jobs in SQLite and has no
`admin-password-hash` creates a password, in the file `admin-password` of its data folder.
The command line finds it there: [operations.md](operations.md#the-operator).
"""


def docs_page() -> str:
    """docs/configuration.md."""
    parts = [_PAGE.format(urls=", ".join(f"`{url.strip()}`" for url in ALLOWED_URL.replace(" or ", ", ").split(", ")))]
    for section, settings in groupby(SETTINGS, key=lambda setting: setting.section):
        parts.append(f"\n{'### Settings of stores' if section == 'Stores' else '## ' + section}\n")
        parts.append("\n| flag and key | default | allowed | what it does |\n| --- | --- | --- | --- |\n")
        parts += [_row(setting) for setting in settings]
    return "".join(parts)


def _row(setting: Setting) -> str:
    default = default_of(setting) or "(none)"
    flag = f"`--{setting.name}`" + (f", `--{setting.name}-file`" if setting.is_secret else "")
    return f"| {flag} | `{default}` | {setting.kind.allowed} | {setting.help} |\n"


def default_of(setting: Setting) -> str:
    """The default as people write it; "" where there is none."""
    return setting.kind.toml(setting.default).strip('"[]')
