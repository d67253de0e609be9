"""Signed requests to DynamoDB, what its answers mean, and when a request is sent again.

botocore finds the credentials and signs; its models of the service stay unloaded, since they cost more time per call
than the call itself. A write is sent again after an answer that did not come: every write of this store carries a
condition and a mark of its own, or a token, so that the second copy changes nothing where the first one arrived.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
import time
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from pinlater.backends.dynamodb.table_address import TableAddress
from pinlater.errors import (
    BodyTooLarge,
    NothingStored,
    OutcomeUnknown,
    Overloaded,
    PinLaterError,
    StoreFull,
    StoreRefused,
    ValueNotStorable,
)

Answer = dict[str, Any]

logging.getLogger("botocore").setLevel(logging.WARNING)  # at DEBUG it logs what it signs, session tokens too

CONNECTIONS = 64
ANSWER_WITHIN_S = 10.0
CONNECT_WITHIN_S = 3.0
TRIES = 4
LARGE_BYTES = 256 * 1024
FIRST_PAUSE_S = 0.05
THROTTLED = frozenset(
    (
        *("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "Throttling"),
        *("LimitExceededException", "ThrottlingError", "ProvisionedThroughputExceeded"),
    )
)
REFUSED = frozenset(
    (
        *("UnrecognizedClientException", "AccessDeniedException", "InvalidSignatureException"),
        *("MissingAuthenticationTokenException", "IncompleteSignatureException", "ExpiredTokenException"),
    )
)

OF_A_VALUE = frozenset({"ValidationException", "SerializationException"})


class ConditionFailed(Exception):
    """The condition of a write did not hold. `item` is what stands there instead."""

    def __init__(self, item: Answer | None, was_unknown: bool) -> None:
        super().__init__("the condition of a write did not hold")
        self.item, self.was_unknown = item, was_unknown


class TransactionCanceled(Exception):
    """Nothing of a transaction was written. `failed`: the positions of the writes whose conditions did not hold."""

    def __init__(self, failed: list[int]) -> None:
        super().__init__("a transaction was canceled")
        self.failed = failed


class TableMissing(StoreRefused):
    """There is no table of that name, or it is not there yet."""


class DynamodbClient:
    """One table's. A coroutine method may be called only between open and close."""

    def __init__(self, address: TableAddress) -> None:
        self.address = address
        self.server_ms = 0
        """What the clock of the last answer said, which has whole seconds."""

        self.units: list[tuple[str, Answer, Answer]] | None = None
        """The operation, request and answer of each call, which says what it consumed; None: they are not noted."""

        self._session: aiohttp.ClientSession | None = None
        self._credentials: Credentials | None = None

    async def open(self) -> None:
        """Find the credentials, which may take a request to the machine's own service for them."""
        try:
            self._credentials = await asyncio.to_thread(Session().get_credentials)
        except BotoCoreError as error:
            raise NothingStored(f"no AWS credentials: {error}") from error
        if self._credentials is None:
            raise StoreRefused(
                "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role"
            )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=20),
            timeout=aiohttp.ClientTimeout(total=ANSWER_WITHIN_S, sock_connect=CONNECT_WITHIN_S),
            auto_decompress=True,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, operation: str, request: Answer, *, writes: bool = False) -> Answer:
        """The answer. ConditionFailed, TransactionCanceled; StoreRefused, Overloaded (throttled), NothingStored, and,
        of what `writes`, OutcomeUnknown.
        """
        if self.units is not None:
            request = {**request, "ReturnConsumedCapacity": "INDEXES"}
        body = msgspec.json.encode(request)
        unknown, error = False, PinLaterError("not sent")
        for number in range(TRIES):
            if number:
                await asyncio.sleep(random.uniform(0.5, 1.0) * FIRST_PAUSE_S * 2 ** (number - 1))
            try:
                status, answer = await self._post(operation, body)
            except aiohttp.ClientConnectorError as failed:
                error = NothingStored(f"{self.address.endpoint} cannot be reached: {failed}")
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as failed:
                unknown = writes
                error = NothingStored(f"no answer of {self.address.endpoint}: {failed or type(failed).__name__}")
                continue
            if status == 200:
                if self.units is not None:
                    self.units.append((operation, request, answer))
                return answer
            kind = str(answer.get("__type", "")).rpartition("#")[2]
            text = str(answer.get("message") or answer.get("Message") or kind or f"HTTP {status}")
            reasons = [str(each.get("Code", "None")) for each in answer.get("CancellationReasons", ())]
            if kind in THROTTLED or any(reason in THROTTLED for reason in reasons):
                error = _throttled(text)
            elif status >= 500 or kind == "TransactionInProgressException":
                unknown = writes
                error = NothingStored(f"DynamoDB answers {kind or status}: {text}")
            elif kind == "ConditionalCheckFailedException":
                raise ConditionFailed(answer.get("Item"), unknown)
            elif kind in ("TransactionCanceledException", "TransactionConflictException"):
                raise _canceled(reasons, text)
            else:
                raise self._error(kind, text)
        raise OutcomeUnknown(error.message) if unknown else error

    async def _post(self, operation: str, body: bytes) -> tuple[int, Answer]:
        if self._session is None:
            raise NothingStored(f"{self.address.table}: the shard is closed")
        url = f"{self.address.endpoint}/"
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        signed = AWSRequest(method="POST", url=url, data=body, headers=headers)
        SigV4Auth(await self._frozen(), "dynamodb", self.address.region).add_auth(signed)
        data = io.BytesIO(body) if len(body) > LARGE_BYTES else body  # sent in pieces, between which others come
        async with self._session.post(url, data=data, headers=dict(signed.headers.items())) as response:
            answer = await response.read()
            date = response.headers.get("Date")
            self.server_ms = int(parsedate_to_datetime(date).timestamp()) * 1000 if date else int(time.time()) * 1000
        try:
            return response.status, msgspec.json.decode(answer) if answer else {}
        except msgspec.DecodeError:
            return response.status if response.status != 200 else 502, {"message": "no JSON"}

    async def _frozen(self) -> ReadOnlyCredentials:
        """The credentials to sign with. A role's are renewed now and then, in a thread: botocore blocks for it."""
        assert self._credentials is not None
        if getattr(self._credentials, "refresh_needed", bool)():
            return await asyncio.to_thread(self._credentials.get_frozen_credentials)
        return self._credentials.get_frozen_credentials()

    def _error(self, kind: str, text: str) -> Exception:
        if kind == "ResourceNotFoundException":
            return TableMissing(f"there is no table {self.address.table} in {self.address.region}: {text}")
        if kind == "ItemCollectionSizeLimitExceededException":
            return StoreFull(f"a partition of {self.address.table} holds 10 GB, and can hold no more")
        if kind in REFUSED:
            return NothingStored(f"AWS refuses the credentials or their rights ({kind}): {text}")
        if kind in OF_A_VALUE:
            return _value_refused(text)
        return NothingStored(f"DynamoDB refuses a request: {kind}: {text}")


def _throttled(text: str) -> Overloaded:
    return Overloaded.by("dynamodb_throughput", f"DynamoDB throttles requests: {text}", retry_after_ms=500)


def _value_refused(text: str) -> PinLaterError:
    """A value of the call is too large, or none that an item can have; the table is well."""
    if "size" in text and "exceeded" in text:
        return BodyTooLarge(f"an item of DynamoDB holds 400 KB: {text}; a tier takes larger bodies")
    return ValueNotStorable.at("DynamoDB", text)


def _canceled(reasons: list[str], text: str) -> Exception:
    failed = [place for place, reason in enumerate(reasons) if reason not in ("None", "")]
    lasting = {"ItemCollectionSizeLimitExceeded", "ValidationError", "AccessDenied"} & set(reasons)
    if "ItemCollectionSizeLimitExceeded" in lasting:
        return StoreFull("a partition of the table holds 10 GB, and can hold no more")
    if "ValidationError" in lasting:
        return _value_refused(text)
    return NothingStored(f"DynamoDB refuses a transaction: {text}") if lasting else TransactionCanceled(failed)
