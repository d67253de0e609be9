"""The scenario of tests/languages/scenario.py, through thriftpy2 or Apache's library for Python.

python caller.py thriftpy2|apache HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
"""

from __future__ import annotations

import importlib
import ssl
import sys
from typing import Any

import thriftpy2
from thrift.protocol import TBinaryProtocol, TCompactProtocol
from thrift.transport import TSocket, TSSLSocket, TTransport
from thriftpy2 import protocol as other_protocol
from thriftpy2 import transport as other_transport
from thriftpy2.thrift import TClient
from thriftpy2.transport.sslsocket import TSSLSocket as OtherSSLSocket

LIBRARY, HOST, PORT, FRAMING, PROTOCOL, CA, CERT, KEY, TOKEN, QUEUE, PASSWORD = sys.argv[1:]
TIMEOUT_S = 30
BROKEN = (TTransport.TTransportException, other_transport.TTransportException, OSError)


def trusted() -> ssl.SSLContext:
    """With a look at the server's name, which thriftpy2's own context does not take."""
    context = ssl.create_default_context(cafile=CA)
    if CERT != "-":
        context.load_cert_chain(CERT, KEY)
    return context


def thriftpy2_client() -> tuple[Any, Any]:
    if CA == "-":
        socket = other_transport.TSocket(HOST, int(PORT), socket_timeout=TIMEOUT_S * 1000)
    else:
        socket = OtherSSLSocket(HOST, int(PORT), ssl_context=trusted(), socket_timeout=TIMEOUT_S * 1000)
    framing = other_transport.TFramedTransport if FRAMING == "framed" else other_transport.TBufferedTransport
    transport = framing(socket)
    transport.open()
    layer = other_protocol.TCompactProtocol if PROTOCOL == "compact" else other_protocol.TBinaryProtocol
    return TClient(types.PinLater, layer(transport)), transport


def apache_client() -> tuple[Any, Any]:
    if CA == "-":
        socket = TSocket.TSocket(HOST, int(PORT))
    else:
        socket = TSSLSocket.TSSLSocket(HOST, int(PORT), ssl_context=trusted(), server_hostname=HOST)
    socket.setTimeout(TIMEOUT_S * 1000)
    transport = (TTransport.TFramedTransport if FRAMING == "framed" else TTransport.TBufferedTransport)(socket)
    transport.open()
    layer = TCompactProtocol.TCompactProtocol if PROTOCOL == "compact" else TBinaryProtocol.TBinaryProtocol
    return importlib.import_module("pinlater_thrift.PinLater").Client(layer(transport)), transport


types: Any
if LIBRARY == "thriftpy2":
    types = thriftpy2.load("pinlater.thrift", module_name="pinlater_thrift")
    connected = thriftpy2_client
else:
    types = importlib.import_module("pinlater_thrift.ttypes")
    connected = apache_client

caller = types.RequestContext(source="caller", **({} if TOKEN == "-" else {"token": TOKEN}))


def say(*words: object) -> None:
    print(*[int(word) if isinstance(word, bool) else word for word in words], flush=True)


def enqueue(into: str, **fields: Any) -> Any:
    jobs = [types.PinLaterJob(**fields)]
    return client.enqueueJobs(caller, types.PinLaterEnqueueRequest(queueName=into, jobs=jobs))


def stored(**fields: Any) -> Any:
    return enqueue(QUEUE, **fields).jobDescriptors[0]


def lookup(descriptor: str) -> Any:
    asked = types.PinLaterLookupJobRequest(jobDescriptors=[descriptor], includeBody=True, includeResult=True)
    return client.lookupJobs(caller, asked)[descriptor]


def pending(future: bool) -> Any:
    state = types.PinLaterJobState.PENDING
    asked = types.PinLaterGetJobCountRequest(queueName=QUEUE, jobState=state, countFutureJobs=future)
    return client.getJobCount(caller, asked)


def dequeue(limit: int) -> Any:
    asked = {"queueName": QUEUE, "limit": limit, "waitMillis": 1000, "claimTimeoutMillis": 600_000}
    return client.dequeueJobs(caller, types.PinLaterDequeueRequest(**asked))


def ack(step: str, succeeded: list[Any], failed: list[Any]) -> None:
    asked = types.PinLaterJobAckRequest(queueName=QUEUE, jobsSucceeded=succeeded, jobsFailed=failed)
    say(step, *client.ackJobs(caller, asked).outcomes)


def ack_of(descriptor: str, taken: Any, **more: Any) -> Any:
    claim = taken.jobMetadata[descriptor].claimDescriptor
    return types.PinLaterJobAckInfo(jobDescriptor=descriptor, claimDescriptor=claim, **more)


def pause(step: str) -> None:
    global client, transport
    say(f"{step}?")
    sys.stdin.readline()
    try:
        say(step, "kept", pending(True))
    except BROKEN:
        transport.close()
        client, transport = connected()
        say(step, "broken", pending(True))


def flow() -> None:
    steps = f"{QUEUE}_steps"
    first = types.FlowStage(name="add", queueName=steps)
    second = types.FlowStage(name="total", queueName=steps, parentStage="add")
    asked = types.CreateFlowRequest(name="sums", stages=[first, second], metadata={"month": "11"})
    made = client.createFlow(caller, asked)
    status = client.getFlow(caller, types.GetFlowRequest(flowId=made.id))
    shown = [f"{each.stage.name}<{each.stage.parentStage}" for each in status.stages]
    say("flow", made.isNew, status.metadata["month"], *shown)


def run() -> None:
    client.createQueue(caller, QUEUE)
    say("create")
    plain = stored(body=b"plain")
    say("plain")
    named = {"body": b"keyed", "dedupeKey": "key", "priority": 2}
    keyed = stored(**named)
    again = enqueue(QUEUE, **named)
    say("keyed", again.outcomes[0], again.jobDescriptors[0] == keyed)
    texts = {"customStatus": "grüße 日本 🚀", "group": "tenant-é", "tags": ["red", "grün"]}
    grouped = stored(body=bytes(range(256)), priority=3, numAttemptsAllowed=7, **texts)
    info = lookup(grouped)
    say("group", info.group, ",".join(info.tags), info.customStatus, info.attemptsAllowed)
    delayed = stored(body=b"later", runAfterTimestampMillis=4_000_000_000_123)
    say("delayed", lookup(delayed).runAfterTimestampMillis)
    say("count", pending(False), pending(True))
    say("names", QUEUE in client.getQueueNames(caller))
    taken = dequeue(10)
    for each in (plain, keyed, grouped):
        metadata = taken.jobMetadata[each]
        say("dequeued", metadata.priority, metadata.attemptsAllowed, taken.jobs[each].hex())
    good = ack_of(plain, taken, result=b"\x00\xff\x80", progress=types.JobProgress(fraction=0.5))
    point = types.PinLaterCheckpointJobRequest(
        jobDescriptor=plain, claimDescriptor=good.claimDescriptor, newBodyBytes=b"\x00\xff", prependCustomStatus="half"
    )
    client.checkpointJobs(caller, types.PinLaterCheckpointJobsRequest(queueName=QUEUE, requests=[point]))
    info = lookup(plain)
    say("checkpoint", info.jobState, info.body.hex(), info.customStatus)
    bad = ack_of(keyed, taken, permanent=True)
    ack("ack", [good], [bad, ack_of(grouped, taken, retryDelayMillis=3_600_000)])
    ack("stale", [good], [])
    info = lookup(plain)
    say("result", info.jobState, info.result.hex(), info.progress.fraction)
    succeeded = types.PinLaterScanJobsRequest(queueName=QUEUE, jobState=types.PinLaterJobState.SUCCEEDED)
    page = client.scanJobs(caller, succeeded)
    say("scan", len(page.scannedJobs), page.scannedJobs[0].jobDescriptor == plain, page.continuation)
    try:
        enqueue("nowhere", body=b"lost")
    except types.PinLaterException as error:
        say("error", error.errorCode, error.reason, error.retryable)
    flow()
    cancel = types.CancelJobsRequest(queueName=QUEUE, jobDescriptors=[delayed])
    say("cancel", client.cancelJobs(caller, cancel).outcomes[delayed])
    large = bytes(index % 251 for index in range(100_000))
    largest = stored(body=large)
    came = dequeue(1)
    say("large", len(came.jobs[largest]), came.jobs[largest] == large)
    ack("ended", [ack_of(largest, came)], [])
    say("identity", client.getAccess(caller).identity)
    pause("idle")
    pause("restart")
    client.deleteQueue(caller, QUEUE, PASSWORD)
    say("delete", QUEUE in client.getQueueNames(caller))


client, transport = connected()
try:
    run()
except types.PinLaterException as error:
    say("REFUSED", error.reason)
transport.close()
