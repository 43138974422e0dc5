"""Journal: the records of one gateway. The last ones are in memory, all are in a file, and
counted."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cursor_gateway.journal.file import JournalFile
from cursor_gateway.journal.metrics import Given, Metrics
from cursor_gateway.journal.record import CLIENT_GONE, COMPLETE, WORDS_KEPT, Record
from cursor_gateway.running_gateways import state_folder
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)

RECENT = 500
# How many of the recent records hold what was asked and answered.
RECENT_WITH_WORDS = 50

# While the agent lists no models, any name may be asked for; not each shall be a series of its own.
MAX_MODELS = 100


class Journal:
    """The records of one gateway: the running ones, the recent ones, their metrics, their file."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self._records_words = settings.record_prompts
        self._logs_timing = settings.timing
        self._running: dict[Record, None] = {}
        self._recent: deque[Record] = deque(maxlen=RECENT)
        self._file = JournalFile(state_folder(env), settings.journal_mb * 1024 * 1024)
        self._metrics = Metrics()
        self._models: set[str] = set()

    def adopt(self, settings: Settings) -> None:
        self._logs_timing = settings.timing

    @contextmanager
    def recording(self, record: Record) -> Iterator[None]:
        """A context around a request. Only requests that an agent answers are recorded."""
        if not record.dialect:
            yield
            return
        if self._records_words:
            record.answered = []
        self._running[record] = None
        try:
            yield
        finally:
            del self._running[record]
            record.end()
            if self._logs_timing:
                _log_timing(record)
            try:
                self._store(record)
            except Exception:  # the journal's failure must not spoil the answer
                log.exception("a request is missing in the journal")

    def _store(self, record: Record) -> None:
        self._count(record)
        # What may be another thing by the time that it is written.
        now = {"agents": record.processes()} | record.words()
        self._file.write(lambda: record.as_json() | now)
        self._recent.append(record)
        if len(self._recent) > RECENT_WITH_WORDS:
            wordless = self._recent[-RECENT_WITH_WORDS - 1]
            wordless.asked = wordless.answered = None

    def _count(self, record: Record) -> None:
        add = self._metrics.add
        is_error = record.outcome not in (COMPLETE, CLIENT_GONE)
        add("requests_total", record.dialect, "error" if is_error else record.outcome)
        if is_error:
            add("errors_total", record.outcome)
        if record.calls:
            add("tool_calls_total", record.channel, by=len(record.calls))
        if record.loop:
            add("loop_guard_stops_total")
        for run in record.runs:
            add("agent_runs_total", run.how)
            # A run that went on is counted when it leaves by the request that it was started for.
            if run.how == "continued" or run.process is None:
                continue
            if run.process.exited.done():
                self._count_exit(run.process.exited)
            else:
                run.process.exited.add_done_callback(self._count_exit)
        if record.resolved:
            self._measure(record)

    def _count_exit(self, exited: asyncio.Future[int]) -> None:
        self._metrics.add("agent_exits_total", reason_of(exited.result()))

    def _measure(self, record: Record) -> None:
        if len(self._models) < MAX_MODELS:
            self._models.add(record.resolved)
        model = record.resolved if record.resolved in self._models else "other"
        self._metrics.observe("duration_seconds", record.duration, model)
        if (first := record.timeline.get("first_token")) is not None:
            self._metrics.observe("first_token_seconds", first, model)
        if usage := record.usage:
            for kind in ("input", "cached", "output"):
                self._metrics.add("tokens_total", model, kind, by=getattr(usage, kind))
            self._metrics.add("estimates_total", by=usage.estimated)

    def note_request(self, record: Record, body: bytes | bytearray) -> None:
        if self._records_words:
            record.asked = body[:WORDS_KEPT].decode("utf-8", "replace")

    def listed(self) -> Iterator[Record]:
        """The running records, then the recent ones, each with the newest first."""
        yield from reversed(self._running)
        yield from reversed(self._recent)

    def find(self, request_id: str) -> Record | None:
        return next((record for record in self.listed() if record.id == request_id), None)

    def metrics_text(self, others: Mapping[str, Given]) -> str:
        """Everything that is counted, as Prometheus reads it."""
        own = {"requests_running": len(self._running), "journal_lost_total": self._file.lost}
        return self._metrics.text({**others, **own})

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)


def _log_timing(record: Record) -> None:
    """When the client got its first event, and when it had all, if an answer was begun."""
    if "started" in record.timeline:
        first, end = record.timeline.get("first_token", 0.0), record.duration
        log.info("timing %s: first event %.1f ms, end %.1f ms", record.id, first * 1000, end * 1000)


def reason_of(exit_code: int) -> str:
    """Why an agent exited. A program that handles a signal exits with 128 plus its number."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in (signal.SIGTERM, signal.SIGINT):
        return "stopped"
    if number == signal.SIGKILL:
        return "killed"
    if exit_code < 0:
        return "crashed"
    return "failed" if exit_code else "finished"
