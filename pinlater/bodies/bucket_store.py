"""A bucket as the object store of a tier, by obstore. Only a process with such a tier imports this."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from pinlater.bodies.object_store import PAGE, StoredObject, StoreInvalid

_SERVICES: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}


class BucketStore:
    """A bucket behind obstore. What the URL does not say (credentials, region) comes from the environment, by the names
    that the provider's own tools use.
    """

    def __init__(self, scheme: str, bucket: str, prefix: str, options: dict[str, str]) -> None:
        """`options`: of the URL's query; `endpoint` and `region` for what speaks S3 elsewhere. StoreInvalid."""
        endpoint = options.get("endpoint", "")
        try:
            self._bucket = _SERVICES[scheme](
                bucket,
                prefix=prefix or None,
                config=options,
                client_options={"allow_http": True, "timeout": "10m"} if endpoint.startswith("http:") else None,
                retry_config={"max_retries": 0},
            )
        except Exception as error:
            raise StoreInvalid(f"no tier can be made of {scheme}://{bucket}/{prefix}: {error}") from error

    async def open(self) -> None:
        await self.children()

    async def put(self, path: str, body: bytes) -> None:
        await obstore.put_async(self._bucket, path, bytes(body), use_multipart=False)

    async def get(self, path: str) -> bytes:
        try:
            answer = await obstore.get_async(self._bucket, path)
            return bytes(await answer.bytes_async())
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise OSError(f"the bucket is not there: {error}") from error
            raise

    async def delete(self, paths: Sequence[str]) -> None:
        try:
            await obstore.delete_async(self._bucket, list(paths))
        except FileNotFoundError:
            for path in paths:
                try:
                    await obstore.delete_async(self._bucket, path)
                except FileNotFoundError:
                    continue

    async def pages(self, prefix: str) -> AsyncIterator[list[StoredObject]]:
        async for page in obstore.list(self._bucket, prefix.rstrip("/"), chunk_size=PAGE):
            yield [
                StoredObject(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000)) for each in page
            ]

    async def children(self) -> list[str]:
        found = await obstore.list_with_delimiter_async(self._bucket)
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])

    async def close(self) -> None: ...
