"""Clients that know nothing of ours: thriftpy2's, framed and not, and Apache's protocols and transports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport
from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.rpc import client_context
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory

from pinlater.errors import QueueNotFound
from pinlater.model import DequeueRequest, Job
from tests.server.serving import serving
from tests.thrift_module import MODULE

PROTOCOLS = [TBinaryProtocolFactory, TCompactProtocolFactory]
TRANSPORTS = [TFramedTransportFactory, TBufferedTransportFactory]
ME = MODULE.RequestContext(source="me")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["binary", "compact"])
@pytest.mark.parametrize("transport", TRANSPORTS, ids=["framed", "unframed"])
async def test_thriftpy2_clients_are_served(protocol: Any, transport: Any) -> None:
    def talk(port: int) -> None:
        with client_context(
            MODULE.PinLater, "127.0.0.1", port, proto_factory=protocol(), trans_factory=transport()
        ) as client:
            client.createQueue(ME, "mail")
            request = MODULE.PinLaterEnqueueRequest(queueName="mail", jobs=[MODULE.PinLaterJob(body=b"\xffone")])
            assert len(client.enqueueJobs(ME, request).jobDescriptors) == 1
            response = client.dequeueJobs(ME, MODULE.PinLaterDequeueRequest(queueName="mail", limit=5))
            assert list(response.jobs.values()) == [b"\xffone"]
            (metadata,) = response.jobMetadata.values()
            assert (metadata.attemptsRemaining, metadata.claimDescriptor) == (2, "host:1:2:3:me")
            assert set(client.getQueueNames(ME)) == {"mail", "images"}
            assert client.lookupJobs(ME, MODULE.PinLaterLookupJobRequest(jobDescriptors=["x"])) == {}

    async with serving() as served:
        await asyncio.to_thread(talk, served.port)
        name, (queue, jobs) = served.service.calls[1]
        assert (name, queue, jobs) == ("enqueue", "mail", [Job(b"\xffone")])
        assert served.service.calls[2] == ("dequeue", DequeueRequest("mail", 5))


async def test_a_thriftpy2_client_sees_the_exception_and_its_connection_lives_on() -> None:
    def talk(port: int) -> None:
        with client_context(
            MODULE.PinLater, "127.0.0.1", port, trans_factory=TFramedTransportFactory(), socket_timeout=60_000
        ) as client:
            for _ in range(2):
                with pytest.raises(MODULE.PinLaterException, match="does not exist") as caught:
                    client.createQueue(ME, "mail")
                assert (caught.value.errorCode, caught.value.retryable) == (413, False)

    async with serving() as served:
        served.service.fail_with = QueueNotFound.of("mail")
        await asyncio.to_thread(talk, served.port)


APACHE = [
    (TBinaryProtocol, TFramedTransport),
    (TBinaryProtocol, TBufferedTransport),
    (TCompactProtocol, TFramedTransport),
    (TCompactProtocol, TBufferedTransport),
    (lambda transport: TBinaryProtocol(transport, strictWrite=False), TFramedTransport),
]
APACHE_IDS = ["binary framed", "binary", "compact framed", "compact", "binary without a version, framed"]


@pytest.mark.parametrize(("protocol", "transport"), APACHE, ids=APACHE_IDS)
async def test_apache_clients_are_served(protocol: Callable[[Any], Any], transport: Callable[[Any], Any]) -> None:
    def talk(port: int) -> set[str]:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            link = TSocket()
            link.setHandle(sock)
            speaker = protocol(transport(link))
            names: set[str] = set()
            for seqid in (1, 2):
                _ask_names(speaker, seqid)
                assert speaker.readMessageBegin() == ("getQueueNames", TMessageType.REPLY, seqid)
                names = _read_names(speaker)
                speaker.readMessageEnd()
            return names

    async with serving() as served:
        assert await asyncio.to_thread(talk, served.port) == {"mail", "images"}
        assert [context and context.source for context in served.service.contexts] == ["me", "me"]


def _ask_names(speaker: Any, seqid: int) -> None:
    speaker.writeMessageBegin("getQueueNames", TMessageType.CALL, seqid)
    speaker.writeStructBegin("args")
    speaker.writeFieldBegin("context", TType.STRUCT, 1)
    speaker.writeStructBegin("RequestContext")
    speaker.writeFieldBegin("source", TType.STRING, 1)
    speaker.writeString("me")
    speaker.writeFieldEnd()
    speaker.writeFieldStop()
    speaker.writeStructEnd()
    speaker.writeFieldEnd()
    speaker.writeFieldStop()
    speaker.writeStructEnd()
    speaker.writeMessageEnd()
    speaker.trans.flush()


def _read_names(speaker: Any) -> set[str]:
    speaker.readStructBegin()
    assert speaker.readFieldBegin()[1:] == (TType.SET, 0)
    element, size = speaker.readSetBegin()
    assert element == TType.STRING
    names = {speaker.readString() for _ in range(size)}
    speaker.readSetEnd()
    speaker.readFieldEnd()
    assert speaker.readFieldBegin()[1] == TType.STOP
    speaker.readStructEnd()
    return names
