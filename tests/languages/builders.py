"""How the caller of each language is built. A language whose programs or packages are not here is skipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pinlater import Tls
from tests.languages.conftest import INTERFACE, generate, install_node
from tests.languages.scenario import Caller

SOURCE = Path(__file__).parent / "callers"
MADE_WITHIN_S = 500.0
"""What a compiler and a download take on a busy machine."""

ERLANG_PARTS = [
    *(("binary", "protocol"), ("compact", "protocol"), ("framed", "transport"), ("buffered", "transport")),
    *(("socket", "transport"), ("sslsocket", "transport"), ("membuffer", "transport")),
]
"""Those of the library that a client needs."""

NOT_REACHED = ("dial tcp", "no such host", "Could not transfer", "503", "Could not resolve host", "failed to download")


def needs(*programs: str, files: Sequence[str] = ()) -> None:
    """`files`: of packages without a program."""
    missing = [each for each in programs if shutil.which(each) is None]
    missing += [each for each in files if not Path(each).exists()]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def make(command: Sequence[str], folder: Path, **variables: str) -> str:
    """What it prints. Skips where packages cannot be had; a program that does not compile is a failure."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | variables,
        timeout=MADE_WITHIN_S,
        check=False,
    )
    output = done.stdout + done.stderr
    if done.returncode != 0 and any(word in output for word in NOT_REACHED):
        pytest.skip(f"{command[0]} cannot download: {output[-500:]}")
    assert done.returncode == 0, output[-5000:]
    return done.stdout


def library_source(folder: Path) -> Path:
    """Apache's libraries as source: the Go module is its whole repository, and go.sum says which bytes it has."""
    needs("go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(SOURCE / name, folder)
    told = make(["go", "mod", "download", "-json", "github.com/apache/thrift"], folder)
    return Path(json.loads(told)["Dir"]) / "lib"


def build_c(folder: Path) -> Caller:
    needs("gcc", "pkg-config", "thrift")
    if subprocess.run(["pkg-config", "--exists", "thrift_c_glib"], check=False).returncode != 0:
        pytest.skip("not installed: libthrift-c-glib-dev")
    flags, libraries = (make(["pkg-config", each, "thrift_c_glib"], folder).split() for each in ("--cflags", "--libs"))
    generate("c_glib", folder)
    shutil.copy(SOURCE / "caller.c", folder)
    sources = sorted(path.name for path in folder.glob("*.c"))
    make(["gcc", "-O0", "-o", "caller", *flags, *sources, *libraries], folder)
    return Caller([str(folder / "caller")], folder)


def build_cpp(folder: Path) -> Caller:
    headers = ("thrift/transport/TSSLSocket.h", "boost/numeric/conversion/cast.hpp", "openssl/ssl.h")
    needs("g++", "thrift", files=[f"/usr/include/{header}" for header in headers])
    generate("cpp:no_skeleton", folder)
    shutil.copy(SOURCE / "caller.cpp", folder)
    sources = sorted(path.name for path in folder.glob("*.cpp"))
    make(["g++", "-O0", "-o", "caller", *sources, "-lthrift", "-lssl", "-lcrypto"], folder)
    return Caller([str(folder / "caller")], folder)


def build_ruby(folder: Path) -> Caller:
    needs("ruby", "thrift")
    if subprocess.run(["ruby", "-e", "require 'thrift'"], capture_output=True, check=False).returncode != 0:
        pytest.skip("not installed: ruby-thrift")
    generate("rb", folder)
    shutil.copy(SOURCE / "caller.rb", folder)
    return Caller(["ruby", "caller.rb"], folder)


def build_php(folder: Path) -> Caller:
    needs("php", "thrift")
    generate("php", folder)
    shutil.copy(SOURCE / "caller.php", folder)
    (folder / "Thrift").symlink_to(library_source(folder) / "php" / "lib")
    return Caller(["php", "caller.php"], folder)


def build_perl(folder: Path) -> Caller:
    needs("perl", "thrift")
    asked = ["perl", "-MThrift::SSLSocket", "-MClass::Accessor", "-e", "1"]
    if subprocess.run(asked, capture_output=True, check=False).returncode != 0:
        pytest.skip("not installed: libthrift-perl, libclass-accessor-perl or libio-socket-ssl-perl")
    generate("perl", folder)
    shutil.copy(SOURCE / "caller.pl", folder)
    return Caller(["perl", "caller.pl"], folder)


def build_thriftpy2(folder: Path) -> Caller:
    for source in (SOURCE / "caller.py", INTERFACE):
        shutil.copy(source, folder)
    return Caller([sys.executable, "caller.py", "thriftpy2"], folder)


def build_apache_python(folder: Path) -> Caller:
    needs("thrift")
    generate("py", folder)
    shutil.copy(SOURCE / "caller.py", folder)
    return Caller([sys.executable, "caller.py", "apache"], folder)


def build_node(folder: Path) -> Caller:
    install_node(folder)
    shutil.copy(SOURCE / "caller.js", folder)
    return Caller(["node", "caller.js"], folder)


def build_go(folder: Path) -> Caller:
    needs("go", "thrift")
    generate("go", folder)
    shutil.rmtree(folder / "pinlater" / "pin_later-remote")
    for name in ("caller.go", "go.mod", "go.sum"):
        shutil.copy(SOURCE / name, folder)
    make(["go", "build", "-o", "caller", "."], folder, GOFLAGS="-mod=mod")
    return Caller([str(folder / "caller")], folder)


class JavaCaller(Caller):
    """Java reads certificates from stores of its own form."""

    def command(self, server: str, port: int, form: str, tls: Tls | None, token: str, queue: str) -> list[str]:
        if tls is None:
            return super().command(server, port, form, None, token, queue)
        trusted, own = self.folder / "ca.p12", self.folder / "own.p12"
        trusted.unlink(missing_ok=True)
        kept = ["-storetype", "PKCS12", "-keystore", str(trusted), "-storepass", "changeit"]
        make(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(tls.ca), *kept], self.folder)
        if tls.cert:
            files = ["-in", tls.cert, "-inkey", str(tls.key), "-out", str(own)]
            make(["openssl", "pkcs12", "-export", "-passout", "pass:changeit", *files], self.folder)
        stores = Tls(str(trusted), str(own) if tls.cert else None, tls.key)
        return super().command(server, port, form, stores, token, queue)


def build_java(folder: Path) -> Caller:
    needs("javac", "mvn", "keytool", "openssl", "thrift")
    generate("java:generated_annotations=suppress", folder)
    for name in ("Caller.java", "pom.xml"):
        shutil.copy(SOURCE / name, folder)
    make(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], folder)
    sources = [str(path) for path in folder.rglob("*.java")]
    make(["javac", "-encoding", "UTF-8", "-nowarn", "-cp", "libs/*", "-d", "classes", *sources], folder)
    return JavaCaller(["java", "-cp", "classes:libs/*", "Caller"], folder)


def build_rust(folder: Path) -> Caller:
    needs("cargo", "thrift")
    generate("rs", folder)
    for name in ("caller.rs", "Cargo.toml", "Cargo.lock"):
        shutil.copy(SOURCE / name, folder)
    make(["cargo", "build", "--quiet", "--locked", "--target-dir", "target"], folder)
    return Caller([str(folder / "target" / "debug" / "caller")], folder)


def build_erlang(folder: Path) -> Caller:
    needs("erl", "erlc", "thrift")
    generate("erl", folder)
    library = library_source(folder) / "erl"
    shutil.copy(SOURCE / "caller.erl", folder)
    behaviours = ["thrift_protocol", "thrift_service", "thrift_transport"]  # before the modules that have them
    parts = [f"thrift_{each}_{kind}" for each, kind in ERLANG_PARTS]
    modules = [library / "src" / f"{name}.erl" for name in [*behaviours, "thrift_client", "thrift_client_util", *parts]]
    sources = [str(path) for path in [*modules, *sorted(folder.glob("*.erl"))]]
    make(["erlc", "-I", str(library / "include"), "-I", ".", *sources], folder)
    return Caller(["erl", "-noshell", "-eval", "caller:main(init:get_plain_arguments()).", "-extra"], folder)


BUILDERS: dict[str, Callable[[Path], Caller]] = {
    "python_thriftpy2": build_thriftpy2,
    "python_apache": build_apache_python,
    "node": build_node,
    "go": build_go,
    "java": build_java,
    "c": build_c,
    "cpp": build_cpp,
    "ruby": build_ruby,
    "php": build_php,
    "perl": build_perl,
    "rust": build_rust,
    "erlang": build_erlang,
}
