"""The routes of the Async Service, for programs that speak to one: flows in its words, and items one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.api import Api
from pinlater.errors import ContinuationInvalid, ShardConnectionFailed
from pinlater.http import job_tree_answers as answers
from pinlater.http import job_tree_forms as forms
from pinlater.http.assignments import AssignmentRef, assign
from pinlater.http.encodings import refusal
from pinlater.http.job_tree_forms import MISSED_HEARTBEATS, TreeJobRef
from pinlater.http.model_map import answer_of, answers_of, words_of
from pinlater.http.problems import NotHeld, NotThere
from pinlater.http.route import IDEMPOTENCY_HEADER, Incoming, RouteTable
from pinlater.model import CONTINUATION_END, CONTINUATION_START, Ack, AckOutcome, Heartbeat, HeartbeatOutcome
from pinlater.model.flow_words import FlowItem, FlowStatus, ItemState
from pinlater.wire import flow_methods, methods

TREES = "Job trees"
JOB_TREE_ROUTES = RouteTable()

_TREE = "f11dcb3925cb3e2974d4084543"


# -- jobs --------------------------------------------------------------------------------------------------------------


@JOB_TREE_ROUTES.add(
    TREES,
    "POST /job",
    flow_methods.CREATE_FLOW,
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
)
async def _post_job(incoming: Incoming, form: forms.JobTreeForm) -> answers.JobCreatedAnswer:
    """Create a tree of jobs, or add items to a job."""
    if form.job_id:
        ref = forms.job_of(form.job_id)
        numbers = await incoming.api.add_flow_items(
            ref.tree, ref.name, form.added(), seal=form.sealed, context=incoming.context
        )
        return answers.JobCreatedAnswer(ref.tree, item_ids=numbers)
    new = form.flow(incoming.headers.get(IDEMPOTENCY_HEADER))
    created = await incoming.api.create_flow(new, context=incoming.context)
    return answers.created(created.id, created.is_new, [stage.name for stage in new.stages])


@JOB_TREE_ROUTES.add(TREES, "GET /job", flow_methods.GET_FLOWS)
async def _get_jobs(incoming: Incoming, query: forms.TreesQuery) -> answers.TreesAnswer:
    """A page of the trees of jobs that the caller may see, the newest first."""
    return answers.trees(await incoming.call(Api.get_flows, query))


@JOB_TREE_ROUTES.add(TREES, "GET /job/{job}/status", flow_methods.GET_FLOW)
async def _get_job_status(incoming: Incoming, query: forms.TreeStatusQuery) -> answers.TreeStatusAnswer:
    """How many items of each job are in which state, with results of final stages."""
    ref = TreeJobRef.of(incoming.path["job"])
    with incoming.waiting(query.wait_ms):
        status = await incoming.call(Api.get_flow, query, ref.tree)
    names = [each.stage.name for each in status.stages]
    if ref.name and ref.name not in names:
        raise NotThere(f"there is no job {ref.name[:100]!r} in this tree; it has {', '.join(names)[:500]}")
    results: Sequence[FlowItem] = ()
    cursor = None
    if query.include_results:
        results, cursor = await _results(incoming, status, ref.name, query)
    shown = answers_of(answers.ItemResultAnswer, results)
    return answers.tree(answers.TreeStatusAnswer, status, ref.name, results=shown, next_cursor=cursor)


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


@JOB_TREE_ROUTES.add(TREES, "DELETE /job/{job}", flow_methods.DELETE_FLOW)
async def _delete_job(incoming: Incoming) -> None:
    """Delete a tree of jobs with all its items; one that runs is cancelled first."""
    ref = TreeJobRef.of(incoming.path["job"])
    if ref.name:
        raise refusal("job", f"a job goes with its tree: delete {ref.tree[:100]}")
    await incoming.api.delete_flow(ref.tree, context=incoming.context)


# -- items -------------------------------------------------------------------------------------------------------------


@JOB_TREE_ROUTES.add(TREES, "GET /job_item", flow_methods.GET_FLOW_ITEMS)
async def _get_job_items(incoming: Incoming, query: forms.JobItemsQuery) -> answers.JobItemsAnswer:
    """A page of the items of a tree of jobs, or of one job."""
    ref = TreeJobRef.of(query.job_id)
    numbers = () if query.item_id is None else (query.item_id,)
    page = await incoming.call(Api.get_flow_items, query, ref.tree, stage=ref.name, numbers=numbers)
    return answer_of(answers.JobItemsAnswer, page)


@JOB_TREE_ROUTES.add(
    TREES,
    "POST /job_item/{item}/worker/{worker}",
    flow_methods.ASSIGN_ITEM,
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
)
async def _assign_job_item(incoming: Incoming, query: forms.AssignQuery) -> answers.AssignmentAnswer:
    """Assign one item to a worker."""
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


@JOB_TREE_ROUTES.add(
    TREES,
    "POST /assignment/{assignment}/result",
    methods.ACK,
    example={"result": {"amount": 1200}},
    answer_example={"outcome": "succeeded"},
)
async def _end_assignment_with_result(incoming: Incoming, form: forms.ResultForm) -> answers.AssignmentEndedAnswer:
    """Say that an item was done, and with which result."""
    ref = AssignmentRef.of(incoming.path["assignment"])
    ack = Ack(ref.descriptor, claim_descriptor=ref.claim_descriptor, result=bytes(form.result))
    return await _end(incoming, ref, ack)


@JOB_TREE_ROUTES.add(
    TREES,
    "POST /assignment/{assignment}/failure",
    methods.ACK,
    example={"reason": "the bank does not answer"},
    answer_example={"outcome": "retried"},
)
async def _end_assignment_with_failure(
    incoming: Incoming, form: forms.FailureReasonForm
) -> answers.AssignmentEndedAnswer:
    """Say that an attempt failed, and why."""
    ref = AssignmentRef.of(incoming.path["assignment"])
    ack = Ack(ref.descriptor, form.reason, claim_descriptor=ref.claim_descriptor, permanent=form.permanent)
    return await _end(incoming, ref, ack)


@JOB_TREE_ROUTES.add(
    TREES, "POST /assignment/{assignment}/heartbeat", methods.HEARTBEAT, answer_example={"cancelled": False}
)
async def _keep_assignment(incoming: Incoming) -> answers.AssignmentKeptAnswer:
    """Keep an assignment, and hear whether to stop."""
    ref = AssignmentRef.of(incoming.path["assignment"])
    sign = Heartbeat(ref.descriptor, ref.claim_descriptor)
    (found,) = await incoming.api.heartbeat(ref.queue, [sign], context=incoming.context)
    if found.outcome is HeartbeatOutcome.LOST:
        raise _not_held()
    if found.outcome is HeartbeatOutcome.UNREACHABLE:
        raise ShardConnectionFailed("the shard of this item cannot be asked now: send the heartbeat again")
    return answers.AssignmentKeptAnswer(found.outcome is HeartbeatOutcome.CANCEL, found.cancelled_by or None)
