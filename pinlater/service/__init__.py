"""The rules of the product: every call of the contract, over the shards."""

from pinlater.service.descriptors import ClaimTokens
from pinlater.service.service import Service
from pinlater.service.settings import ServiceSettings

__all__ = ["ClaimTokens", "Service", "ServiceSettings"]
