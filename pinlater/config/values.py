"""The kinds of values that only settings of servers have."""

from __future__ import annotations

from pinlater.data_folder.password import is_password_hash
from pinlater.setting_kinds import Text


class PathText(Text):
    """A path of the file system."""

    metavar = "PATH"

    def __init__(self, *, or_nothing: bool = False) -> None:
        super().__init__(r"[^\0]*" if or_nothing else r"[^\0]+", "a path, or nothing" if or_nothing else "a path")


class UrlPrefix(Text):
    """The path of a proxy below which the HTTP interface is, or nothing."""

    metavar = "PATH"
    OWN = ("dashboard", "docs", "job", "job_item", "assignment", "login", "logout", "metrics", "session", "v1")
    """Where paths of the interface begin. A prefix like one of them could not be told from it."""

    def __init__(self) -> None:
        super().__init__(
            rf"(?!/({'|'.join(self.OWN)})(/|$))(/(?!\.{{1,2}}(/|$))[A-Za-z0-9._~-]{{1,100}}){{0,10}}/?",
            "a path like /queue, of letters, digits and . _ ~ - between slashes, that does not begin like the "
            "interface's own paths; or nothing",
        )

    def parse(self, value: object) -> str:
        return super().parse(value).rstrip("/")


class PasswordHash(Text):
    """A salted hash of a password, or nothing."""

    def __init__(self) -> None:
        super().__init__(allowed="what `pinlater admin hash-password` prints, or nothing")

    def parse(self, value: object) -> str:
        text = super().parse(value)
        if text and not is_password_hash(text):
            raise ValueError
        return text
