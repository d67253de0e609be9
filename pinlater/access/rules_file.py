"""The rules file of a server. It is read again when it changes; one with mistakes changes nothing.

What it says counts when it was read so twice: of a file that is being written the beginning may allow what its end
takes back.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from pinlater.access.rules import parse_rules
from pinlater.config.loader import ConfigInvalid, Mistake

_log = structlog.get_logger("pinlater.access")


class RulesFile:
    """A file that can be read, at least at first: else ConfigInvalid, with all mistakes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._text = self._seen = self.path.read_bytes()
        except OSError as error:
            allowed = f"a file that can be read ({error.strerror})"
            raise ConfigInvalid([Mistake("rules", str(path), allowed, "the configuration")]) from error
        self.rules = parse_rules(self._text, str(path))

    def read_again(self) -> bool:
        """Whether the file says something else now. What is wrong with it is logged once."""
        try:
            text = self.path.read_bytes()
        except OSError:
            return False  # it may be on its way
        seen, self._seen = self._seen, text
        if text == self._text or text != seen:
            return False
        self._text = text
        try:
            rules = parse_rules(text, str(self.path))
        except ConfigInvalid as invalid:
            _log.error("rules_invalid", file=str(self.path), mistakes=[str(each) for each in invalid.mistakes])
            return False
        is_new, self.rules = rules != self.rules, rules
        _log.info("rules_read", file=str(self.path), rules=len(rules.rules), roles=len(rules.roles))
        return is_new
