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
that cannot be made is answered at once (`replies`), in the same run.

Calls that the model writes are handed out when its run ends, so that one that cannot be read is
mended together with the others.

Text is passed on at once, except where it may not be wanted: a structured answer until it is valid,
the words of a model that must call a tool, and those of a run that only repairs a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cursor_gateway.core import structured
from cursor_gateway.core.conversation import Conversation, Message, Text, ToolCall, ToolResult
from cursor_gateway.core.events import (
    NOTHING,
    AgentCall,
    AgentCallDone,
    Event,
    Finished,
    FinishReason,
    RelayedCall,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cursor_gateway.core.loop_guard import Loop, LoopGuard, outcome_of, step
from cursor_gateway.core.native_tools import translate
from cursor_gateway.core.text_cut import CutReason, TextCut, estimate_tokens, size_of
from cursor_gateway.core.tool_text import Asked, Garbled, Piece, Said, ToolTextParser, unreadable
from cursor_gateway.core.tools import find, fit, to_json
from cursor_gateway.errors import OutputInvalid

_CALL_SOMETHING = "A tool must be called now. Make the call, in the form that was described."


@dataclass(frozen=True, slots=True)
class _Announced:
    name: str
    arguments: dict[str, Any]
    # The id that the relay knows it by.
    relayed: str = ""


class Turn:
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
        self._must_call = bool(self._tools) and conversation.tool_choice.kind == "required"
        self._max_repeat = max_repeat
        # Of what the client did, not of what we told the model: our own hints are no news.
        self._guard = LoopGuard(max_repeat, conversation.messages)
        self._new_id = new_id
        self._show_activity = show_activity
        self._earlier = NOTHING
        # The reasons for which the agent was asked again; none counts twice.
        self._asked_again: set[str] = set()
        self._unreadable: list[str] = []
        self._calls = 0
        self._relayed_calls = 0
        # The channel by which the last call came.
        self.channel = ""
        self.usage = NOTHING
        self.over = False
        # Results that we give ourselves, for the relay.
        self.replies: list[ToolResult] = []
        self.begin(conversation)

    def begin(self, asked: Conversation, told: Usage = NOTHING) -> None:
        """A run of the agent starts, or goes on. It has read `asked`, which may have grown by
        `retry`; its earlier answers `told` the client of that much usage."""
        self._asked = asked
        self._told = told
        self._own_guard = LoopGuard(self._max_repeat)
        self._cut = TextCut(self._conversation.stop, self._conversation.max_tokens)
        self._parser = ToolTextParser() if self._reads_calls else None
        self._written: list[tuple[str, dict[str, Any], str]] = []
        self._burst: list[_Announced] = []
        self._burst_of = ""
        self._unanswered = 0
        self._loops: list[tuple[Loop, ToolCall]] = []
        self._relayed_loops = 0
        self._finished = False
        self._garbled: list[Garbled] = []
        self._held: list[str] = []
        self._output_bytes = 0
        self.retry: tuple[Message, ...] = ()
        self.unread: list[Event] = []

    @property
    def leaves_agent_waiting(self) -> bool:
        """Whether the agent waits for the results of all calls that were handed out."""
        return self.over and 0 < self._relayed_calls == self._calls

    @property
    def ended_with_agent(self) -> bool:
        """Whether the client was told all that the agent said, so that both know the same."""
        return self.over and self._finished

    @property
    def restless(self) -> bool:
        """Whether a moment of silence would settle something."""
        return bool(self._burst)

    @property
    def wants_more(self) -> bool:
        """Whether the agent's present run has anything left to say to this turn."""
        return not self.over and not self.retry

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """What the client gets for `events`; none at all mean a moment of silence."""
        out: list[Event] = []
        for position, event in enumerate(events):
            if self._burst and self._ends_burst(event):
                self._settle_burst(out)
            if not self.wants_more:
                self.unread = list(events[position:])
                break
            self._take(event, out)
        if not events and self.wants_more:
            self._settle_burst(out)
        return out

    def _ends_burst(self, event: Event) -> bool:
        match event:
            case ThinkingDelta():
                # Between calls that were made at once a model may think; after their results it is
                # another model call.
                return self._unanswered <= 0
            case AgentCall(model_call=model_call):
                return model_call != self._burst_of
            case _:
                return isinstance(event, TextDelta | Finished)

    def _take(self, event: Event, out: list[Event]) -> None:
        if isinstance(event, TextDelta):
            pieces = self._parser.feed(event.text) if self._parser else [Said(event.text)]
            self._read(pieces, out)
        elif isinstance(event, ThinkingDelta):
            self._output_bytes += size_of(event.text)
            out.append(event)
        elif isinstance(event, RelayedCall):
            self._relayed(event)
        elif isinstance(event, AgentCall):
            self._agent_calls(event, out)
        elif isinstance(event, AgentCallDone):
            self._unanswered -= 1
            outcome = outcome_of(event.result)
            result = to_json(event.result)
            self._own_guard.record(step(event.tool, event.arguments, outcome, result))
        elif isinstance(event, Finished):
            self._finished = True
            self._finish(event.usage, out)

    # Text and the calls in it

    def _read(self, pieces: Iterable[Piece], out: list[Event]) -> None:
        for piece in pieces:
            if not self.wants_more:
                return
            match piece:
                case Said(text):
                    self._say(text, out)
                case Asked() | Garbled():
                    self._written_call(piece, out)
                case _:
                    self._conclude(None, out)

    def _written_call(self, piece: Asked | Garbled, out: list[Event]) -> None:
        if not self._tools:
            return
        call = self._understood(piece) if isinstance(piece, Asked) else piece
        if isinstance(call, Garbled):
            self._garbled.append(call)
            return
        self._written.append(call)
        if not self._conversation.parallel_calls:
            self._conclude(None, out)

    def _understood(self, asked: Asked) -> tuple[str, dict[str, Any], str] | Garbled:
        tool = find(asked.name, self._tools)
        if tool is None:
            return Garbled(asked.raw, f"there is no tool {asked.name!r}.")
        arguments, problem = fit(tool, asked.arguments)
        if problem:
            return Garbled(asked.raw, f"the arguments of {tool.name}: {problem}")
        return tool.name, arguments, asked.raw

    def _say(self, text: str, out: list[Event]) -> None:
        self._pass_cut(*self._cut.feed(text), out)

    def _pass_cut(self, text: str, reason: CutReason | None, out: list[Event]) -> None:
        self._pass_on(text, out)
        if reason:
            self._hand_out_written(out)
            self._end(reason, None, out)

    def _pass_on(self, text: str, out: list[Event]) -> None:
        if not text:
            return
        self._output_bytes += size_of(text)
        waits_for_call = self._must_call and not self._calls
        if self._conversation.output or self._unreadable or waits_for_call:
            self._held.append(text)
        else:
            out.append(TextDelta(text))

    # Calls

    def _call(
        self, name: str, arguments: dict[str, Any], out: list[Event], relayed: str = ""
    ) -> None:
        call = ToolCall(relayed or self._new_id(), name, to_json(arguments))
        if loop := self._guard.judge(name, arguments):
            self._loops.append((loop, call))
            self._relayed_loops += bool(relayed)
            return
        self._release_held(out)
        self._calls += 1
        self._relayed_calls += bool(relayed)
        self._output_bytes += size_of(call.arguments)
        out.append(call)

    def _relayed(self, event: RelayedCall) -> None:
        tool = find(event.name, self._tools)
        arguments, problem = fit(tool, event.arguments) if tool else ({}, "there is no such tool.")
        if problem:
            words = f"Not executed: {problem} Make the call again as its schema wants it."
            self.replies.append(ToolResult(event.id, (Text(words),), is_error=True))
        else:
            self._burst.append(_Announced(event.name, arguments, event.id))

    def _agent_calls(self, event: AgentCall, out: list[Event]) -> None:
        translated = translate(
            event.tool, event.arguments, event.description, self._tools, event.workspace
        )
        self._unanswered += 1
        if translated is not None:
            self._burst.append(_Announced(*translated))
            self._burst_of = event.model_call
        elif loop := self._own_guard.judge(event.tool, event.arguments):
            call = ToolCall(self._new_id(), event.tool, to_json(event.arguments))
            self._loops.append((loop, call))
            self._break_loop(None, out)
        elif self._show_activity:
            out.append(ThinkingDelta(f"[{event.tool} {event.subject}]\n"))
        else:
            out.append(event)

    def _settle_burst(self, out: list[Event]) -> None:
        """Hand out what was announced, if anything was."""
        burst, self._burst = self._burst, []
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
        for name, arguments, _ in self._written:
            self.channel = "text"
            self._call(name, arguments, out)
        self._written = []

    # Ends

    def _finish(self, usage: Usage | None, out: list[Event]) -> None:
        self._flush_text(out)
        if self.wants_more:
            self._conclude(usage, out)

    def _flush_text(self, out: list[Event]) -> None:
        """Let go of what was held back only because more of it might have come."""
        if self._parser is not None:
            self._read(self._parser.close(), out)
        if self.wants_more:
            self._pass_cut(*self._cut.close(), out)

    def _conclude(self, usage: Usage | None, out: list[Event]) -> None:
        """The run has nothing more to say: the turn ends, or the agent is asked again."""
        if self._garbled and self._may_ask_again("garbled"):
            self._ask_for_readable_calls(usage)
            return
        self._hand_out_written(out)
        if self._calls or self._loops:
            self._end_with_calls(usage, out)
        elif self._garbled:
            # It stays unreadable: then the first attempt is as good as any.
            self._held = ["\n".join(self._unreadable)]
            self._unreadable = []
            self._end("stop", usage, out)
        elif self._must_call and self._may_ask_again("no call"):
            self._ask_again(usage, "".join(self._held), _CALL_SOMETHING)
        elif self._conversation.output is None or self._is_valid_output(usage):
            self._unreadable = []
            self._end("stop", usage, out)

    def _end_with_calls(self, usage: Usage | None, out: list[Event]) -> None:
        if self._relayed_loops == len(self._loops) and (self._calls or self._may_ask_again("loop")):
            self.replies += self._hints()
            self._loops.clear()
            self._relayed_loops = 0
            if not self._calls:
                return
        if self._calls:
            self._end("tool_calls", usage, out)
        else:
            self._break_loop(usage, out)

    def _hints(self) -> tuple[ToolResult, ...]:
        return tuple(
            ToolResult(call.id, (Text(loop.hint),), is_error=True) for loop, call in self._loops
        )

    def _break_loop(self, usage: Usage | None, out: list[Event]) -> None:
        """Tell the model first, as the result of the call it repeats; then stop it."""
        if self._may_ask_again("loop"):
            calls = tuple(call for _, call in self._loops)
            self._ask_with(usage, Message("assistant", calls), Message("user", self._hints()))
            return
        loop = self._loops[0][0]
        self._release_held(out)
        out.append(TextDelta(loop.message))
        self._end("stop", usage, out, loop)

    def _ask_for_readable_calls(self, usage: Usage | None) -> None:
        """All of the run's calls again, since none was handed out yet."""
        self._unreadable = [garbled.raw for garbled in self._garbled]
        said = "\n".join([*(raw for _, _, raw in self._written), *self._unreadable])
        problems = [garbled.problem for garbled in self._garbled]
        correction = unreadable(problems, len(self._garbled) + len(self._written))
        self._ask_again(usage, said, correction)

    def _is_valid_output(self, usage: Usage | None) -> bool:
        """Whether the structured answer is one; if not, ask once for a better one."""
        assert self._conversation.output is not None
        answer = "".join(self._held)
        document = structured.extract(answer)
        problem = structured.problem_with(document, self._conversation.output)
        if not problem:
            self._held = [document]
            return True
        if not self._may_ask_again("output"):
            raise OutputInvalid(f"The model's answer does not fit response_format: {problem}")
        self._ask_again(usage, answer, structured.correction(problem))
        return False

    def _may_ask_again(self, reason: str) -> bool:
        is_first = reason not in self._asked_again
        self._asked_again.add(reason)
        return is_first

    def _ask_again(self, usage: Usage | None, said: str, correction: str) -> None:
        words = Message("assistant", (Text(said),)), Message("user", (Text(correction),))
        self._ask_with(usage, *words)

    def _ask_with(self, usage: Usage | None, *words: Message) -> None:
        self._earlier += self._counted(usage)
        earlier = self._asked.messages[len(self._conversation.messages) :]
        self.retry = (*earlier, *words)

    def _end(
        self, reason: FinishReason, usage: Usage | None, out: list[Event], loop: Loop | None = None
    ) -> None:
        self._release_held(out)
        if self._calls:
            reason = "tool_calls"
            out.extend(TextDelta(garbled.raw) for garbled in self._garbled)
        self.usage = self._earlier + self._counted(usage)
        stop = self._cut.found if reason == "stop" else None
        out.append(Finished(reason, self.usage, loop, stop))
        self.over = True

    def _release_held(self, out: list[Event]) -> None:
        if self._held and not self._unreadable:
            out.append(TextDelta("".join(self._held)))
        self._held.clear()

    def _counted(self, usage: Usage | None) -> Usage:
        # The agent counts its whole run, of which earlier answers have told their part.
        if usage is not None and (rest := usage.beyond(self._told)):
            return rest
        given = sum(map(size_of, self._asked.texts()))
        made = self._output_bytes
        return Usage(estimate_tokens(given), estimate_tokens(made), estimated=True)
