"""Who gives way in a full pool, and that nobody does in vain."""

from __future__ import annotations

import pytest

from pinlater.errors import Overloaded
from pinlater.metrics import Metrics
from pinlater.shared_pool import SharedPool


def test_who_is_refused_has_made_nobody_give_way() -> None:
    pool, ended = SharedPool(10, "watched_jobs", "jobs are waited for", Metrics()), []
    for name in "ab":
        for _ in range(5):
            pool.enter(name).give_way = lambda name=name: ended.append(name)
    with pytest.raises(Overloaded, match="0 of them for c"):
        pool.enter("c", 4)
    assert (ended, pool.used) == ([], 10)
    place = pool.enter("c", 2)
    assert (sorted(ended), pool.used) == (["a", "b"], 10)
    place.leave()
    place.leave()
    assert pool.used == 8
