"""The servers that a command means, and how it is known to them: flags over clusters.toml over the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinlater.client.client_tls import Tls, target_tls
from pinlater.client.token import Token, target_token


@dataclass(frozen=True)
class Target:
    """What a command line says of them."""

    servers: tuple[str, ...]
    cluster: str | None
    token_file: Path | None
    tls_flags: Mapping[str, str | None]

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Target:
        """Takes those of `server_options` out of the options of a command."""
        servers, cluster = options.pop("servers", None) or (), options.pop("cluster", None)
        return cls(servers, cluster, options.pop("token_file", None), Tls.flags_in(options))

    def token(self) -> Token | None:
        """ValueError."""
        return target_token(self.token_file, self.servers, self.cluster, None)

    def tls(self) -> Tls | bool:
        """What is given, over what clusters.toml and the environment say. ValueError."""
        found = target_tls(None, self.servers, self.cluster, None)
        return (found or Tls()).over(**self.tls_flags) if any(self.tls_flags.values()) else found or False
