"""The calls about alarms: what stands, what ended, within the rights of the caller; and mutes by operators."""

from __future__ import annotations

from dataclasses import replace

from pinlater.alarms.alarm_entries import KEPT_ENDED
from pinlater.alarms.condition_table import BY_NAME
from pinlater.alarms.judgement import MOST, Mute
from pinlater.durations import DAY_MS, duration_text
from pinlater.errors import NoHealthyShards, RequestInvalid
from pinlater.model import EVERY_QUEUE, RequestContext
from pinlater.model.alarm_views import AlarmsPage
from pinlater.near_names import meant_name
from pinlater.service.admin_password import Operator
from pinlater.service.audit import PROTECTED
from pinlater.service.cluster_parts import JudgedAlarms
from pinlater.service.rights import may_read
from pinlater.service.service_context import ServiceContext

LONGEST_MUTE_MS = 30 * DAY_MS
MAX_REASON_CHARS = 500
MAX_SUBJECT_CHARS = 200


class AlarmCalls:
    """For one service; without a judge there is no alarm."""

    def __init__(self, context: ServiceContext, judge: JudgedAlarms | None) -> None:
        self._judge = judge
        self._clock = context.clock
        self._admin = context.admin
        self._audit = context.audit

    async def page(self, ended: bool, limit: int, context: RequestContext | None) -> AlarmsPage:
        if self._judge is None:
            return AlarmsPage(self._clock.now_ms())
        page = await (self._judge.ended_page(KEPT_ENDED) if ended else self._judge.page(MOST))
        found = [alarm.shown_to(lambda *of: may_read(context, *of)) for alarm in page.alarms]
        shown = [alarm for alarm in found if alarm is not None]
        more = page.more if may_read(context, EVERY_QUEUE) else 0
        return replace(page, alarms=shown[:limit], more=more + max(0, len(shown) - limit))

    async def mute(self, name: str, subject: str, for_ms: int, reason: str, password: str, operator: Operator) -> None:
        await self._admin.check(password, operator)
        if name not in BY_NAME:
            raise RequestInvalid.of("name", name[:100], f"a condition{meant_name(name, BY_NAME)}: {', '.join(BY_NAME)}")
        if not 0 <= for_ms <= LONGEST_MUTE_MS:
            raise RequestInvalid.of("forMillis", for_ms, f"0 to {LONGEST_MUTE_MS} ({duration_text(LONGEST_MUTE_MS)})")
        if len(subject) > MAX_SUBJECT_CHARS:
            raise RequestInvalid.of("the length of subject", len(subject), f"at most {MAX_SUBJECT_CHARS}")
        if len(reason) > MAX_REASON_CHARS or (for_ms and not reason.strip()):
            raise RequestInvalid.of("the length of reason", len(reason), f"1 to {MAX_REASON_CHARS}")
        if self._judge is None:
            raise NoHealthyShards("this server judges no alarms")
        now_ms = self._clock.now_ms()
        await self._judge.mute(Mute(name, subject, now_ms + for_ms, operator.who, reason, now_ms))
        detail = f"for {duration_text(for_ms)}: {reason}" if for_ms else "ended"
        target = f"{name}/{subject}" if subject else name
        await self._audit.write(operator.who, "mute_alarm", target, detail, part=PROTECTED)
