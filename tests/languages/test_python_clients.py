"""Plain clients that know nothing of this project but the interface file: thriftpy2's, and Apache's for Python."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import thriftpy2
from thrift.protocol import TBinaryProtocol as ApacheBinary
from thrift.protocol import TCompactProtocol as ApacheCompact
from thrift.transport import TSocket as ApacheSocket
from thrift.transport import TTransport as ApacheTransport
from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.rpc import client_context
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory

from tests.languages.conftest import INTERFACE, PASSWORD, generate
from tests.languages.every_call import EveryCall

OURS = re.compile(r"^ +1\d\d: .*\n|^ *CancelJobsResponse cancelJobs.*\n.*\n", re.MULTILINE)
"""What the interface file has beyond the classic interface."""

FRAMING = {"framed": TFramedTransportFactory, "buffered": TBufferedTransportFactory}
PROTOCOLS = {"binary": TBinaryProtocolFactory, "compact": TCompactProtocolFactory}


@pytest.fixture(scope="session")
def thriftpy2_types() -> ModuleType:
    return thriftpy2.load(str(INTERFACE), module_name="languages_thrift")


@pytest.fixture(scope="session")
def classic_types(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The interface as clients had it before this server."""
    text, ours = OURS.subn("", INTERFACE.read_text(encoding="utf-8"))
    assert ours > 10
    file = tmp_path_factory.mktemp("classic") / "classic.thrift"
    file.write_text(text, encoding="utf-8")
    return thriftpy2.load(str(file), module_name="classic_thrift")


@pytest.fixture(scope="session")
def apache_types(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Apache's classes, in a package `generated`: thriftpy2 has taken the name that the interface file gives."""
    folder = tmp_path_factory.mktemp("apache")
    renamed = folder / "renamed.thrift"
    text = INTERFACE.read_text(encoding="utf-8")
    renamed.write_text(text.replace("namespace py pinlater_thrift", "namespace py generated"), encoding="utf-8")
    generate("py", folder, renamed)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("generated.ttypes")
    sys.path.remove(str(folder))


def apache_client(transport: Any, protocol: str) -> Any:
    layer = ApacheCompact.TCompactProtocol if protocol == "compact" else ApacheBinary.TBinaryProtocol
    return importlib.import_module("generated.PinLater").Client(layer(transport))


@pytest.mark.parametrize("framing", FRAMING)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thriftpy2s_client_makes_every_call(
    server: int, queue: str, thriftpy2_types: ModuleType, framing: str, protocol: str
) -> None:
    with client_context(
        thriftpy2_types.PinLater,
        "127.0.0.1",
        server,
        trans_factory=FRAMING[framing](),
        proto_factory=PROTOCOLS[protocol](),
        socket_timeout=60_000,
    ) as client:
        EveryCall(client, thriftpy2_types, queue, PASSWORD).run()


@pytest.mark.parametrize("framing", ["framed", "buffered"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_apaches_client_makes_every_call(
    server: int, queue: str, apache_types: ModuleType, framing: str, protocol: str
) -> None:
    socket = ApacheSocket.TSocket("127.0.0.1", server)
    wrapped = (
        ApacheTransport.TFramedTransport(socket) if framing == "framed" else ApacheTransport.TBufferedTransport(socket)
    )
    wrapped.open()
    try:
        EveryCall(apache_client(wrapped, protocol), apache_types, queue, PASSWORD).run()
    finally:
        wrapped.close()


def test_a_client_with_the_classic_interface_sees_no_difference(
    server: int, queue: str, classic_types: ModuleType
) -> None:
    with client_context(
        classic_types.PinLater, "127.0.0.1", server, trans_factory=TFramedTransportFactory(), socket_timeout=60_000
    ) as client:
        context = classic_types.RequestContext(source="classic")
        client.createQueue(context, queue)
        jobs = [classic_types.PinLaterJob(body=b"one"), classic_types.PinLaterJob(body=b"two", numAttemptsAllowed=1)]
        request = classic_types.PinLaterEnqueueRequest(queueName=queue, jobs=jobs)
        one, two = client.enqueueJobs(context, request).jobDescriptors
        ask = classic_types.PinLaterDequeueRequest(queueName=queue, limit=10)
        assert client.dequeueJobs(context, ask).jobs == {one: b"one", two: b"two"}
        again = classic_types.PinLaterCheckpointJobRequest(jobDescriptor=one, newBody="half", moveToPending=True)
        client.checkpointJobs(context, classic_types.PinLaterCheckpointJobsRequest(queueName=queue, requests=[again]))
        ask.jobAckRequest = classic_types.PinLaterJobAckRequest(
            queueName=queue, jobsFailed=[classic_types.PinLaterJobAckInfo(jobDescriptor=two, appendCustomStatus="no")]
        )
        answer = client.dequeueJobs(context, ask)
        assert (answer.jobs, answer.jobMetadata[one].attemptsRemaining) == ({one: b"half"}, 2)
        found = client.lookupJobs(context, classic_types.PinLaterLookupJobRequest(jobDescriptors=[one, two]))
        assert [found[name].jobState for name in (one, two)] == [1, 3]
        assert (found[two].customStatus, found[two].body) == ("no", None)
        with pytest.raises(classic_types.PinLaterException) as refused:
            client.enqueueJobs(context, classic_types.PinLaterEnqueueRequest(queueName="nowhere", jobs=jobs))
        assert refused.value.errorCode == classic_types.ErrorCode.QUEUE_NOT_FOUND
