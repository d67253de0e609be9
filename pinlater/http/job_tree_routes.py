"""The routes of the Async Service, for programs that speak to one: flows in its words, and items one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.errors import ContinuationInvalid, ShardConnectionFailed
from pinlater.http import job_tree_answers as answers
from pinlater.http import job_tree_forms as forms
from pinlater.http.assignments import AssignmentRef, assign
from pinlater.http.encodings import refusal
from pinlater.http.flow_forms import flow_state_of, item_state_of
from pinlater.http.job_tree_forms import MISSED_HEARTBEATS, TreeJobRef
from pinlater.http.model_map import answer_of, answers_of, words_of
from pinlater.http.problems import NotHeld, NotThere
from pinlater.http.route import IDEMPOTENCY_HEADER, Incoming, Route
from pinlater.model import CONTINUATION_END, CONTINUATION_START, Ack, AckOutcome, Heartbeat, HeartbeatOutcome
from pinlater.model.flow_words import FlowItem, FlowStatus, ItemState
from pinlater.wire import flow_methods, methods

TREES = "Job trees"

_TREE = "f11dcb3925cb3e2974d4084543"


# -- jobs --------------------------------------------------------------------------------------------------------------


async def _post_job(incoming: Incoming) -> answers.JobCreatedAnswer:
    form: forms.JobTreeForm = incoming.form
    if form.job_id:
        ref = forms.job_of(form.job_id)
        numbers = await incoming.api.add_flow_items(
            ref.tree, ref.name, form.added(), seal=form.sealed, context=incoming.context
        )
        return answers.JobCreatedAnswer(ref.tree, item_ids=numbers)
    new = form.flow(incoming.headers.get(IDEMPOTENCY_HEADER))
    created = await incoming.api.create_flow(new, context=incoming.context)
    return answers.created(created.id, created.is_new, [stage.name for stage in new.stages])


async def _get_jobs(incoming: Incoming) -> answers.TreesAnswer:
    query: forms.TreesQuery = incoming.query
    page = await incoming.api.get_flows(
        name=query.name,
        dedupe_key=query.dedupe_key,
        state=flow_state_of(query.state),
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    return answers.trees(page)


async def _get_status(incoming: Incoming) -> answers.TreeAnswer:
    query: forms.TreeStatusQuery = incoming.query
    ref = TreeJobRef.of(incoming.path["job"])
    with incoming.waiting(query.wait_ms):
        status = await incoming.api.get_flow(ref.tree, wait_ms=query.wait_ms, context=incoming.context)
    names = [each.stage.name for each in status.stages]
    if ref.name and ref.name not in names:
        raise NotThere(f"there is no job {ref.name[:100]!r} in this tree; it has {', '.join(names)[:500]}")
    results: Sequence[FlowItem] = ()
    cursor = None
    if query.include_results:
        results, cursor = await _results(incoming, status, ref.name, query)
    shown = answers_of(answers.ItemResultAnswer, results)
    return answers.tree(status, ref.name, answers.TreeStatusAnswer, results=shown, next_cursor=cursor)


async def _results(
    incoming: Incoming, status: FlowStatus, name: str, query: forms.TreeStatusQuery
) -> tuple[Sequence[FlowItem], str | None]:
    """A page of those of the final stages, one stage after the other, and where the next one begins."""
    final = [
        each.stage.name
        for each in status.stages
        if each.stage.is_final and each.succeeded and name in ("", each.stage.name)
    ]
    stage, continuation = final[0] if final else "", CONTINUATION_START
    if query.cursor:
        stage, colon, continuation = query.cursor.partition(":")
        if not colon or stage not in final:
            raise ContinuationInvalid("cursor: it is none of those that a page before has given")
    if not stage:
        return (), None
    page = await incoming.api.get_flow_items(
        status.id,
        stage=stage,
        state=ItemState.SUCCEEDED,
        continuation=continuation,
        limit=query.limit,
        context=incoming.context,
    )
    if page.continuation != CONTINUATION_END:
        return page.items, f"{stage}:{page.continuation}"
    after = final[final.index(stage) + 1 :]
    return page.items, f"{after[0]}:{CONTINUATION_START}" if after else None


async def _delete_job(incoming: Incoming) -> None:
    ref = TreeJobRef.of(incoming.path["job"])
    if ref.name:
        raise refusal("job", f"a job goes with its tree: delete {ref.tree[:100]}")
    await incoming.api.delete_flow(ref.tree, context=incoming.context)


# -- items -------------------------------------------------------------------------------------------------------------


async def _get_items(incoming: Incoming) -> answers.JobItemsAnswer:
    query: forms.JobItemsQuery = incoming.query
    ref = TreeJobRef.of(query.job_id)
    page = await incoming.api.get_flow_items(
        ref.tree,
        stage=ref.name,
        state=item_state_of(query.state),
        dedupe_key=query.dedupe_key,
        numbers=() if query.item_id is None else (query.item_id,),
        include_body=query.include_payload,
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    return answer_of(answers.JobItemsAnswer, page)


async def _assign(incoming: Incoming) -> answers.AssignmentAnswer:
    query: forms.AssignQuery = incoming.query
    made = await assign(incoming, MISSED_HEARTBEATS * query.heartbeat_ms, incoming.path["worker"])
    return answers.assignment(int(incoming.path["item"]), made, query.heartbeat_ms)


# -- assignments -------------------------------------------------------------------------------------------------------


async def _end(incoming: Incoming, ref: AssignmentRef, ack: Ack) -> answers.AssignmentEndedAnswer:
    """NotHeld."""
    succeeded, failed = ([], [ack]) if ack.result is None else ([ack], [])
    (outcome,) = await incoming.api.ack(ref.queue, succeeded, failed, context=incoming.context)
    if outcome is AckOutcome.IGNORED:
        raise _not_held()
    return answers.AssignmentEndedAnswer(*words_of([outcome]))


def _not_held() -> NotHeld:
    return NotHeld(
        "this assignment is over: it was ended, or missed its heartbeats; GET /job_item says what became of it"
    )


async def _result(incoming: Incoming) -> answers.AssignmentEndedAnswer:
    form: forms.ResultForm = incoming.form
    ref = AssignmentRef.of(incoming.path["assignment"])
    ack = Ack(ref.descriptor, claim_descriptor=ref.claim_descriptor, result=bytes(form.result))
    return await _end(incoming, ref, ack)


async def _failure(incoming: Incoming) -> answers.AssignmentEndedAnswer:
    form: forms.FailureReasonForm = incoming.form
    ref = AssignmentRef.of(incoming.path["assignment"])
    ack = Ack(ref.descriptor, form.reason, claim_descriptor=ref.claim_descriptor, permanent=form.permanent)
    return await _end(incoming, ref, ack)


async def _heartbeat(incoming: Incoming) -> answers.AssignmentKeptAnswer:
    ref = AssignmentRef.of(incoming.path["assignment"])
    sign = Heartbeat(ref.descriptor, ref.claim_descriptor)
    (found,) = await incoming.api.heartbeat(ref.queue, [sign], context=incoming.context)
    if found.outcome is HeartbeatOutcome.LOST:
        raise _not_held()
    if found.outcome is HeartbeatOutcome.UNREACHABLE:
        raise ShardConnectionFailed("the shard of this item cannot be asked now: send the heartbeat again")
    return answers.AssignmentKeptAnswer(found.outcome is HeartbeatOutcome.CANCEL, found.cancelled_by or None)


JOB_TREE_ROUTES = (
    Route(
        name="post_job",
        verb="POST",
        path="/job",
        tag=TREES,
        summary="Create a tree of jobs, or add items to a job",
        method=flow_methods.CREATE_FLOW,
        call=_post_job,
        form=forms.JobTreeForm,
        answer=answers.JobCreatedAnswer,
        status=201,
        has_idempotency_key=True,
        example={
            "taskName": "calculate",
            "queue": "calculate",
            "maxFailuresPerItem": 3,
            "dedupeKey": "2026-11",
            "items": [{"payload": {"user": 1}}, {"payload": {"user": 2}}],
            "sealed": True,
            "children": [
                {
                    "taskName": "pay",
                    "queue": "pay",
                    "applet": {"kind": "map", "expression": "{user: payload.user, amount: result.amount}"},
                    "finalStage": True,
                }
            ],
        },
        answer_example={
            "treeId": _TREE,
            "isNew": True,
            "jobs": {"calculate": f"{_TREE}:calculate", "pay": f"{_TREE}:pay"},
        },
    ),
    Route(
        name="get_jobs",
        verb="GET",
        path="/job",
        tag=TREES,
        summary="A page of the trees of jobs that the caller may see, the newest first",
        method=flow_methods.GET_FLOWS,
        call=_get_jobs,
        query=forms.TreesQuery,
        answer=answers.TreesAnswer,
    ),
    Route(
        name="get_job_status",
        verb="GET",
        path="/job/{job}/status",
        tag=TREES,
        summary="How many items of each job are in which state, with results of final stages",
        method=flow_methods.GET_FLOW,
        call=_get_status,
        query=forms.TreeStatusQuery,
        answer=answers.TreeStatusAnswer,
    ),
    Route(
        name="delete_job",
        verb="DELETE",
        path="/job/{job}",
        tag=TREES,
        summary="Delete a tree of jobs with all its items; one that runs is cancelled first",
        method=flow_methods.DELETE_FLOW,
        call=_delete_job,
    ),
    Route(
        name="get_job_items",
        verb="GET",
        path="/job_item",
        tag=TREES,
        summary="A page of the items of a tree of jobs, or of one job",
        method=flow_methods.GET_FLOW_ITEMS,
        call=_get_items,
        query=forms.JobItemsQuery,
        answer=answers.JobItemsAnswer,
    ),
    Route(
        name="assign_job_item",
        verb="POST",
        path="/job_item/{item}/worker/{worker}",
        tag=TREES,
        summary="Assign one item to a worker",
        method=flow_methods.ASSIGN_ITEM,
        call=_assign,
        query=forms.AssignQuery,
        answer=answers.AssignmentAnswer,
        answer_example={
            "assignmentId": AssignmentRef(
                "calculate:s1:p1:1790000000000000",
                "web-1:4711:1790000000000:42-3f9c2a51b0774c0e9a7d0b1f6c5e8d24:ada",
            ).id(),
            "itemId": 1,
            "payload": {"user": 1},
            "heartbeatMs": 20_000,
            "timeoutMs": 60_000,
            "expiresAtMs": 1_790_000_060_000,
        },
    ),
    Route(
        name="end_assignment_with_result",
        verb="POST",
        path="/assignment/{assignment}/result",
        tag=TREES,
        summary="Say that an item was done, and with which result",
        method=methods.ACK,
        call=_result,
        form=forms.ResultForm,
        answer=answers.AssignmentEndedAnswer,
        example={"result": {"amount": 1200}},
        answer_example={"outcome": "succeeded"},
    ),
    Route(
        name="end_assignment_with_failure",
        verb="POST",
        path="/assignment/{assignment}/failure",
        tag=TREES,
        summary="Say that an attempt failed, and why",
        method=methods.ACK,
        call=_failure,
        form=forms.FailureReasonForm,
        answer=answers.AssignmentEndedAnswer,
        example={"reason": "the bank does not answer"},
        answer_example={"outcome": "retried"},
    ),
    Route(
        name="keep_assignment",
        verb="POST",
        path="/assignment/{assignment}/heartbeat",
        tag=TREES,
        summary="Keep an assignment, and hear whether to stop",
        method=methods.HEARTBEAT,
        call=_heartbeat,
        answer=answers.AssignmentKeptAnswer,
        answer_example={"cancelled": False},
    ),
)
