"""Turns off one protection at a time in a copy of the source: each must turn its named test red.

`python -m tests.mutants [name …]`. A check that cannot fail is not a check; a mutant that survives is a missing test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mutant:
    """One protection, how it is turned off, and the test that must notice."""

    name: str
    file: str
    before: str
    after: str
    test: str


ENGINE = "tests/engine"
GRAPHS = "tests/langgraph"
AGENTS = "tests/pydantic_ai"
SERVERS = "tests/mcp"
SDK = "tests/openai_agents"
GATE = "tests/replay"
LONGEST_S = 180
MUTANTS = [
    Mutant(
        "a rehearsal goes on with what is not recorded",
        "engine/rehearsal.py",
        "            raise asyncio.CancelledError\n        await self._stand(scope)",
        "            raise asyncio.CancelledError",
        f"{GATE}/test_verb.py -k judged_before",
    ),
    Mutant(
        "a rehearsal cancels what may have acted with its branch",
        "engine/rehearsal.py",
        "call.sent.status in OPEN and not self.leaving(scope)",
        "False",
        f"{GATE}/test_places.py -k each_beginning",
    ),
    Mutant(
        "the gate calls what goes on live the same",
        "gate/judge.py",
        "next((one for one in stands if not one.recorded), None)",
        "None",
        f"{GATE}/test_verb.py -k judged_before",
    ),
    Mutant(
        "the gate lets a run with another end pass as the same",
        "gate/judge.py",
        "entry.payload == ended.result:",
        "True:",
        f"{GATE}/test_assert_replays.py -k compatible",
    ),
    Mutant(
        "what code does outside of steps is told of, and done",
        "gate/watch.py",
        'raise Acted(f"{deed.what} at {deed.line}")',
        "pass",
        f"{GATE}/test_watch.py -k python_is_asked",
    ),
    Mutant(
        "what a C library tries is not counted",
        "gate/alone.py",
        "return self._last > before",
        "return False",
        f"{GATE}/test_watch.py -k c_library",
    ),
    Mutant(
        "a run over which its process died is forgotten",
        "gate/crew.py",
        'self._tell(target, of(row, verdict="breaks", why=why, entries=entries))',
        "pass",
        f"{GATE}/test_verb.py -k gets_away",
    ),
    Mutant(
        "a gate that has looked at nothing lets all through",
        "cli/replay.py",
        'say("error: there is no run to replay")\n        return codes.ERROR',
        'say("error: there is no run to replay")\n        return codes.OK',
        f"{GATE}/test_verb.py -k empty_store",
    ),
    Mutant(
        "an old version takes a state that a rule has taken away from it",
        "engine/rules.py",
        "if version in turn.left and version != turn.version:",
        "if False:",
        f"{ENGINE}/test_adopted_states.py -k old_worker_does_not",
    ),
    Mutant(
        "a rule is applied to calls of any version",
        "engine/adoption.py",
        "agent.adopts.get(call.version) if call is not None else None",
        "next(iter(agent.adopts.values()), None) if call is not None else None",
        f"{ENGINE}/test_adopted_steps.py -k never_applied",
    ),
    Mutant(
        "a rule follows code that asks for something else each time",
        "engine/rules.py",
        "asked.name in self.added and asked.name not in waits",
        "asked.name in self.added",
        f"{ENGINE}/test_adopted_steps.py -k something_else_each_time",
    ),
    Mutant(
        "a rule adopts a renamed step with other arguments",
        "engine/rules.py",
        "== asked.name and same and",
        "== asked.name and",
        f"{ENGINE}/test_adopted_steps.py -k for_people_to_decide",
    ),
    Mutant(
        "the digest of the arguments is not compared",
        "engine/replay.py",
        "return call.digest == digest and (call.name == name or call.name in former)",
        "return call.name == name or call.name in former",
        f"{ENGINE}/test_replay.py -k changed_argument",
    ),
    Mutant(
        "calls are consumed in any order",
        "engine/replay.py",
        "            head = self._left[0]\n",
        "            same = (i for i, call in enumerate(self._left) if _is(call, name, digest, former))\n"
        "            self._left.rotate(-next(same, 0))\n"
        "            head = self._left[0]\n",
        f"{ENGINE}/test_replay.py -k reordered",
    ),
    Mutant(
        "a scope may end with recorded calls left",
        "engine/replay.py",
        "if head is not None:",
        "if False:",
        f"{ENGINE}/test_replay.py",
    ),
    Mutant(
        "the intent is not committed before the send",
        "engine/send.py",
        'await self._intent(call, send_until - now, standing.key if standing is not None else "", fresh)',
        'key = standing.key if standing is not None else ""\n'
        "            intent = asyncio.ensure_future(self._intent(call, send_until - now, key, fresh))\n"
        "            while self.key not in attempt.fold.keys:\n"
        "                await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0)\n"
        "            attempt.helpers.add(intent)",
        f"{ENGINE}/test_operations.py -k intent_is_in_the_log",
    ),
    Mutant(
        "what an earlier attempt may have sent is not doubted",
        "engine/drive.py",
        "        await self._recover(journal)\n",
        "",
        f"{ENGINE}/test_doubt.py -k before_user_code_runs",
    ),
    Mutant(
        "a pending call of a lost worker is sent again",
        "engine/send.py",
        'elif sent.status == "pending" and not self.dedupes(sent):',
        "elif False:",
        f"{ENGINE}/test_doubt.py -k past_its_window",
    ),
    Mutant(
        "did-not-happen is believed at once",
        "engine/settle.py",
        "case DidNotHappen() if now < sent.not_before or left_ms > 0:",
        "case DidNotHappen() if False:",
        f"{ENGINE}/test_operations.py -k believed_only",
    ),
    Mutant(
        "a person may say did-not-happen at once",
        "engine/control.py",
        'if decision.decision == "did-not-happen" and now < operation.not_before:',
        "if False:",
        f"{ENGINE}/test_operations.py -k not_too_early",
    ),
    Mutant(
        "a closed attempt still acts",
        "engine/attempt.py",
        '    """The seam of one invocation."""\n',
        '    """The seam of one invocation."""\n\n    closed = property(lambda self: "", lambda self, why: None)\n',
        f"{ENGINE}/test_closed.py",
    ),
    Mutant(
        "a run may end well although an operation acted twice",
        "engine/drive.py",
        "        if attempt.fold.duplicate:\n",
        "        if False:\n",
        f"{ENGINE}/test_doubt.py -k told_while_it_runs",
    ),
    Mutant(
        "secrets are not scrubbed",
        "secret/scrubber.py",
        "    def scrub(self, text: str) -> str:\n",
        "    def scrub(self, text: str) -> str:\n        return text\n\n    def _scrub(self, text: str) -> str:\n",
        f"{ENGINE}/test_secrets.py -k canary",
    ),
    Mutant(
        "a lapsed lease is taken over unwatched",
        "engine/watch.py",
        "now - self._since[key] >= one.lease_ms / 3000",
        "True",
        f"{ENGINE}/test_worker.py -k only_after_watching",
    ),
    Mutant(
        "a gap in its sight does not restart the watch",
        "engine/watch.py",
        "if self._looked is None or now - self._looked > self.gap_s:",
        "if self._looked is None:",
        f"{ENGINE}/test_worker.py -k gap",
    ),
    Mutant(
        "a look that failed does not restart the watch",
        "engine/watch.py",
        "self._looked, self._due = None, -math.inf",
        "pass",
        f"{ENGINE}/test_worker.py -k look_that_failed",
    ),
    Mutant(
        "nobody looks again when a lease that is watched has expired",
        "engine/watch.py",
        "*(left for left in due if left > 0)",
        "",
        f"{ENGINE}/test_worker.py -k not_late",
    ),
    Mutant(
        "an idle worker gives no sign of life",
        "engine/worker.py",
        "sign = not self._drives and",
        "sign = False and",
        f"{ENGINE}/test_waking.py -k sign_of_life",
    ),
    Mutant(
        "an answer about an older claim loses a run",
        "engine/authority.py",
        "if grip.authority != authority:",
        "if False:",
        f"{ENGINE}/test_worker.py -k older_claim",
    ),
    Mutant(
        "an unknown commit is taken for done",
        "engine/journal.py",
        "                again = await self._settle_unknown(append)\n",
        "                again = None\n",
        f"{ENGINE}/test_journal.py -k unknown_commit",
    ),
    Mutant(
        "an unknown commit is simply repeated",
        "engine/journal.py",
        "if there := _holds(tail, append.drafts):",
        "if there := False:",
        f"{ENGINE}/test_journal.py -k unknown_commit",
    ),
    Mutant(
        "a late answer is thrown away",
        "engine/send.py",
        "                await self._testify(call, sent, got, op)\n",
        "",
        f"{ENGINE}/test_journal.py -k stolen",
    ),
    Mutant(
        "a second effect passes as a confirmation",
        "log/verdict.py",
        '    return "duplicate"\n',
        '    return "confirms"\n',
        f"{ENGINE}/test_doubt.py -k verdict_of_absence",
    ),
    Mutant(
        "retries are not bounded",
        "engine/send.py",
        "sent.spent >= self.policy.retry.attempts",
        "False",
        f"{ENGINE}/test_operations.py -k durable_timers_and_bounded",
    ),
    Mutant(
        "the send window is not checked",
        "engine/operation.py",
        "self._seam.kit.clock.boottime() > self._send_until:\n            raise WindowOver",
        "False:\n            raise WindowOver",
        f"{ENGINE}/test_worker.py -k send_window",
    ),
    Mutant(
        "a send after its window is not noticed",
        "engine/operation.py",
        "self._seam.kit.clock.boottime() > self._send_until:\n            self.sent_late",
        "False:\n            self.sent_late",
        f"{ENGINE}/test_journal.py -k notices_that_it_sent_late",
    ),
    Mutant(
        "operations of turns share a key",
        "engine/lineage.py",
        "str(attempt.fold.window)",
        '"0"',
        f"{ENGINE}/test_replay.py -k keys_of_their_own",
    ),
    Mutant(
        "the cancellation of a branch is not recorded",
        "engine/branches.py",
        "*(Item(kinds.ScopeCancelled(why=why), one.name) for one in open_still if one.cursor.cancelled is None),",
        "",
        f"{ENGINE}/test_scopes.py -k failing_branch",
    ),
    Mutant(
        "a sibling's failure cuts a call short",
        "engine/send.py",
        "    scope.shielded = True\n",
        "    scope.shielded = False\n    return await task\n",
        f"{ENGINE}/test_scopes.py -k never_cancelled",
    ),
    Mutant(
        "a foreign cancellation passes",
        "engine/attempt.py",
        "if task is not None and task.cancelling():\n            fault",
        "if False:\n            fault",
        f"{ENGINE}/test_scopes.py -k foreign",
    ),
    Mutant(
        "lapses are not counted",
        "engine/drive.py",
        "if row.lapses >= self._max_lapses and not news.progress:",
        "if False:",
        f"{ENGINE}/test_worker.py -k poison",
    ),
    Mutant(
        "a diverged build claims again",
        "store/sqlite/queries.sql",
        "divergence.code = :code\n    )\norder by priority desc, updated_at",
        "false\n    )\norder by priority desc, updated_at",
        f"{ENGINE}/test_replay.py -k heals",
    ),
    Mutant(
        "a diverged build claims again what others may continue",
        "store/sqlite/queries.sql",
        "divergence.code = :code\n    )\norder by priority desc, ready_at",
        "false\n    )\norder by priority desc, ready_at",
        f"{ENGINE}/test_replay.py -k stays_ready",
    ),
    Mutant(
        "a call is sent late in a lease",
        "engine/send.py",
        "await attempt.journal.grip.ensure(kit.lease_s / 3)",
        "await attempt.journal.grip.ensure()",
        f"{ENGINE}/test_rules.py -k sent_late",
    ),
    Mutant(
        "entries are appended past the safe deadline",
        "engine/journal.py",
        "            await self.grip.ensure()\n            if self._splits",
        "            if self._splits",
        f"{ENGINE}/test_rules.py -k appended_past",
    ),
    Mutant(
        "the other side is given no time to act",
        "engine/doubt.py",
        "+ sent.timeout_ms + sent.settle_ms",
        "+ sent.timeout_ms",
        f"{ENGINE}/test_rules.py -k before_a_no_counts",
    ),
    Mutant(
        "a value leaves its window with the turn after it",
        "engine/journal.py",
        "return bool(self._buffer) and any(isinstance(item.fact, kinds.Turn) for item in items)",
        "return False",
        f"{ENGINE}/test_honesty.py -k beside_a_turn",
    ),
    Mutant(
        "a word about one attempt settles another",
        "engine/inbox.py",
        "row.attempt != said.attempt or ",
        "",
        f"{ENGINE}/test_rules.py -k another_attempt",
    ),
    Mutant(
        "a blocked run keeps an operation pending",
        "engine/drive.py",
        'left = doubts(journal.fold, self.kit.time.now(), "the run is blocked", lost=True)',
        "left = list[Item]()",
        f"{ENGINE}/test_rules.py -k nothing_pending",
    ),
    Mutant(
        "a call gets its entry between the cancellation and its being told",
        "engine/attempt.py",
        "if root is not None and self.leaving(root):",
        "if root is not None and False:",
        f"{ENGINE}/test_places.py -k gets_its_place",
    ),
    Mutant(
        "the key of a call that left nothing is not given back",
        "engine/attempt.py",
        "root.cursor.give_back()",
        "pass",
        f"{ENGINE}/test_cancel.py -k key_of_a_call",
    ),
    Mutant(
        "a call that was cut gives what is recorded of it",
        "engine/attempt.py",
        'if call.cut and (call.done or kind != "operation"):',
        "if False:",
        "tests/sweep/test_cancelled.py -k suspended",
    ),
    Mutant(
        "a person is waited for although the run is cancelled",
        "engine/send.py",
        "if self.attempt.leaving(self.scope):",
        "if False:",
        f"{ENGINE}/test_cancel.py -k becomes_doubtful",
    ),
    Mutant(
        "what is in flight at the end of grace is waited for",
        "engine/drive.py",
        'if attempt.stop.kind == "over" or attempt.quiet():',
        "if attempt.quiet():",
        f"{ENGINE}/test_stopping.py -k outlasts",
    ),
    Mutant(
        "a turn commits although the run is cancelled",
        "engine/turns.py",
        "if self._attempt.fold.cancelling is not None:",
        "if False:",
        f"{ENGINE}/test_stopping.py -k loop_that_goes_on",
    ),
    Mutant(
        "a result counts although the run is cancelled",
        "engine/drive.py",
        "        if attempt.fold.cancelling is not None:\n            told = None",
        "        if False:\n            told = None",
        f"{ENGINE}/test_stopping.py -k swallows",
    ),
    Mutant(
        "a paused run is not looked after",
        "store/sqlite/queries.sql",
        "(run.paused_at is not null or run.status = 'blocked') and unread.asked",
        "run.status = 'blocked' and unread.asked",
        f"{ENGINE}/test_pausing.py -k only_stored",
    ),
    Mutant(
        "a pause is taken as read before the run is paused",
        "engine/inbox.py",
        "kept = {message.id for _, message in (*left, *held)}",
        "kept = {message.id for _, message in left}",
        f"{ENGINE}/test_pausing.py -k survives",
    ),
    Mutant(
        "a run is cut off at its deadline, without its grace",
        "store/sqlite/queries.sql",
        "deadline_at <= :now - :grace_ms",
        "deadline_at <= :now",
        f"{ENGINE}/test_stopping.py -k cleans_up_at_its_deadline",
    ),
    Mutant(
        "a rollback passes what is in doubt",
        "engine/rollback.py",
        "                    await self._settle(row)\n",
        "                    return\n",
        f"{ENGINE}/test_rollback.py -k only_a_person_knows",
    ),
    Mutant(
        "a rollback looks up what may still be on its way",
        "engine/rollback.py",
        "            if left > 0:\n",
        "            if False:\n",
        f"{ENGINE}/test_rollback.py -k no_can_be_believed",
    ),
    Mutant(
        "what is settled wakes no rollback",
        "engine/control.py",
        "            await undoing.wake(self.store, self.clock, row)\n",
        "            pass\n",
        f"{ENGINE}/test_rollback.py -k only_a_person_knows",
    ),
    Mutant(
        "a rollback believes a log that was changed",
        "engine/rollback.py",
        "            head = verify(self.attempt.key, self.target, page, head.digest)\n",
        "            head = Head(page[-1].seq + 1, b'')\n",
        f"{ENGINE}/test_rollback.py -k log_that_was_changed",
    ),
    Mutant(
        "each rollback has keys of its own",
        "engine/compensation.py",
        'return Standing(digest(self.attempt.key, b"compensation", self._original.id.encode()))',
        "return Standing(digest(self.attempt.key, self.attempt.journal.row.id.encode(), self._original.id.encode()))",
        f"{ENGINE}/test_rollback.py -k same_key",
    ),
    Mutant(
        "a compensation that fails is given up",
        "engine/compensation.py",
        "    async def give_up(self",
        "    async def give_up_never(self",
        f"{ENGINE}/test_rollback.py -k fails_blocks",
    ),
    Mutant(
        "a compensation that was let be tried again has no tries",
        "log/fold.py",
        "call.sent.spent = 0 if call.sent.compensates else call.sent.spent",
        "pass",
        f"{ENGINE}/test_rollback.py -k fails_blocks",
    ),
    Mutant(
        "what another rollback has left in doubt is undone again",
        "engine/rollback.py",
        "if doubtful := next((one for one in before if one.status in OPEN), None):",
        "if doubtful := next((one for one in before if False), None):",
        f"{ENGINE}/test_rollback_around.py -k later_rollback_waits",
    ),
    Mutant(
        "a run that has not ended is undone",
        "engine/rollback.py",
        "while not (row := await self._target()).ended:",
        "while (row := await self._target()) is None:",
        f"{ENGINE}/test_rollback.py -k cancelled_first",
    ),
    Mutant(
        "a failure that did not come to pass is undone",
        "engine/rollback.py",
        'return self.order.cause != "failure" or row.status == "failed"',
        "return True",
        f"{ENGINE}/test_rollback_asked.py -k did_not_come_to_pass",
    ),
    Mutant(
        "the rollback of a failure begins after its end",
        "engine/drive.py",
        'if status == "failed" and self.agent.on_failure == "rollback":',
        "if False:",
        f"{ENGINE}/test_rollback_asked.py -k careful_agent_undoes",
    ),
    Mutant(
        "a fork begins behind what was undone",
        "engine/forking.py",
        "if not self._spoilt and operation in self.undone:",
        "if False:",
        f"{ENGINE}/test_rollback_around.py -k does_not_begin_behind",
    ),
    Mutant(
        "a run is forked while it is rolled back",
        "engine/forking.py",
        "for one in await store.rollbacks(tenant, run) if not one.ended]:",
        "for one in await store.rollbacks(tenant, run) if False]:",
        f"{ENGINE}/test_rollback_around.py -k is_not_forked",
    ),
    Mutant(
        "a restart charges again under the key of what was undone",
        "engine/lineage.py",
        'return row.digest != call.digest or row.status == "compensated"',
        "return row.digest != call.digest",
        f"{ENGINE}/test_rollback_around.py -k another_key",
    ),
    Mutant(
        "a record that was compensated is overwritten",
        "store/sqlite/queries.sql",
        "    status = case when operation.compensated_by = '' then excluded.status else operation.status end,\n",
        "    status = excluded.status,\n",
        "tests/store/test_sqlite_suite.py -k test_sqlite",
    ),
    Mutant(
        "a compensation does not say so of what it undoes",
        "store/sqlite/append.py",
        "    for compensation in prepared.compensations:\n",
        "    for compensation in ():\n",
        f"{ENGINE}/test_rollback.py -k newest_first",
    ),
    Mutant(
        "what compensates gets the beginning of what was told later",
        "log/outcomes.py",
        ", kinds.Completed.KIND)\n",
        ")\n",
        f"{ENGINE}/test_rollback_late.py -k whole_outcome",
    ),
    Mutant(
        "the record of a decision hides what the other side has told",
        "engine/inbox.py",
        "if row.id not in settled_so)",
        "if True)",
        f"{ENGINE}/test_rollback_late.py -k at_once",
    ),
    Mutant(
        "a denial of what was undone is no news",
        "log/verdict.py",
        'frozenset(("succeeded", "compensated"))',
        'frozenset(("succeeded",))',
        f"{ENGINE}/test_rollback_late.py -k contradicts",
    ),
    Mutant(
        "what turns out to have happened behind a rollback stays",
        "engine/rollback.py",
        "                more = await self._pass(row) or more\n",
        "                await self._pass(row)\n",
        f"{ENGINE}/test_rollback_late.py -k turns_out",
    ),
    Mutant(
        "a compensation is left because nobody has looked",
        "engine/approval.py",
        'case "expired" if self._of.compensates:',
        'case "expired" if False:',
        f"{ENGINE}/test_rollback_around.py -k given_in_time",
    ),
    Mutant(
        "look-ups of a rollback are never made again",
        "engine/rollback.py",
        " and one.seq > attempt.fold.retried\n",
        "\n",
        f"{ENGINE}/test_rollback_around.py -k made_again",
    ),
    Mutant(
        "whoever asks is put off by a failure that is expected",
        "engine/undoing.py",
        '    if order.cause != "person":\n',
        "    if True:\n",
        f"{ENGINE}/test_rollback_asked.py -k put_off",
    ),
    Mutant(
        "two rollbacks of a run work at once",
        "engine/rollback.py",
        "if (len(id), id) < (len(me.id), me.id)), None)",
        "if False), None)",
        f"{ENGINE}/test_rollback_asked.py -k cannot_end",
    ),
    Mutant(
        "what was held is undone by its record's place",
        "engine/rollback.py",
        "return sorted(rows, key=lambda row: row.seq, reverse=True)",
        "return list(rows)[::-1]",
        f"{ENGINE}/test_rollback_around.py -k was_held",
    ),
    Mutant(
        "a call is recorded although somebody else has settled it",
        "engine/send.py",
        "        if call.done:\n            return  # somebody who knew was faster\n",
        "",
        f"{ENGINE}/test_doubt.py -k was_faster",
    ),
    Mutant(
        "later: what is told of a call in flight is read at once",
        "engine/inbox.py",
        "if journal.seam.in_flight(word.operation):",
        "if False:",
        f"{ENGINE}/test_later.py -k stays_unread",
    ),
    Mutant(
        "later: a denial is believed while a request may be on its way",
        "log/verdict.py",
        'return "too early" if early and status != "later" else "settles"',
        'return "settles"',
        f"{ENGINE}/test_later.py -k kept_until",
    ),
    Mutant(
        "later: somebody is told otherwise, and nobody hears of it",
        "engine/notices.py",
        'case kinds.Completed(verdict="contradicts"):',
        'case kinds.Completed(verdict="no news"):',
        f"{ENGINE}/test_later.py -k contrary",
    ),
    Mutant(
        "later: the same event counts twice",
        "app/complete.py",
        'f"{row.id}:{key}", later',
        'f"{row.id}:{control.clock.token()}", later',
        f"{ENGINE}/test_later.py -k same_key",
    ),
    Mutant(
        "later: it is waited for without end",
        "engine/later.py",
        "if attempt.kit.time.now() >= sent.until:",
        "if False:",
        f"{ENGINE}/test_later.py -k it_is_looked_up",
    ),
    Mutant(
        "later: a run ends, and waits for it still",
        "engine/doubt.py",
        "in (UNDER_WAY if ended else _LOST)",
        "in _LOST",
        f"{ENGINE}/test_later_ends.py -k leaves_it_in_doubt",
    ),
    Mutant(
        "later: what an ended run is told is left for another",
        "app/complete.py",
        "        await control.take_in(tenant, run.id, only=ENDED)\n",
        "        pass\n",
        f"{ENGINE}/test_later_ends.py -k as_evidence",
    ),
    Mutant(
        "later: an ended run takes a denial that nobody will come back to",
        "app/complete.py",
        "        await _refuse_too_early(control, run, row)\n",
        "        pass\n",
        f"{ENGINE}/test_later_ends.py -k as_evidence",
    ),
    Mutant(
        "later: a look-up says that it comes later",
        "engine/operation.py",
        "        if self._send_until is None or self._ended:\n",
        "        if self._ended:\n",
        f"{ENGINE}/test_later_ends.py -k look_up_cannot",
    ),
    Mutant(
        "later: an effect too many is told and forgotten",
        "log/awaited.py",
        '    if fact.verdict == "duplicate":\n',
        "    if False:\n",
        f"{ENGINE}/test_later.py -k duplicate",
    ),
    Mutant(
        "later: what the other side has taken on is asked for again before it is looked up",
        "engine/settle.py",
        "elif repeats and not (sent.until and policy.reconcile is not None):",
        "elif repeats:",
        f"{ENGINE}/test_later.py -k over",
    ),
    Mutant(
        "later: a denial costs none of the retries",
        "log/awaited.py",
        '        sent.spent += cost(sent)\n        sent.status = "absent"\n    return False',
        '        sent.status = "absent"\n    return False',
        f"{ENGINE}/test_later.py -k bounded",
    ),
    Mutant(
        "the audit believes what is said of compensations",
        "app/audit.py",
        'if by is None or by.compensates != row.id or by.status != "succeeded":',
        "if by is None:",
        f"{ENGINE}/test_rollback_around.py -k audit_finds",
    ),
    Mutant(
        "the commit of an intent takes no business key",
        "engine/send.py",
        "also=Also(use=use, take=take, marks=",
        "also=Also(use=use, take=None, marks=",
        f"{ENGINE}/test_keys_racing.py -k meanwhile",
    ),
    Mutant(
        "a business key is taken from whoever has it",
        "store/sqlite/queries.sql",
        "where\n    business_key.status = 'free'\n    or (\n",
        "where\n    true\n    or (\n",
        f"{ENGINE}/test_keys_racing.py -k meanwhile",
    ),
    Mutant(
        "a transactional tool acts before it has its business key",
        "engine/transact.py",
        "if take is not None and (theirs := await self._take(transaction, take)) is not None:",
        "if False:",
        f"{ENGINE}/test_keys_racing.py -k transactional",
    ),
    Mutant(
        "who waits for a business key is read as it was when the statement began",
        "store/postgres/queries.sql",
        "join lock_keys as held on held.key = given.key",
        "join {schema}.business_key as held on held.tenant = accepted.tenant and held.key = given.key",
        "tests/store/test_postgres_keys.py -k begins_to_wait_while",
    ),
    Mutant(
        "one may wait for a change of a business key that has come already",
        "store/postgres/queries.sql",
        "and changes = %(changes)s::bigint and status in",
        "and status in",
        "tests/store/test_postgres_keys.py -k behind_a_change",
    ),
    Mutant(
        "a run that ends keeps its business keys",
        "engine/marks.py",
        "return self.over or self.stands or any(",
        "return self.stands or any(",
        f"{ENGINE}/test_keys_left.py -k terminated_while_it_waits",
    ),
    Mutant(
        "a branch waits for a business key that has changed since it was read",
        "engine/business.py",
        "if parked is not None and attempt.wakes == seen:",
        "if parked is not None:",
        f"{ENGINE}/test_keys_left.py -k miss_no_outcome",
    ),
    Mutant(
        "a refused intent takes its business key in a commit of several",
        "store/sqlite/log.py",
        "first = append.use is None and append.take is None",
        "first = True",
        f"{ENGINE}/test_keys_left.py -k takes_no_key",
    ),
    Mutant(
        "a business key is free although its operation has acted after all",
        "model/business.py",
        'return "abandoned" if found == "free" and acted else found',
        "return found",
        f"{ENGINE}/test_keys_left.py -k done_by_nobody_else",
    ),
    Mutant(
        "other arguments share an outcome",
        "engine/business.py",
        "elif mark.digest != take.digest:",
        "elif False:",
        f"{ENGINE}/test_keys.py -k other_arguments",
    ),
    Mutant(
        "who lost a thread of a graph may write to it",
        "store/graphs.py",
        'return None if self.token == token else Held(self.holder if self.token else "", left)',
        "return None",
        f"{GRAPHS}/test_saver.py -k lost_a_thread",
    ),
    Mutant(
        "a batch builds on values of a graph that were taken away",
        "store/sqlite/graphs.py",
        "if batch.known is not None and batch.known != row.known:",
        "if False:",
        f"{GRAPHS}/test_growth.py -k taken_away",
    ),
    Mutant(
        "a graph goes on without the node in which its thread waits",
        "langgraph/writer.py",
        "if gone := sorted(_gone(graph, saver, saved, state)):",
        "if False and (gone := sorted(_gone(graph, saver, saved, state))):",
        f"{GRAPHS}/test_one_writer.py -k renamed",
    ),
    Mutant(
        "an answer is given to whatever a graph asks by now",
        "langgraph/writer.py",
        "if _stand(saved) != before:",
        "if False:",
        f"{GRAPHS}/test_one_writer.py -k another_question",
    ),
    Mutant(
        "a graph runs without holding its thread",
        "langgraph/saver.py",
        "if RUNNING in given and not self._any_writer",
        "if False and not self._any_writer",
        f"{GRAPHS}/test_one_writer.py -k not_wrapped",
    ),
    Mutant(
        "tool calls of a graph are told apart by their ids alone",
        "langgraph/tools.py",
        "for one in (thread, message, call))",
        "for one in (thread, call))",
        f"{GRAPHS}/test_tools.py -k another_message",
    ),
    Mutant(
        "tool calls of messages without an id are taken for one another",
        "langgraph/tools.py",
        "if not message:",
        "if False:",
        f"{GRAPHS}/test_tools.py -k told_from_a_later_one",
    ),
    Mutant(
        "a framework makes a call inside the call of a tool",
        "engine/guest.py",
        "if attempt is self._attempt:",
        "if False:",
        f"{ENGINE}/test_guest.py -k inside_a_call",
    ),
    Mutant(
        "a fork is held by what is harmless",
        "engine/send.py",
        "again = self.tool.policy.harmless or (",
        "again = False or (",
        f"{ENGINE}/test_guest.py -k done_again_by_a_fork",
    ),
    Mutant(
        "pydantic-ai: a new worker does not read the conversation",
        "harness/loop.py",
        "if fresh and turns.number:",
        "if False:",
        f"{AGENTS}/test_agent.py -k evicted",
    ),
    Mutant(
        "pydantic-ai: what asks for an approval is sent without one",
        "engine/guest.py",
        "if approval is not None and (by_people or (tool.policy.approval is None and self._was_asked(tool))):",
        "if False:",
        f"{AGENTS}/test_agent.py -k refusal",
    ),
    Mutant(
        "pydantic-ai: a busy provider is asked again as soon as a failing one",
        "pydantic_ai/ledger.py",
        'raise AskedAgain(str(error), headers.get("retry-after")) from error',
        "raise AskedAgain(str(error), None) from error",
        f"{AGENTS}/test_providers.py -k too_busy",
    ),
    Mutant(
        "pydantic-ai: how often a tool was tried is forgotten with the turn",
        "pydantic_ai/driver.py",
        "turn.retries = _retries(agent_run.ctx.deps.tool_manager)",
        "turn.retries = {}",
        f"{AGENTS}/test_conversations.py -k tried_again",
    ),
    Mutant(
        "pydantic-ai: other arguments than were approved are sent",
        "pydantic_ai/ledger.py",
        "if approved != asked:",
        "if False:",
        f"{AGENTS}/test_agent.py -k edited",
    ),
    Mutant(
        "pydantic-ai: what a tool returned is stored again",
        "pydantic_ai/messages.py",
        'return returned(outcomes, {str(part["tool_call_id"]): part["content"] for part in parts}) or whole',
        "return whole",
        f"{AGENTS}/test_conversations.py -k stored_once",
    ),
    Mutant(
        "pydantic-ai: a response is stored again when pydantic-ai has completed it",
        "pydantic_ai/messages.py",
        'key = next((key for key, parts in left if parts == whole["parts"]), "")',
        'key = ""',
        f"{AGENTS}/test_providers.py -k usage_and_cost",
    ),
    Mutant(
        "pydantic-ai: a worker that goes on does not know how many tools were called",
        "pydantic_ai/driver.py",
        "self._usage = self._told + _usage.validate_python(turn.beside)",
        "self._usage = replace(self._told)",
        f"{AGENTS}/test_context.py -k limits",
    ),
    Mutant(
        "pydantic-ai: a conversation that stays too long is tried for ever",
        "pydantic_ai/driver.py",
        "shortened = not shortened and await self._shorten(ledger, turn, keep)",
        "shortened = await self._shorten(ledger, turn, keep)",
        f"{AGENTS}/test_providers.py -k summed_up_once",
    ),
    Mutant(
        "pydantic-ai: notes are left out with what is summed up",
        "pydantic_ai/view.py",
        "notes = [text for turn in turns[:kept_from] for text in noted(turn)]",
        "notes = list[str]()",
        f"{AGENTS}/test_context.py -k notes",
    ),
    Mutant(
        "pydantic-ai: a registered tool that pydantic-ai wants approved is sent at once",
        "pydantic_ai/tools.py",
        "by_people = bool(ctx.tool_call_approved)",
        "by_people = False",
        f"{AGENTS}/test_people.py -k wants_approved",
    ),
    Mutant(
        "pydantic-ai: a tool is called as requests to its model are",
        "harness/units.py",
        "return f\"{agent}.tool-{plain.removeprefix(f'{agent}.')}\" if is_of_a_model(plain) else plain",
        "return plain",
        f"{AGENTS}/test_tools_of_all_kinds.py -k is_no_request",
    ),
    Mutant(
        "pydantic-ai: a result is taken for a wrapper of pydantic-ai",
        "pydantic_ai/ledger.py",
        'if kind == "tool_return" and not _is_wrapped(ended["result"]):',
        'if kind == "tool_return":',
        f"{AGENTS}/test_tools_of_all_kinds.py -k wrapper",
    ),
    Mutant(
        "a fork is held by requests to a model",
        "harness/units.py",
        "timeout=MODEL_TIMEOUT, harmless=True,",
        "timeout=MODEL_TIMEOUT,",
        f"{AGENTS}/test_people.py -k fork_asks",
    ),
    Mutant(
        "a response that no database takes is asked for again",
        "harness/units.py",
        "        return writable(value)\n    if isinstance(value, list):",
        "        return value\n    if isinstance(value, list):",
        f"{AGENTS}/test_people.py -k cannot_be_stored",
    ),
    Mutant(
        "OpenAI Agents: other arguments than were approved are sent",
        "openai_agents/tools.py",
        "given = text if kept == arguments else json.dumps(kept)",
        "given = text",
        f"{SDK}/test_agent.py -k edited",
    ),
    Mutant(
        "OpenAI Agents: what needs an approval is sent without one",
        "openai_agents/tools.py",
        "by_people = await self._needs_approval(ctx, arguments)",
        "by_people = False",
        f"{SDK}/test_agent.py -k refusal",
    ),
    Mutant(
        "OpenAI Agents: the model is told that a tool has failed before anybody knows",
        "openai_agents/tools.py",
        "timeout_seconds=None, _failure_error_function=None, _use_default_failure_error_function=False",
        "timeout_seconds=None",
        f"{SDK}/test_tools.py -k raises_is_in_doubt",
    ),
    Mutant(
        "OpenAI Agents: a timeout of the SDK says that nothing was done",
        "openai_agents/tools.py",
        "timeout = timedelta(seconds=seconds) if seconds is not None else TOOL_TIMEOUT",
        "timeout = TOOL_TIMEOUT",
        f"{SDK}/test_tools.py -k takes_too_long",
    ),
    Mutant(
        "OpenAI Agents: a RunState is trusted",
        "openai_agents/runner.py",
        "if isinstance(input, RunState):",
        "if False:",
        f"{SDK}/test_runner.py -k run_state",
    ),
    Mutant(
        "OpenAI Agents: a runner runs in a tool",
        "openai_agents/runner.py",
        "if run is None or sending.get() is not None or driving.get() is not None:",
        "if run is None:",
        f"{SDK}/test_runner.py -k code_of_an_agent",
    ),
    Mutant(
        "OpenAI Agents: runs are traced",
        "openai_agents/model.py",
        "model_settings=once, tracing_disabled=True)",
        "model_settings=once)",
        f"{SDK}/test_providers.py -k nobody_else",
    ),
    Mutant(
        "OpenAI Agents: a busy provider is asked again as soon as a failing one",
        "openai_agents/model.py",
        'raise AskedAgain(str(error), headers.get("retry-after")) from error',
        "raise AskedAgain(str(error), None) from error",
        f"{SDK}/test_providers.py -k too_busy",
    ),
    Mutant(
        "OpenAI Agents: the SDK asks again by itself",
        "openai_agents/model.py",
        "retry=ModelRetrySettings(max_retries=0)",
        "retry=given.retry",
        f"{SDK}/test_providers.py -k too_busy",
    ),
    Mutant(
        "OpenAI Agents: a response is stored again",
        "openai_agents/items.py",
        "if own and whole[: len(own)] == own:",
        "if False:",
        f"{SDK}/test_providers.py -k stored_once",
    ),
    Mutant(
        "OpenAI Agents: who was handed over to is forgotten with the turn",
        "openai_agents/driver.py",
        'turn.agent = "" if last is self._settings.agent else last.name',
        'turn.agent = ""',
        f"{SDK}/test_several.py -k handed_over",
    ),
    Mutant(
        "OpenAI Agents: a forced choice of tools is never reset",
        "openai_agents/driver.py",
        "if given.name in turn.called and given.reset_tool_choice:",
        "if False:",
        f"{SDK}/test_several.py -k forced_choice",
    ),
    Mutant(
        "OpenAI Agents: input guardrails look at every turn",
        "openai_agents/driver.py",
        "clone.input_guardrails = []",
        "pass",
        f"{SDK}/test_several.py -k guardrail",
    ),
    Mutant(
        "OpenAI Agents: a loop of turns forgets what its items were",
        "openai_agents/memory.py",
        "if attempt.turning and not kept.whole:",
        "if False:",
        f"{SDK}/test_runner.py -k outlives",
    ),
    Mutant(
        "frameworks: a parameter left out is another call than its default",
        "harness/units.py",
        'properties[one].get("default")',
        "None",
        f"{SDK}/test_swap.py -k unloaded",
    ),
    Mutant(
        "branches that recorded nothing have an opening",
        "engine/branches.py",
        "if scope.cancelled or (recorded is not None and recorded.cut):",
        "assert recorded\n            if scope.cancelled or recorded.cut:",
        f"{ENGINE}/test_scopes.py -k record_nothing",
    ),
    Mutant(
        "a call on a connection that broke is taken as an answer",
        "mcp/tools.py",
        "    return Interrupted(said)\n",
        "    return ToolError(said, code)\n",
        f"{SERVERS}/test_tools.py -k dies_amid_an_external",
    ),
    Mutant(
        "a connection that is given up ends the calls that are on it",
        "mcp/tools.py",
        "        if not self.ways:\n            self.over.set()",
        "        self.over.set()",
        f"{SERVERS}/test_tools.py -k cut_off",
    ),
    Mutant(
        "the model is told to try again when a connection breaks amid a call",
        "pydantic_ai/servers.py",
        "raise Interrupted(str(retry)) from retry",
        "raise",
        f"{AGENTS}/test_servers.py -k amid_an_external_call",
    ),
    Mutant(
        "a hint of a server is believed unasked",
        "pydantic_ai/servers.py",
        "if hint is None or self._believe:",
        "if True:",
        f"{AGENTS}/test_servers.py -k unless_declared",
    ),
    Mutant(
        "a transcript is written over another write",
        "store/sqlite/transcripts.sql",
        " and part = :part and token = :after;",
        " and part = :part;",
        "tests/claude/test_writers.py -k two_writers",
    ),
]


def run(mutant: Mutant) -> str:
    """Empty when the named test turned red, otherwise what went wrong."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = Path(directory)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        target = copy / "src" / "outlive" / mutant.file
        text = target.read_text()
        if (found := text.count(mutant.before)) != 1:
            return f"{mutant.file} has what this mutant changes {found} times, not once"
        target.write_text(text.replace(mutant.before, mutant.after))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout", "30", "-p", "no:cacheprovider"]
        try:
            ended = subprocess.run(
                [*command, *mutant.test.split()], cwd=copy, capture_output=True, text=True, check=False,
                env={**os.environ, "PYTHONPATH": str(copy / "src")}, timeout=LONGEST_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ""  # a test that never ends is no green one: an engine may take the limit of a test for an error
    if ended.returncode == 1 and (" failed" in ended.stdout or "Timeout" in ended.stdout + ended.stderr):
        return ""
    return "the test stayed green" if ended.returncode == 0 else ended.stdout[-2000:] + ended.stderr[-500:]


def main(names: list[str]) -> int:
    """Run the mutants (whose name contains one of `names`); the number that survived."""
    chosen = [one for one in MUTANTS if not names or any(name in one.name for name in names)]
    survived = 0
    with ThreadPoolExecutor(2) as pool:
        for mutant, problem in zip(chosen, pool.map(run, chosen), strict=True):
            survived += bool(problem)
            print(
                f"{'SURVIVED' if problem else 'caught  '} {mutant.name}{': ' + problem if problem else ''}", flush=True
            )
    print(f"{len(chosen) - survived} caught, {survived} survived")
    return survived


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
