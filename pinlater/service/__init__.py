"""The rules of the product: every call of the contract, over the shards."""

from pinlater.service.claims import ClaimNames
from pinlater.service.service import Service
from pinlater.service.settings import ServiceSettings

__all__ = ["ClaimNames", "Service", "ServiceSettings"]
