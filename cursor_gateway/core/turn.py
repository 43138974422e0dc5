"""Turn: the state machine of one answer. The agent's events in, the client's events out.

Theory of operation
-------------------
An answer may take several runs of the agent. A run ends the turn (`over`), or it leaves `retry`:
the messages with which the agent is asked again, in the same answer. That happens at most once for
each reason: a structured answer that does not fit, a tool call that cannot be read, a call that had
to be made and was not, and a loop.

Tool calls come by three channels and leave by one. Over the *relay* the agent makes them and waits:
the turn ends, and the run goes on in the next one (`leaves_agent_waiting`). In the *text* channel
the model writes them, and `ToolTextParser` takes them out. In the *native* channel the agent
announces one of its own tools that the client has, too: then the call is the client's, and the
agent is stopped before it acts. Calls that the model made at once come one after the other, so a
*burst* is collected until something else happens or it is silent for a moment (`restless` asks for
that moment to be told, by an empty feed). What came after it is `unread`. A call over the relay
that cannot be made is answered at once (`replies`), in the same run. Calls of tools that are ours
to execute are `errands`; over the relay they are done before the turn sees them.

Calls that the model writes are handed out when its run ends, so that one that cannot be read is
mended together with the others.

Text is passed on at once, except where it may not be wanted: a structured answer until it is valid,
the words of a model that must call a tool, and those of a run that only repairs a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from cursor_gateway.agents.cursor.native_tools import translate
from cursor_gateway.core import structured
from cursor_gateway.core.burst import Announced, Burst
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult
from cursor_gateway.core.events import (
    ZERO_USAGE,
    AgentCall,
    AgentCallDone,
    Aside,
    Event,
    Finished,
    FinishReason,
    RelayedCall,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.json_text import to_json
from cursor_gateway.core.limits import CutReason, OutputLimits
from cursor_gateway.core.loop_guard import Loop, LoopGuard, classify, outcome_of, step
from cursor_gateway.core.retry import Retry
from cursor_gateway.core.seams import Seams
from cursor_gateway.core.tool_text import Imagined, Said
from cursor_gateway.core.tools import find, fit
from cursor_gateway.core.usage_meter import UsageMeter
from cursor_gateway.core.written_calls import Unmade, Written, WrittenCalls
from cursor_gateway.errors import OutputInvalid

# How often a model may have tools executed by us within one answer.
MAX_ROUNDS = 25

_CALL_SOMETHING = "A tool must be called now. Make the call, in the form that was described."


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
        self._conversation = conversation
        self._tools = conversation.callable_tools
        # Whether the model knows the form of a call. It may use it though it may not call.
        self._reads_calls = bool(conversation.tools)
        # Ours do not count: the client waits for a call.
        self._must_call = conversation.tool_choice.kind == "required" and not all(
            tool.bridged for tool in self._tools
        )
        # A client that names the tool wants its arguments, and will not have them mended.
        self._fit = partial(fit, exactly=conversation.tool_choice.name is not None)
        self._max_repeat = max_repeat
        self._new_id = new_id
        self._bridged = {tool.name for tool in conversation.tools if tool.bridged}
        self._errand_guard = LoopGuard(max_repeat)
        self._rounds = 0
        self._show_activity = show_activity
        self._meter = UsageMeter()
        self._retry = Retry(conversation)
        self._seams = Seams()
        self._unmade = Unmade()
        self._calls = 0
        self._relayed_calls = 0
        # The channel by which the last call came.
        self.channel = ""
        self.usage = ZERO_USAGE
        self.over = False
        # Results that we give ourselves, for the relay.
        self.replies: list[ToolResult] = []

    def begin(self, asked: Conversation, told: Usage = ZERO_USAGE) -> None:
        """A run of the agent starts, or goes on. It has read `asked`, which may have grown by
        `retry`; its earlier answers `told` the client of that much usage."""
        self._retry.begin(asked)
        self._seams.begin()
        self._meter.begin(asked, told)
        self._own_guard = LoopGuard(self._max_repeat)
        if not self._rounds:
            # The limits are the answer's: what was said before an errand counts.
            self._limits = OutputLimits(self._conversation.stop, self._conversation.max_tokens)
        self._written = WrittenCalls(self._tools, self._fit, reads_calls=self._reads_calls)
        self._burst = Burst()
        self._loops: list[tuple[Loop, ToolCall]] = []
        self._relayed_loops = 0
        self._finished = False
        self._was_cut = False
        self._usage_so_far: Usage | None = None
        self._held: list[str] = []
        # Calls for us to execute: the turn goes on when they are `executed`.
        self.errands: list[ToolCall] = []
        self.unread: list[Event] = []

    @cached_property
    def _guard(self) -> LoopGuard:
        """Of what the client did, not of what we told the model: our own hints are no news. Most
        answers call nothing, and to look through a long history takes time."""
        return LoopGuard(self._max_repeat, self._conversation.messages)

    @property
    def retry(self) -> tuple[Message, ...]:
        """What the agent is asked again with, after the client's messages; else nothing."""
        return self._retry.messages

    @property
    def leaves_agent_waiting(self) -> bool:
        """Whether the agent waits for the results of all calls that were handed out."""
        return self.over and 0 < self._relayed_calls == self._calls

    @property
    def ended_with_agent(self) -> bool:
        """Whether the agent has said all that it had to say, and all of it was heard."""
        return self._finished and not self._was_cut

    @property
    def restless(self) -> bool:
        """Whether a moment of silence would settle something."""
        return bool(self._burst)

    @property
    def wants_more(self) -> bool:
        """Whether the agent's present run has anything left to say to this turn."""
        return not self.over and not self.retry and not self.errands

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """What the client gets for `events`; none at all mean a moment of silence."""
        out: list[Event] = []
        for position, event in enumerate(events):
            if self._burst.ends_with(event):
                self._settle_burst(out)
            if not self.wants_more:
                self.unread = list(events[position:])
                break
            self._take(event, out)
        if not events and self.wants_more:
            self._settle_burst(out)
        return out

    def _take(self, event: Event, out: list[Event]) -> None:
        if isinstance(event, AgentCall | AgentCallDone | Aside | RelayedCall):
            self._seams.acted()
            self._written.begin_line()
        if isinstance(event, TextDelta):
            self._seams.speaks()
            self._read(self._written.feed(event.text), out)
        elif isinstance(event, ThinkingDelta):
            self._meter.say(event.text)
            out.append(event)
        elif isinstance(event, RelayedCall):
            self._relayed(event)
        elif isinstance(event, AgentCall):
            self._agent_calls(event, out)
        elif isinstance(event, AgentCallDone):
            self._burst.agent_call_is_done()
            outcome = outcome_of(event.result)
            result = to_json(event.result)
            self._own_guard.record(step(event.tool, event.arguments, outcome, result))
        elif not isinstance(event, Aside):
            assert isinstance(event, Finished)
            self._finished = True
            self._finish(event.usage, out)

    # Text and the calls in it

    def _read(self, pieces: Iterable[Said | Written | Imagined], out: list[Event]) -> None:
        for piece in pieces:
            if not self.wants_more:
                return
            if isinstance(piece, Said):
                self._pass_cut(*self._limits.feed(piece.text), out)
            elif isinstance(piece, Imagined) or not self._conversation.parallel_calls:
                self._conclude(None, out)

    def _pass_cut(self, text: str, reason: CutReason | None, out: list[Event]) -> None:
        self._pass_on(text, out)
        if reason:
            self._was_cut = True
            self._hand_out_written(out)
            self._end(reason, None, out)

    def _pass_on(self, text: str, out: list[Event]) -> None:
        if not text:
            return
        text = self._seams.joined(text)
        self._meter.say(text)
        waits_for_call = self._must_call and not self._calls
        if self._conversation.output or self._unmade or waits_for_call:
            self._held.append(text)
        else:
            self._retry.sent(text)
            self._seams.sent()
            out.append(TextDelta(text))

    # Calls

    def _call(
        self, name: str, arguments: dict[str, Any], out: list[Event], relayed: str = ""
    ) -> None:
        call = ToolCall(relayed or self._new_id(), name, to_json(arguments))
        is_errand = name in self._bridged
        guard = self._errand_guard if is_errand else self._guard
        if loop := guard.judge(name, arguments):
            self._loops.append((loop, call))
            self._relayed_loops += bool(relayed)
            return
        if is_errand:
            self._meter.say(call.arguments)
            self.errands.append(call)
            self._show(AgentCall(call.id, name, arguments), out)
            return
        self._release_held(out)
        self._calls += 1
        self._relayed_calls += bool(relayed)
        self._meter.say(call.arguments)
        out.append(call)

    def _relayed(self, event: RelayedCall) -> None:
        tool = find(event.name, self._tools)
        unknown: tuple[dict[str, Any], str] = {}, "there is no such tool."
        arguments, problem = self._fit(tool, event.arguments) if tool else unknown
        if problem:
            words = f"Not executed: {problem} Make the call again as its schema wants it."
            self.replies.append(ToolResult(event.id, (Text(words),), is_error=True))
        else:
            self._burst.add(Announced(event.name, arguments, event.id))

    def _agent_calls(self, event: AgentCall, out: list[Event]) -> None:
        translated = translate(
            event.tool, event.arguments, event.description, self._tools, event.workspace
        )
        self._burst.agent_calls()
        if translated is not None:
            self._burst.add(Announced(*translated), event.model_call)
        elif loop := self._own_guard.judge(event.tool, event.arguments):
            call = ToolCall(self._new_id(), event.tool, to_json(event.arguments))
            self._loops.append((loop, call))
            self._break_loop(None, out)
        else:
            self._show(event, out)

    def _show(self, event: AgentCall, out: list[Event]) -> None:
        """Something is done that the client does not do."""
        if self._show_activity:
            out.append(ThinkingDelta(f"[{event.tool} {event.subject}]\n"))
        else:
            out.append(event)

    def _settle_burst(self, out: list[Event]) -> None:
        """Hand out what was announced, if anything was."""
        burst = self._burst.take()
        if not burst:
            return
        if not self._conversation.parallel_calls:
            del burst[1:]
        self._flush_text(out)
        if self.wants_more:
            self._hand_out_written(out)
            for call in burst:
                self.channel = "relay" if call.relayed else "native"
                self._call(call.name, call.arguments, out, call.relayed)
            self._end_with_calls(None, out)

    def _hand_out_written(self, out: list[Event]) -> None:
        for call in self._written.take():
            self.channel = "text"
            self._call(call.name, call.arguments, out)

    # Ends

    def _finish(self, usage: Usage | None, out: list[Event]) -> None:
        self._flush_text(out)
        if self.wants_more:
            self._conclude(usage, out)

    def _flush_text(self, out: list[Event]) -> None:
        """Let go of what was held back only because more of it might have come."""
        self._read(self._written.close(), out)
        if self.wants_more:
            self._pass_cut(*self._limits.close(), out)

    def _conclude(self, usage: Usage | None, out: list[Event]) -> None:
        """The run has nothing more to say: the turn ends, or the agent is asked again."""
        unmade = self._written.unmade
        if unmade and self._retry.may("unmade"):
            # All of the run's calls again, since none was handed out yet.
            self._unmade = unmade
            self._ask_again(usage, *self._written.correction())
            return
        self._hand_out_written(out)
        self._usage_so_far = usage
        if self._calls or self._loops or self.errands:
            self._end_with_calls(usage, out)
        elif unmade:
            # It stays unreadable: then the first attempt is as good as any.
            self._held, self._unmade = [self._unmade.as_written], Unmade()
            self._end("stop", usage, out)
        elif self._must_call and self._retry.may("no call"):
            self._ask_again(usage, "".join(self._held), _CALL_SOMETHING)
        elif self._conversation.output is None or self._is_valid_output(usage):
            if self._unmade.is_quotation:
                self._held = [self._unmade.as_written]
            self._unmade = Unmade()
            self._end("stop", usage, out)

    def _end_with_calls(self, usage: Usage | None, out: list[Event]) -> None:
        if 0 < self._relayed_loops == len(self._loops) and (self._calls or self._retry.may("loop")):
            self.replies += self._hints()
            self._loops.clear()
            self._relayed_loops = 0
        elif self._loops and not self._calls:
            self.errands.clear()
            self._break_loop(usage, out)
        if self._calls:
            self._end("tool_calls", usage, out)
        elif self._rounds >= MAX_ROUNDS and self.errands:
            self.errands.clear()
            out.append(TextDelta(f"[cursor-gateway stopped after {MAX_ROUNDS} rounds of calls.]"))
            self._end("stop", usage, out)

    def executed(self, results: Sequence[ToolResult]) -> None:
        """What came of the errands. The agent is asked again with it, unless the turn is over."""
        calls, self.errands = self.errands, []
        for call, result in zip(calls, results, strict=True):
            text = "\n".join(part.text for part in result.content if isinstance(part, Text))
            outcome = classify(call.name, text, is_error=result.is_error)
            self._errand_guard.record(step(call.name, call.arguments, outcome, text), call.id)
        self._rounds += 1
        if not self.over:
            self._meter.end_run(self._usage_so_far)
            self._retry.bring(calls, results)

    def _hints(self) -> tuple[ToolResult, ...]:
        return tuple(
            ToolResult(call.id, (Text(loop.hint),), is_error=True) for loop, call in self._loops
        )

    def _break_loop(self, usage: Usage | None, out: list[Event]) -> None:
        """Tell the model first, as the result of the call it repeats; then stop it."""
        if self._retry.may("loop"):
            calls = [call for _, call in self._loops]
            self._meter.end_run(usage)
            self._retry.bring(calls, self._hints())
            return
        loop = self._loops[0][0]
        self._release_held(out)
        out.append(TextDelta(loop.message))
        self._end("stop", usage, out, loop)

    def _is_valid_output(self, usage: Usage | None) -> bool:
        """Whether the structured answer is one; if not, ask once for a better one."""
        assert self._conversation.output is not None
        answer = "".join(self._held)
        document = structured.extract(answer)
        problem = structured.problem_with(document, self._conversation.output)
        if not problem:
            self._held = [document]
            return True
        if not self._retry.may("output"):
            raise OutputInvalid(f"The model's answer does not fit response_format: {problem}")
        self._ask_again(usage, answer, structured.correction(problem))
        return False

    def _ask_again(self, usage: Usage | None, said: str, correction: str) -> None:
        self._meter.end_run(usage)
        self._retry.correct(said, correction)

    def _end(
        self, reason: FinishReason, usage: Usage | None, out: list[Event], loop: Loop | None = None
    ) -> None:
        self._release_held(out)
        if self._calls:
            reason = "tool_calls"
            out.extend(TextDelta(each.raw) for each in self._written.unmade.pieces)
        self.usage = self._meter.total(usage)
        stop = self._limits.found if reason == "stop" else None
        out.append(Finished(reason, self.usage, loop, stop))
        self.over = True

    def _release_held(self, out: list[Event]) -> None:
        if self._held and not self._unmade:
            out.append(TextDelta("".join(self._held)))
        self._held.clear()
