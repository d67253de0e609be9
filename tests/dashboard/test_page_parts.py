"""An open page: what is sent of it once its script has it."""

from __future__ import annotations

import gzip

from pinlater import Job
from pinlater.dashboard.page_parts import MAX_PARTS, cut_apart, news_for
from tests.dashboard.conftest import Place
from tests.dashboard.test_job_list import patiently
from tests.dashboard.visitor import Visitor


def put_together(news: list[list[str]], had: dict[str, str]) -> str:
    """As the script of an open page does it."""
    return "".join(each[1] if len(each) > 1 else had[each[0]] for each in news)


def test_only_parts_that_changed_are_sent(place: Place, visitor: Visitor) -> None:
    for number in range(40):
        place.client.create_queue(f"part-{number}")
    path = "/dashboard/queues?name=part-"
    patiently(lambda: "40 of " in visitor.text(path))
    first = visitor.get(path, X_Live="1", X_Parts="none")
    had = dict(first.json())
    assert put_together(first.json(), had).startswith("<main")
    place.client.enqueue("part-7", [Job(b"x")] * 1_234)

    def news() -> list[list[str]]:
        headers = {"X_Live": "1", "X_Parts": ",".join(had)}
        return visitor.get(path, **headers).json()  # type: ignore[no-any-return]

    patiently(lambda: "1,234" in put_together(news(), had))
    sent = [each[1] for each in news() if len(each) > 1]
    assert len(sent) <= 3, [each[:80] for each in sent]
    assert any('<tr id="queue-part-7"' in each for each in sent)
    assert len(gzip.compress("".join(sent).encode())) < len(gzip.compress(first.content)) / 5
    now = visitor.get(path, X_Live="1", X_Parts="none")
    visitor.get(path, status=304, X_Live="1", X_Parts="none", If_None_Match=now.headers["ETag"])
    assert visitor.get(path, X_Live="1").text.startswith("<main")


def test_parts_are_the_whole_and_few() -> None:
    rows = "".join(f'<tr id="{number}"><td><time>{number} s ago</time></td></tr>\n' for number in range(900))
    page = f"<main><section><table>{rows}</table></section></main>"
    assert "".join(cut_apart(page)) == page
    assert len(cut_apart(page)) <= MAX_PARTS
    assert news_for("<section><time>1 s</time>", "none").startswith(b'[["')
    marks = {news_for(f"<time>{age}</time>", "none")[:14] for age in ("1 s ago", "2 s ago")}
    assert len(marks) == 1, "the age of what is as it was is no news"
