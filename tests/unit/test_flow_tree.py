"""The tree of a flow's stages: what is to come of each, how full its bar is, and what is said of it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pinlater.dashboard.flow_tree import LEAST_WIDTH, FlowTree, StageNode
from pinlater.model.flow_words import Applet, AppletKind, FlowState, FlowStatus, Stage, StageStatus


def status_of(name: str, parent: str = "", *, counts: tuple[int, ...] = (0, 0, 0, 0), **values: object) -> StageStatus:
    """`counts`: succeeded, failed, queued, waiting."""
    succeeded, failed, queued, waiting = counts
    kind = values.pop("applet", Applet())
    stage = Stage(name, name, f"{name}-queue", parent, kind, keeps_open=bool(values.pop("keeps_open", False)))  # type: ignore[arg-type]
    found = StageStatus(stage, sum(counts), queued + waiting, queued, succeeded, failed, 0, is_sealed=False)
    return replace(found, **values)  # type: ignore[arg-type]


def tree_of(*stages: StageStatus, state: FlowState = FlowState.RUNNING, completed_ms: int | None = None) -> FlowTree:
    return FlowTree.of(FlowStatus("f1", "payroll", state, "", {}, stages, 1_000, completed_ms))


def node(tree: FlowTree, name: str) -> StageNode:
    return next(each for each in tree.nodes if each.name == name)


def test_stages_lie_below_their_parents() -> None:
    tree = tree_of(status_of("a"), status_of("b", "a"), status_of("c", "b"), status_of("d", "a"), status_of("e"))
    assert [each.name for each in tree.roots] == ["a", "e"]
    assert [each.name for each in tree.nodes] == ["a", "b", "c", "d", "e"]
    assert tree.queues == [f"{name}-queue" for name in "abcde"]


def test_what_is_to_come_follows_from_the_parents() -> None:
    tree = tree_of(
        status_of("a", counts=(10, 10, 15, 5), is_sealed=True),
        status_of("b", "a", counts=(0, 0, 8, 12)),  # two for each that has succeeded
        status_of("c", "b"),  # none has succeeded: one for each
        status_of("d", "a"),  # those that have succeeded made none
    )
    assert [(each.expected, each.to_come) for each in tree.nodes] == [(40, 0), (60, 40), (60, 60), (0, 0)]
    assert [each.percent for each in tree.nodes] == [50, 0, 0, 0]
    assert (tree.total("ended"), tree.total("expected"), tree.percent) == (20, 160, 12)


def test_a_complete_parent_makes_no_more() -> None:
    parent = status_of("a", counts=(10, 0, 0, 0), is_sealed=True)
    tree = tree_of(parent, status_of("b", "a", counts=(3, 0, 2, 0)))
    assert node(tree, "b").to_come == 0
    assert node(tree, "b").percent == 60
    stuck = tree_of(replace(parent, applet_errors=4), status_of("b", "a", counts=(6, 0, 0, 0)))
    assert node(stuck, "b").to_come == 4
    assert node(stuck, "a").state == ("stuck", "bad")
    assert node(stuck, "a").percent == 99


def test_the_whole_is_told_of_what_is_over_alone() -> None:
    one = status_of("a", counts=(999, 0, 0, 1), is_sealed=True)
    assert tree_of(one).percent == 99
    done = replace(one, pending=0, succeeded=1_000)
    assert tree_of(done, state=FlowState.COMPLETE, completed_ms=2_000).percent == 100
    assert tree_of(replace(done, is_sealed=False)).percent == 99
    assert tree_of(status_of("a", is_sealed=True), state=FlowState.COMPLETE, completed_ms=2_000).percent == 100
    assert tree_of(status_of("a")).percent == 0


@pytest.mark.parametrize("counts", [(1, 1, 1, 99_997), (0, 1, 0, 0), (50_000, 1, 49_998, 1), (0, 0, 0, 0)])
def test_a_bar_shows_what_there_is_and_is_no_wider_than_its_box(counts: tuple[int, int, int, int]) -> None:
    segments = tree_of(status_of("a", counts=counts)).roots[0].segments()
    assert [each.kind for each in segments] == ["succeeded", "failed", "queued", "waiting"]
    for number, segment in zip(counts, segments, strict=True):
        assert (segment.width >= LEAST_WIDTH) == bool(number)
    assert all(a.begin + a.width == pytest.approx(b.begin, abs=0.02) for a, b in itertools.pairwise(segments))
    assert segments[-1].begin + segments[-1].width <= 100.02


def test_callers_add_items_to_stages_that_are_open() -> None:
    stages = status_of("a"), status_of("b", "a"), status_of("c", "a", keeps_open=True), status_of("d", is_sealed=True)
    assert [each.name for each in tree_of(*stages).nodes if each.takes_items] == ["a", "c"]


def test_a_stage_whose_children_were_given_up_is_stuck_only_while_its_flow_runs() -> None:
    status = replace(status_of("a", counts=(1, 0, 0, 0), is_sealed=True), applet_errors=1)
    assert StageNode(status, 1).state == ("stuck", "bad")
    assert StageNode(status, 1, is_over=True).state == ("ended", "held")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (status_of("a"), ("open", "")),
        (status_of("a", counts=(1, 0, 0, 1)), ("running", "run")),
        (status_of("b", "a"), ("waits for its parent", "")),
        (status_of("a", counts=(1, 0, 0, 0), is_sealed=True), ("complete", "good")),
        (status_of("a", counts=(1, 1, 0, 0), is_sealed=True), ("complete", "held")),
    ],
)
def test_a_stage_in_a_word(status: StageStatus, state: tuple[str, str]) -> None:
    assert StageNode(status, status.items).state == state


@pytest.mark.parametrize(
    ("state", "completed_ms", "troubles", "told"),
    [
        (FlowState.RUNNING, None, (), "running"),
        (FlowState.RUNNING, None, ("no worker",), "in trouble"),
        (FlowState.COMPLETE, 5, ("the callback was given up",), "complete"),
        (FlowState.CANCELLED, None, (), "stopping"),
        (FlowState.CANCELLED, 5, (), "cancelled"),
    ],
)
def test_a_flow_in_a_word(state: FlowState, completed_ms: int | None, troubles: tuple[str, ...], told: str) -> None:
    tree = tree_of(status_of("a"), state=state, completed_ms=completed_ms)
    assert replace_flow(tree, troubles).state[0] == told


def replace_flow(tree: FlowTree, troubles: tuple[str, ...]) -> FlowTree:
    return FlowTree.of(replace(tree.flow, troubles=troubles))


@pytest.mark.parametrize(
    ("applet", "told"),
    [
        (Applet(), "payload and result of each item of a"),
        (Applet(AppletKind.MAP, "{user: payload.user}"), "{user: payload.user}"),
        (Applet(AppletKind.LIST), "one item for each element of a result of a"),
        (
            Applet(AppletKind.JOB, job="split", queue="tools"),
            "what the job split in queue tools returns, for each item of a",
        ),
    ],
)
def test_what_makes_the_items_of_a_stage(applet: Applet, told: str) -> None:
    assert node(tree_of(status_of("a"), status_of("b", "a", applet=applet)), "b").made_by == told
    assert node(tree_of(status_of("a")), "a").made_by == ""
