"""Amazon's DynamoDB Local for the tests: every place is a table of its own, which its shard makes.

It takes any credentials; those in CREDENTIALS are for the clients, which send none without.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.stores.process import StoreMissing, StoreServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
INSTALL = "DynamoDB Local is not there: apt-get install maven, ./scripts/services (or leave it out: --without dynamodb)"
OURS = Path(__file__).with_name("dynamodb")
JAVA_VERSIONS = 17, 21
"""Later ones lack what keeps other machines out (loopback.policy)."""

QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


class DynamodbServer(StoreServer):
    name = "dynamodb"

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self._emptied: Counter[int] = Counter()

    def command(self) -> list[str]:
        libraries = _libraries()
        kept = ["-dbPath", str(self.directory)] if self.durable else ["-inMemory"]
        loopback = ["-Djava.security.manager", f"-Djava.security.policy=={OURS / 'loopback.policy'}"]
        java = [_java(), *QUICK_START, *loopback, f"-Djava.library.path={libraries}", "-cp", f"{libraries}/*"]
        return [*java, MAIN, "-port", str(self.port), "-sharedDb", "-disableTelemetry", *kept]

    def url(self, place: int = 0) -> str:
        return f"dynamodb://local/{self._table(place)}?endpoint=http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        try:
            ask(self.port, "ListTables")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def empty(self, place: int) -> None:
        """A table with a new name: a shard that is still open on the old one finds nothing there."""
        empty_dynamodb(self.url(place))
        self._emptied[place] += 1

    def _table(self, place: int) -> str:
        return f"place-{place}-{self._emptied[place]}"


def empty_dynamodb(url: str) -> None:
    """Delete the table that the address names."""
    parts = urlsplit(url)
    port = urlsplit(parse_qs(parts.query)["endpoint"][0]).port
    assert port is not None, f"no port in {url}"
    status, answer = ask(port, "DeleteTable", TableName=parts.path.strip("/"))
    assert status == 200 or "ResourceNotFoundException" in answer.get("__type", ""), answer


def ask(port: int, operation: str, **request: Any) -> tuple[int, dict[str, Any]]:
    """One call as it goes over the network, with a signature that this server does not look at: status and answer."""
    signed = "Credential=test/20000101/local/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
    headers = {
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": f"AWS4-HMAC-SHA256 {signed}",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/", json.dumps(request), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def _libraries() -> Path:
    """Where scripts/services puts what pom.xml names."""
    version = re.findall(r"<version>(\d+\.\d+\.\d+)</version>", (OURS / "pom.xml").read_text())[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pinlater" / f"dynamodb-local-{version}"
    if not folder.is_dir():
        raise StoreMissing(INSTALL)
    return folder


def _java() -> str:
    """Debian keeps its versions apart; what `java` means may be a later one."""
    for version in JAVA_VERSIONS:
        for program in Path("/usr/lib/jvm").glob(f"java-{version}-*/bin/java"):
            return str(program)
    program = shutil.which("java")
    if program is None:
        raise StoreMissing(INSTALL)
    return program
