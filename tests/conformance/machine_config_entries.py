"""Rules of the state machine: queues come, change and go by their entries, in whatever order these arrive."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from pinlater.backends.base import ConfigEntry
from tests.conformance import machine_base as base
from tests.conformance.machine_base import FOR_EVER, MachineBase, given


class ConfigEntryRules(MachineBase):
    def known_record(self, queue: str) -> ConfigEntry:
        """The newest that there is of this queue, or what comes before all."""
        return self.reference.here.get(queue + self.suffix, ConfigEntry(queue + self.suffix, ""))

    @rule(queue=base.queues)
    def create_queue(self, queue: str) -> None:
        before = self.known_record(queue)
        if not before.version or before.is_deleted:
            self.put(before._replace(version=self.version()))

    @rule(queue=base.queues, sure=st.integers(0, 7))
    def delete_queue(self, queue: str, sure: int) -> None:
        if sure == 7:
            version = self.version()
            self.put(ConfigEntry(queue + self.suffix, version, "{}", version))

    @rule(queue=base.queues, text=st.sampled_from(["{}", '{"set": {"paused": "true"}}', "ü🦆"]))
    def change_queue(self, queue: str, text: str) -> None:
        before = self.known_record(queue)
        if before.version and not before.is_deleted:
            self.put(before._replace(version=self.version(), text=text))

    @rule(target=base.unheard, queue=base.queues, is_deletion=st.booleans(), text=st.sampled_from(["{}", "[]"]))
    def something_happens_elsewhere(self, queue: str, is_deletion: bool, text: str) -> ConfigEntry:
        """Told of here later, or never."""
        before, version = self.known_record(queue), self.version()
        deleted_version = version if is_deletion else before.deleted_version
        return ConfigEntry(queue + self.suffix, version, text, deleted_version)

    @given(base.unheard)
    @rule(records=st.lists(base.unheard, min_size=1, max_size=4))
    def hear_of_it(self, records: list[ConfigEntry]) -> None:
        self.put(*records)

    @rule(limit=st.integers(1, 3))
    def read_what_came(self, limit: int) -> None:
        """Page by page, as the servers of a cluster do."""
        came: list[ConfigEntry] = []
        while True:
            page = self.on_shard(self.shard.list_config(self.revision, limit))
            assert page is not None
            assert len(page.entries) <= limit
            if not page.entries:
                break
            assert page.revision > self.revision
            self.revision = page.revision
            came += [record for record in page.entries if record.name.endswith(self.suffix)]
        assert came == self.reference.came_since(self.seen)
        self.seen = len(self.reference.came)

    @rule(sure=st.integers(0, 3))
    def forget_marks(self, sure: int) -> None:
        if sure == 3:
            before = self.version()
            self.collect_until_nothing_is_left(FOR_EVER, before)
            self.reference.forget_marks(before)
