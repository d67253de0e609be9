"""The services of a Compose file, whose commands run as they stand, in one scratch root, after one another."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.packaging.image_steps import Stage
from tests.packaging.scratch_root import ScratchRoot, eventually

OURS = "pinlater:0.1.0"
NOT_RUN = {"grafana/grafana"}
"""Programs that Debian does not have."""


@dataclass(frozen=True)
class Service:
    """One service, as the file has it; `settings` with its variables filled in."""

    name: str
    settings: Mapping[str, Any]

    @property
    def image(self) -> str:
        return str(self.settings["image"]).partition(":")[0]

    @property
    def needs(self) -> Mapping[str, str]:
        """The services it waits for, each with its condition."""
        needed = self.settings.get("depends_on", {})
        if isinstance(needed, list):
            return dict.fromkeys(needed, "service_started")
        return {name: str(each["condition"]) for name, each in needed.items()}

    @property
    def mounts(self) -> Mapping[str, str]:
        """What lies where in the container: a volume's name, or a path from the file."""
        parts = (each.split(":") for each in self.settings.get("volumes", []))
        return {target: source for source, target, *_ in parts}


def services_of(path: Path, variables: Mapping[str, str]) -> list[Service]:
    """Those of a file, each behind what it needs; a variable without a default that is not given is a KeyError."""

    def fill(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        return variables[name] if default is None else variables.get(name) or default

    text = re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", fill, path.read_text(encoding="utf-8"))
    left = {name: Service(name, settings) for name, settings in yaml.safe_load(text)["services"].items()}
    ordered: list[Service] = []
    while left:
        ready = [name for name, service in left.items() if not service.needs.keys() & left.keys()]
        assert ready, f"services that wait for each other: {sorted(left)}"
        ordered += map(left.pop, ready)
    return ordered


class RunningServices:
    """The services of a file that are up; commands run in them, as by `docker compose exec`."""

    def __init__(self, path: Path, image: Stage, root: ScratchRoot, start: Mapping[str, str]) -> None:
        self.services = {each.name: each for each in services_of(path, {})}
        self._folder = path.parent
        self._image = image
        self._root = root
        self._start = start

    def up(self) -> None:
        """Starts all of them, each when those that it needs are healthy or have ended well."""
        hosts = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *self.services))
        self._root.path("/etc/hosts").write_text(hosts)
        waited_for = {name: how for each in self.services.values() for name, how in each.needs.items()}
        for service in self.services.values():
            if service.image in NOT_RUN:
                continue
            self._mount(service)
            if waited_for.get(service.name) == "service_completed_successfully":
                self._root.run(self._command(service), **self._place(service))
            else:
                log = self._started(service)
                eventually(lambda each=service: self._is_healthy(each), said=log)  # type: ignore[misc]

    def run(self, name: str, *command: str) -> str:
        """What a command prints in the container of a service."""
        return self._root.run(command, **self._place(self.services[name]))

    def _mount(self, service: Service) -> None:
        for target, source in service.mounts.items():
            if source.startswith("."):
                self._root.copy((self._folder / source).resolve(), target)
            else:
                self._root.path(target).mkdir(parents=True, exist_ok=True)

    def _place(self, service: Service) -> dict[str, Any]:
        variables = {name: str(value) for name, value in service.settings.get("environment", {}).items()}
        start = self._start if service.settings["image"] == OURS else {"user": "root", "folder": "/"}
        return {**start, "folder": service.settings.get("working_dir", start["folder"]), "variables": variables}

    def _command(self, service: Service) -> list[str]:
        command = list(service.settings.get("command", []))
        if service.settings["image"] == OURS:
            return [*(service.settings.get("entrypoint") or self._image.last("ENTRYPOINT").words), *command]
        return ["prometheus", *command] if service.image == "prom/prometheus" else command

    def _started(self, service: Service) -> Callable[[], str]:
        if service.image != "postgres":
            return self._root.start(self._command(service), **self._place(service))
        return self._start_postgres(service)

    def _start_postgres(self, service: Service) -> Callable[[], str]:
        """As the entry point of the image does it: the user, its password and its database, by its variables."""
        (data,) = service.mounts
        named = service.settings["environment"]
        found = shutil.which("postgres", path=os.pathsep.join(map(str, Path("/usr/lib/postgresql").glob("*/bin"))))
        assert found is not None, "postgres is not installed: apt-get install postgresql"
        programs = Path(found).parent
        self._root.run(["chown", "postgres:postgres", data])
        self._root.run(["mkdir", "-p", "/var/run/postgresql"])
        self._root.run(["chown", "postgres:postgres", "/var/run/postgresql"])
        self._root.path("/tmp/password").write_text(named["POSTGRES_PASSWORD"])
        as_owner: dict[str, Any] = {"user": "postgres", "folder": data}
        how = ["--username", named["POSTGRES_USER"], "--pwfile=/tmp/password", "--auth=scram-sha-256", "--no-sync"]
        self._root.run([str(programs / "initdb"), "-D", data, *how], **as_owner)
        log = self._root.start([str(programs / "postgres"), "-D", data], **as_owner)
        self._root.variables["PATH"] += f":{programs}"
        eventually(lambda: self._is_healthy(service), said=log)
        asked = {"PGPASSWORD": named["POSTGRES_PASSWORD"]}
        create = [str(programs / "createdb"), "-h", "127.0.0.1", "-U", named["POSTGRES_USER"], named["POSTGRES_DB"]]
        self._root.run(create, **as_owner, variables=asked)
        return log

    def _is_healthy(self, service: Service) -> None:
        check = service.settings.get("healthcheck", {}).get("test")
        if check is not None:
            assert check[0] == "CMD"
            self._root.run(check[1:], **self._place(service))
        elif service.settings["image"] == OURS:
            self._root.run(self._image.health_check, **self._place(service))
