"""Who may delete a queue, or change its settings: whoever knows the admin password, of which a hash is configured."""

from __future__ import annotations

import asyncio

from pinlater.errors import Overloaded, PasswordInvalid
from pinlater.password import verify_password

_AT_ONCE = 2
_MAX_WAITING = 16
_MAX_CHARS = 1_024


class AdminPassword:
    """Checks passwords in a thread, a few at once: each check costs time and memory on purpose."""

    def __init__(self, password_hash: str) -> None:
        self._hash = password_hash
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._asking = 0

    async def check(self, password: str) -> None:
        """PasswordInvalid; for every password where no hash is configured. Overloaded."""
        if not self._hash:
            raise PasswordInvalid(
                "this server has no admin password, so what needs one is refused; start it with --admin-password-hash "
                "HASH, as `pinlater admin hash-password` prints it"
            )
        if self._asking >= _AT_ONCE + _MAX_WAITING:
            raise Overloaded.by("waiting_passwords", "too many passwords are being checked", retry_after_ms=1_000)
        self._asking += 1
        try:
            async with self._turns:
                is_right = await asyncio.to_thread(verify_password, password[:_MAX_CHARS], self._hash)
        finally:
            self._asking -= 1
        if not is_right or len(password) > _MAX_CHARS:
            raise PasswordInvalid("the admin password is wrong")
