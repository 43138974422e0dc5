"""Turn: the state machine of one answer. The agent's events in, one instruction at a time out.

Theory of operation
-------------------
The gateway asks for the next instruction (`instructions.py`) and does it, until `Done`. The turn is
fed with what an agent does; what the client gets of it waits in `_out` for the next instruction.

An answer may take several runs of the agent. A run ends the turn, or the agent is asked again, in
the same answer. That happens at most once for each reason: a structured answer that does not fit, a
tool call that cannot be read, a call that had to be made and was not, and a loop. What belongs to
one run is in a `TurnRun`, made new with it; what belongs to the answer is here.

Tool calls come by three channels and leave by one. Where the agent *calls back* (over the relay) it
makes them and waits: the turn ends, and the run goes on in the next one. In the *text* channel the
model writes them, and `ToolTextParser` takes them out. In the *native* channel the agent announces
one of its own tools that the client has, too: then the call is the client's, and the agent is
stopped before it acts. Calls that the model made at once come one after the other, so a *burst* is
collected until something else happens or the agent is silent for a moment. What came after it is
`unread`. A call that the agent waits for and that cannot be made is answered at once, in the same
run. Calls of bridged tools are ours to execute; over the relay they are done before the turn sees
them.

Calls that the model writes are handed out when its run ends, so that one that cannot be read is
written again together with the others.

Text is passed on at once, except where the client may not want it: a structured answer until it is
valid, the words of a model that must call a tool, and those of a run that only repairs a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cursor_gateway.core import structured
from cursor_gateway.core.burst import Announced
from cursor_gateway.core.conversation import Conversation, Text, ToolCall, ToolResult
from cursor_gateway.core.events import (
    ZERO_USAGE,
    AgentCall,
    AgentCallDone,
    AgentEvent,
    AnswerEvent,
    Aside,
    ClientCall,
    Finished,
    FinishReason,
    Quiet,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.instructions import (
    AskAgain,
    Deliver,
    Done,
    Instruction,
    Read,
    Reply,
    RunIs,
    RunTools,
)
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.limits import CutReason, OutputLimits
from cursor_gateway.core.loop_guard import Loop, LoopGuard, classify, outcome_of, step
from cursor_gateway.core.retry import Retry
from cursor_gateway.core.seams import Seams
from cursor_gateway.core.tool_text import Imagined, Said
from cursor_gateway.core.tools import find
from cursor_gateway.core.turn_run import LoopedCall, TurnRules, TurnRun
from cursor_gateway.core.usage_meter import UsageMeter
from cursor_gateway.core.written_calls import Unmade, Written
from cursor_gateway.errors import OutputInvalid

# How often a model may have tools executed by us within one answer.
MAX_ROUNDS = 25

_CALL_SOMETHING = "A tool must be called now. Make the call, in the form that was described."


@dataclass(slots=True)
class _HandedOut:
    """The calls that the client was given in this answer."""

    calls: int = 0
    # For how many of them the agent waits.
    waited_for: int = 0


class Turn:
    """Fed only after `begin`: with each run of the agent it begins anew."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        max_repeat: int,
        new_id: Callable[[], str],
        show_activity: bool = False,
    ) -> None:
        self._rules = TurnRules(conversation, max_repeat, new_id, show_activity)
        self._meter = UsageMeter()
        self._retry = Retry(conversation)
        self._seams = Seams()
        self._limits: OutputLimits
        self._bridged_guard = LoopGuard(max_repeat)
        # How often bridged calls were executed.
        self._rounds = 0
        self._handed_out = _HandedOut()
        self._unmade = Unmade()
        self._run: TurnRun
        self._out: list[AnswerEvent] = []
        self._is_over = False
        # The channel by which the last call came.
        self.channel = ""

    def begin(self, asked: Conversation, reported: Usage = ZERO_USAGE) -> None:
        """A run of the agent starts, or goes on. It has read `asked`, which may have grown by what
        it is asked again; its earlier answers `reported` that much usage to the client."""
        self._retry.begin(asked)
        self._seams.begin()
        self._meter.begin(asked, reported)
        if not self._rounds:
            # The limits are the answer's: what was said before a bridged call counts.
            self._limits = self._rules.new_limits()
        self._run = self._rules.new_run()

    def next(self) -> Instruction:
        """What to do now; `Read` where nothing else is left to do."""
        run = self._run
        if run.replies:
            run.replies, replies = [], run.replies
            return Reply(replies)
        if self._is_over and not run.bridged:
            return Done(self._out, self._run_is, self._meter.reported, run.unread)
        if self._out and not self._is_over:
            self._out, events = [], self._out
            return Deliver(events)
        if run.bridged:
            beside = tuple(event.id for event in self._out if isinstance(event, ToolCall))
            return RunTools(tuple(run.bridged), beside)
        if self._retry.messages:
            return AskAgain(self._retry.messages, self._run_is == "finished")
        return Read(burst_open=bool(run.burst))

    def feed(self, events: Sequence[AgentEvent] | Quiet) -> None:
        """What the agent did, or that it did nothing for a moment."""
        if isinstance(events, Quiet):
            if self._wants_more:
                self._settle_burst()
            return
        for position, event in enumerate(events):
            if self._run.burst.ends_with(event):
                self._settle_burst()
            if not self._wants_more:
                self._run.unread = list(events[position:])
                return
            self._take(event)

    def executed(self, results: Sequence[ToolResult]) -> None:
        """What came of `RunTools`. The agent is asked again with it, unless the turn is over."""
        calls, self._run.bridged = self._run.bridged, []
        for call, result in zip(calls, results, strict=True):
            text = "\n".join(part.text for part in result.content if isinstance(part, Text))
            outcome = classify(call.name, text, is_error=result.is_error)
            self._bridged_guard.record(step(call.name, call.arguments, outcome, text), call.id)
        self._rounds += 1
        if not self._is_over:
            self._meter.end_run(self._run.usage)
            self._retry.bring(calls, results)

    @property
    def _run_is(self) -> RunIs:
        handed_out = self._handed_out
        if self._is_over and 0 < handed_out.waited_for == handed_out.calls:
            return "waiting"
        return "finished" if self._run.has_finished and not self._run.was_cut else "unfinished"

    @cached_property
    def _guard(self) -> LoopGuard:
        """Of what the client did, not of what we told the model: our own hints are no progress.
        Most answers call nothing, and to look through a long history takes time."""
        return LoopGuard(self._rules.max_repeat, self._rules.conversation.messages)

    @property
    def _wants_more(self) -> bool:
        """Whether the agent's present run has anything left to say to this turn."""
        return not self._is_over and not self._retry.messages and not self._run.bridged

    def _take(self, event: AgentEvent) -> None:
        if isinstance(event, AgentCall | AgentCallDone | Aside | ClientCall):
            self._seams.acted()
            self._run.written.begin_line()
        match event:
            case TextDelta(text):
                self._seams.speaks()
                self._read(self._run.written.feed(text))
            case ThinkingDelta(text):
                self._meter.say(text)
                self._out.append(event)
            case ClientCall():
                self._client_calls(event)
            case AgentCall():
                self._agent_calls(event)
            case AgentCallDone():
                self._agent_call_is_done(event)
            case RunFinished(usage):
                self._run.has_finished = True
                self._finish(usage)

    # Text and the calls in it

    def _read(self, pieces: Iterable[Said | Written | Imagined]) -> None:
        for piece in pieces:
            if not self._wants_more:
                return
            if isinstance(piece, Said):
                self._pass_cut(*self._limits.feed(piece.text))
            elif isinstance(piece, Imagined) or not self._rules.conversation.parallel_calls:
                self._conclude(None)

    def _pass_cut(self, text: str, reason: CutReason | None) -> None:
        self._pass_on(text)
        if reason:
            self._run.was_cut = True
            self._hand_out_written()
            self._end(reason, None)

    def _pass_on(self, text: str) -> None:
        if not text:
            return
        text = self._seams.joined(text)
        self._meter.say(text)
        waits_for_call = self._rules.must_call and not self._handed_out.calls
        if self._rules.conversation.output or self._unmade or waits_for_call:
            self._run.held_text.append(text)
        else:
            self._retry.sent(text)
            self._seams.sent()
            self._out.append(TextDelta(text))

    # Calls

    def _call(self, name: str, arguments: dict[str, Any], waiting_id: str = "") -> None:
        """Hand a call out. `waiting_id` is the id of one whose result the agent waits for."""
        call = ToolCall(waiting_id or self._rules.new_id(), name, to_json(arguments))
        is_bridged = name in self._rules.bridged
        guard = self._bridged_guard if is_bridged else self._guard
        if loop := guard.judge(name, arguments):
            self._run.loops.append(LoopedCall(loop, call, bool(waiting_id)))
            return
        if is_bridged:
            self._meter.say(call.arguments)
            self._run.bridged.append(call)
            self._show(AgentCall(call.id, name, arguments))
            return
        self._release_held()
        self._handed_out.calls += 1
        self._handed_out.waited_for += bool(waiting_id)
        self._meter.say(call.arguments)
        self._out.append(call)

    def _client_calls(self, event: ClientCall) -> None:
        tool = find(event.name, self._rules.tools)
        unknown: tuple[dict[str, Any], str] = {}, "there is no such tool."
        arguments, problem = self._rules.fit(tool, event.arguments) if tool else unknown
        if problem:
            words = f"Not executed: {problem} Make the call again as its schema wants it."
            self._run.replies.append(ToolResult(event.id, (Text(words),), is_error=True))
        else:
            self._run.burst.add(Announced(event.name, arguments, event.id))

    def _agent_calls(self, event: AgentCall) -> None:
        self._run.burst.agent_calls()
        if event.as_client_call is not None:
            self._run.burst.add(Announced(*event.as_client_call), event.model_call)
        elif loop := self._run.guard.judge(event.tool, event.arguments):
            call = ToolCall(self._rules.new_id(), event.tool, to_json(event.arguments))
            self._run.loops.append(LoopedCall(loop, call, is_waited_for=False))
            self._break_loop(None)
        else:
            self._show(event)

    def _agent_call_is_done(self, event: AgentCallDone) -> None:
        self._run.burst.agent_call_is_done()
        outcome, result = outcome_of(event.result), to_json(event.result)
        self._run.guard.record(step(event.tool, event.arguments, outcome, result))

    def _show(self, event: AgentCall) -> None:
        """Something is done that the client does not do."""
        if self._rules.show_activity:
            self._out.append(ThinkingDelta(f"[{event.tool} {event.subject}]\n"))
        else:
            self._out.append(event)

    def _settle_burst(self) -> None:
        """Hand out what was announced, if anything was."""
        burst = self._run.burst.take()
        if not burst:
            return
        if not self._rules.conversation.parallel_calls:
            del burst[1:]
        self._flush_text()
        if self._wants_more:
            self._hand_out_written()
            for call in burst:
                self.channel = "relay" if call.relayed else "native"
                self._call(call.name, call.arguments, call.relayed)
            self._end_with_calls(None)

    def _hand_out_written(self) -> None:
        for call in self._run.written.take():
            self.channel = "text"
            self._call(call.name, call.arguments)

    # Ends

    def _finish(self, usage: Usage | None) -> None:
        self._flush_text()
        if self._wants_more:
            self._conclude(usage)

    def _flush_text(self) -> None:
        """Let go of what was held back only because more of it might have come."""
        self._read(self._run.written.close())
        if self._wants_more:
            self._pass_cut(*self._limits.close())

    def _conclude(self, usage: Usage | None) -> None:
        """The run has nothing more to say: the turn ends, or the agent is asked again."""
        run, unmade = self._run, self._run.written.unmade
        if unmade and self._retry.may("unmade"):
            # All of the run's calls again, since none was handed out yet.
            self._unmade = unmade
            self._ask_again(usage, *run.written.correction())
            return
        self._hand_out_written()
        run.usage = usage
        if self._handed_out.calls or run.loops or run.bridged:
            self._end_with_calls(usage)
        elif unmade:
            # It stays unreadable: then the first attempt is as good as any.
            run.held_text, self._unmade = [self._unmade.as_written], Unmade()
            self._end("stop", usage)
        elif self._rules.must_call and self._retry.may("no call"):
            self._ask_again(usage, "".join(run.held_text), _CALL_SOMETHING)
        elif self._rules.conversation.output is None or self._is_valid_output(usage):
            if self._unmade.is_quotation:
                run.held_text = [self._unmade.as_written]
            self._unmade = Unmade()
            self._end("stop", usage)

    def _end_with_calls(self, usage: Usage | None) -> None:
        run = self._run
        if run.are_all_loops_waited_for and (self._handed_out.calls or self._retry.may("loop")):
            run.replies += self._hints()
            run.loops.clear()
        elif run.loops and not self._handed_out.calls:
            run.bridged.clear()
            self._break_loop(usage)
        if self._handed_out.calls:
            self._end("tool_calls", usage)
        elif self._rounds >= MAX_ROUNDS and run.bridged:
            run.bridged.clear()
            words = f"[cursor-gateway stopped after {MAX_ROUNDS} rounds of calls.]"
            self._out.append(TextDelta(words))
            self._end("stop", usage)

    def _hints(self) -> tuple[ToolResult, ...]:
        return tuple(
            ToolResult(looped.call.id, (Text(looped.loop.hint),), is_error=True)
            for looped in self._run.loops
        )

    def _break_loop(self, usage: Usage | None) -> None:
        """Tell the model first, as the result of the call it repeats; then stop it."""
        if self._retry.may("loop"):
            self._meter.end_run(usage)
            self._retry.bring([looped.call for looped in self._run.loops], self._hints())
            return
        loop = self._run.loops[0].loop
        self._release_held()
        self._out.append(TextDelta(loop.message))
        self._end("stop", usage, loop)

    def _is_valid_output(self, usage: Usage | None) -> bool:
        """Whether the structured answer is one; if not, ask once for a better one."""
        output = self._rules.conversation.output
        assert output is not None
        answer = "".join(self._run.held_text)
        document = structured.extract(answer)
        problem = structured.problem_with(document, output)
        if not problem:
            self._run.held_text = [document]
            return True
        if not self._retry.may("output"):
            raise OutputInvalid(f"The model's answer does not fit response_format: {problem}")
        self._ask_again(usage, answer, structured.correction(problem))
        return False

    def _ask_again(self, usage: Usage | None, said: str, correction: str) -> None:
        self._meter.end_run(usage)
        self._retry.correct(said, correction)

    def _end(self, reason: FinishReason, usage: Usage | None, loop: Loop | None = None) -> None:
        self._release_held()
        if self._handed_out.calls:
            reason = "tool_calls"
            self._out.extend(TextDelta(each.raw) for each in self._run.written.unmade.pieces)
        stop = self._limits.found if reason == "stop" else None
        self._out.append(Finished(reason, self._meter.report(usage), loop, stop))
        self._is_over = True

    def _release_held(self) -> None:
        if self._run.held_text and not self._unmade:
            self._out.append(TextDelta("".join(self._run.held_text)))
        self._run.held_text.clear()
