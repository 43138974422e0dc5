"""Metrics, and how Prometheus reads them: its text format, version 0.0.4."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    kind: str
    help: str
    labels: tuple[str, ...] = ()


PREFIX = "cursor_gateway_"
FAMILIES: Mapping[str, Family] = {
    "requests_total": Family(
        "counter",
        "Requests that were to be answered by an agent; outcome complete, error or client_gone.",
        ("dialect", "outcome"),
    ),
    "errors_total": Family("counter", "Requests that failed, by the code of the error.", ("code",)),
    "first_token_seconds": Family(
        "histogram", "From the request to the first word, thought or call.", ("model",)
    ),
    "duration_seconds": Family(
        "histogram", "From the request to the end of its answer.", ("model",)
    ),
    "tokens_total": Family(
        "counter", "Tokens: input (cached ones included), cached, output.", ("model", "kind")
    ),
    "estimates_total": Family("counter", "Answers whose tokens the gateway had to estimate."),
    "tool_calls_total": Family(
        "counter", "Calls of the client's tools that were handed out.", ("channel",)
    ),
    "mcp_calls_total": Family(
        "counter", "Calls of tools on the user's MCP servers.", ("server", "outcome")
    ),
    "loop_guard_stops_total": Family("counter", "Answers that the loop guard ended."),
    "agent_runs_total": Family(
        "counter",
        "Agents that worked for requests: fresh, resumed (a chat) or continued (had waited).",
        ("kind",),
    ),
    "agent_exits_total": Family(
        "counter",
        "Agents that ended: finished, failed, stopped (SIGTERM), killed (SIGKILL) or crashed.",
        ("reason",),
    ),
    "requests_running": Family("gauge", "Requests that are being answered or wait."),
    "slots": Family("gauge", "How many agents may work at once."),
    "slots_busy": Family("gauge", "How many of the slots are taken."),
    "queue_length": Family("gauge", "Requests that wait for a slot."),
    "spares": Family("gauge", "Warm agents: started before a request needs them, and waiting."),
    "spares_used_total": Family("counter", "Requests that got a warm agent."),
    "parked_runs": Family("gauge", "Agents that wait for the results of a client's tools."),
    "kept_chats": Family("gauge", "Finished chats that can be resumed."),
    "healthy": Family("gauge", "1 if /health says ok, else 0."),
    "journal_lost_total": Family(
        "counter", "Records that could not be written to the journal's file."
    ),
    "info": Family("gauge", "Always 1.", ("version", "agent")),
}

BUCKETS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600)
Labels = tuple[str, ...]
# A value, or a value for each combination of labels.
Given = float | Mapping[Labels, float]


class Metrics:
    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._histograms: dict[tuple[str, Labels], _Histogram] = {}

    def add(self, name: str, *labels: str, by: int = 1) -> None:
        self._counts[name, labels] += by

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        if (name, labels) not in self._histograms:
            self._histograms[name, labels] = _Histogram()
        self._histograms[name, labels].observe(seconds)

    def text(self, given: Mapping[str, Given]) -> str:
        """All metrics; `given` has the values that are not counted here."""
        lines: list[str] = []
        for name, family in FAMILIES.items():
            lines += (
                f"# HELP {PREFIX}{name} {family.help}",
                f"# TYPE {PREFIX}{name} {family.kind}",
            )
            value = given.get(name)
            if isinstance(value, Mapping):
                lines += (_sample(name, family.labels, *each) for each in value.items())
            elif value is not None:
                lines.append(_sample(name, (), (), value))
            else:
                lines += self._samples(name, family.labels)
        return "\n".join(lines) + "\n"

    def _samples(self, name: str, names: Labels) -> Iterator[str]:
        if not names:
            yield _sample(name, (), (), self._counts[name, ()])
        for (own, labels), histogram in self._histograms.items():
            if own == name:
                yield from histogram.samples(name, names, labels)
        for (own, labels), value in self._counts.items():
            if own == name and labels:
                yield _sample(name, names, labels, value)


class _Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def samples(self, name: str, names: Labels, labels: Labels) -> Iterator[str]:
        reached = 0
        for limit, count in zip((*BUCKETS, "+Inf"), self._counts, strict=True):
            reached += count
            yield _sample(f"{name}_bucket", (*names, "le"), (*labels, str(limit)), reached)
        yield _sample(f"{name}_sum", names, labels, self._sum)
        yield _sample(f"{name}_count", names, labels, reached)


def _sample(name: str, names: Labels, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(label)}"' for key, label in zip(names, labels, strict=True))
    return f"{PREFIX}{name}{{{pairs}}} {value}" if pairs else f"{PREFIX}{name} {value}"


def _escaped(label: str) -> str:
    """Most labels are ours or were checked, but the user names the MCP servers."""
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
