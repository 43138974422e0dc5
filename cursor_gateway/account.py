"""Account: the sign-in, the models and the agent's version, remembered so that nobody waits.

Each of the three may cost a start of the agent, a second or more. So each is remembered, refreshed
in the background one at a time, and an old answer is given while a new one is on its way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from cursor_gateway.agents import Agent, ModelList, SignIn
from cursor_gateway.agents.model_families import MODEL_FAMILIES
from cursor_gateway.background import in_background
from cursor_gateway.core.models import Model, checked, resolve
from cursor_gateway.errors import (
    AgentFailed,
    AgentOutdated,
    AgentTimedOut,
    GatewayError,
    ModelNotFound,
    NotAuthenticated,
    OutOfResources,
)
from cursor_gateway.settings import Settings

log = logging.getLogger(__name__)
T = TypeVar("T")

MODELS_LAST = 300.0
# An unknown model may be a new one: look again, but not for every typing error.
MODELS_DOUBTFUL = 30.0
VERSION_LASTS = 600.0
# A fresh sign-in shall be noticed within seconds, a lost one within a minute: while there is none
# the agent is asked often, else seldom.
SIGN_IN_LASTS = 60.0
NO_SIGN_IN_LASTS = 8.0
# A request that would be refused asks again, so that it works right after `login`.
NO_SIGN_IN_TRUSTED = 2.0
SIGN_IN_WATCH = 300.0
# A failure says nothing about the next attempt; it only keeps a crowd from repeating it at once.
FAILURE_LASTS = 2.0
# In the background, where nobody waits for it.
RETRIED_AFTER = 30.0
# Whoever asks for the gateway's health right after its start waits that long for the first word of
# `status`, which takes a second on most machines and was seen to take eight.
FIRST_CHECK_WAIT = 2.0


class CachedValue(Generic[T]):
    """A value that is slow to get: remembered, refreshed by one at a time, old rather than late."""

    def __init__(self, fetch: Callable[[], Awaitable[T]]) -> None:
        self._fetch = fetch
        self._refreshing: asyncio.Task[None] | None = None
        self._tried_at = float("-inf")
        self._settled = asyncio.Event()
        self.value: T | None = None
        self.error: GatewayError | None = None

    async def get(self, max_age: float, *, stale: bool = True) -> T:
        """The value. With `stale`, an old one is given at once while a new one is fetched."""
        if self.error is not None:
            max_age = min(max_age, FAILURE_LASTS)
        if self._age() > max_age:
            refreshing = self.refresh()
            if self.value is None or not stale:
                await asyncio.shield(refreshing)
        if self.value is None:
            assert self.error is not None
            raise self.error
        return self.value

    def learn(self, value: T) -> None:
        """Something else has shown what the value is."""
        self.value, self.error = value, None
        self._settle()

    @property
    def is_unknown(self) -> bool:
        """Whether the first attempt to get it is still on its way."""
        return not self._settled.is_set()

    async def first(self, seconds: float) -> None:
        """Wait for the first attempt to come to something, but not for longer."""
        if self.is_unknown:
            self.refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._settled.wait()

    def refresh_if_older(self, max_age: float) -> None:
        """What failed is tried again sooner."""
        if self._age() > (max_age if self.error is None else min(max_age, RETRIED_AFTER)):
            self.refresh()

    def refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = in_background(self._refresh(), "a question to the agent")
        return self._refreshing

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})

    async def _refresh(self) -> None:
        """Whatever goes wrong, the next one who asks may try again."""
        try:
            self.learn(await self._fetch())
        except GatewayError as error:
            self._fail(error)
        except Exception as error:
            # Memory or descriptors may be short for a moment; or it is a bug of our own.
            words = f"The agent could not be asked: {error}."
            if self.error is None or str(self.error) != words:
                log.exception("%s", words)
            self._fail(AgentFailed(words))

    def _fail(self, error: GatewayError) -> None:
        self.error = error
        self._settle()
        log.debug("refresh failed: %s", error.code)

    def _settle(self) -> None:
        self._tried_at = asyncio.get_running_loop().time()
        self._settled.set()

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._tried_at


class Account:
    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent = agent
        self._aliases = settings.aliases
        self._sign_in: CachedValue[SignIn] = CachedValue(self._check_sign_in)
        self._models: CachedValue[ModelList] = CachedValue(self._list_models)
        self._version: CachedValue[str] = CachedValue(agent.version)
        self._watching: asyncio.Task[None] | None = None
        # How often somebody was found signed in when nobody or somebody else had been.
        self.sign_ins = 0

    def adopt(self, settings: Settings) -> None:
        self._aliases = settings.aliases

    def start(self) -> None:
        self._watching = in_background(self._watch(), "the watch on the sign-in")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        for remembered in (self._sign_in, self._models, self._version):
            await remembered.close()

    @property
    def authenticated(self) -> bool:
        return self._sign_in.value is not None and self._sign_in.value.authenticated

    @property
    def auth(self) -> str:
        return "authenticated" if self.authenticated else "not_authenticated"

    @property
    def name(self) -> str:
        """Who is signed in, as far as the agent says."""
        return self._sign_in.value.account if self._sign_in.value else ""

    @property
    def version(self) -> str:
        return self._version.value or ""

    @property
    def is_starting(self) -> bool:
        """Whether nothing is known of the sign-in yet."""
        return self._sign_in.is_unknown

    async def first_check(self) -> None:
        """Wait a moment for it; all who do wait for the same one."""
        await self._sign_in.first(FIRST_CHECK_WAIT)

    def problem(self) -> GatewayError | None:
        """Why no request can be served now, as far as is known; asks anew in the background."""
        self._sign_in.refresh_if_older(self._sign_in_lasts())
        self._version.refresh_if_older(VERSION_LASTS)
        if self._sign_in.value is None:
            return self._sign_in.error
        return None if self.authenticated else NotAuthenticated("Cursor's agent is not signed in.")

    async def sign_in(self) -> SignIn:
        return await self._sign_in.get(NO_SIGN_IN_TRUSTED, stale=False)

    async def models(self) -> tuple[Model, ...]:
        return (await self._models.get(MODELS_LAST)).models

    async def resolve(self, wanted: str) -> str:
        """The id of the model that a client means. `auto` never has to wait for the list."""
        known = self._models.value.models if self._models.value else ()
        try:
            return resolve(wanted, known, self._aliases, MODEL_FAMILIES)
        except ModelNotFound:
            pass
        try:
            known = (await self._models.get(MODELS_DOUBTFUL, stale=False)).models
        except (AgentFailed, AgentOutdated, AgentTimedOut, OutOfResources):
            # There is no list to look in. The agent itself knows whether it has the model.
            return checked(wanted)
        return resolve(wanted, known, self._aliases, MODEL_FAMILIES)

    async def require_sign_in(self) -> None:
        """Refuse at once what the agent would refuse after a second; when unsure, let it decide."""
        if self._sign_in.value is None or self.authenticated:
            return
        if not (await self.sign_in()).authenticated:
            raise NotAuthenticated("Cursor's agent is not signed in.")

    def doubt_sign_in(self) -> None:
        """A run was refused for want of a sign-in, whatever we believed."""
        self._sign_in.refresh()

    def trust_sign_in(self) -> None:
        """A run was answered: somebody is signed in, whatever the agent says of it or fails to."""
        if not self.authenticated:
            self._sign_in.learn(SignIn(authenticated=True))

    async def _check_sign_in(self) -> SignIn:
        found, before = await self._found_sign_in(), self._sign_in.value
        if before is not None and found.authenticated:
            is_another = before.account not in ("", found.account)
            self.sign_ins += is_another or not before.authenticated
        return found

    async def _found_sign_in(self) -> SignIn:
        if not self._agent.key_variable or self._agent.capabilities.names_key_owner:
            return await self._agent.sign_in()
        # With a key, an agent may know only of a browser sign-in; the list of models knows the
        # truth.
        try:
            await self._models.get(MODELS_LAST, stale=False)
        except NotAuthenticated:
            return SignIn(authenticated=False)
        return SignIn(authenticated=True, account=self._agent.key_variable)

    async def _list_models(self) -> ModelList:
        listed = await self._agent.models()
        if listed.complete:
            return listed
        if self._models.value is not None:
            log.warning("the agent cut its list of models short; the earlier one stays")
            return self._models.value
        log.warning("the agent may have cut its list of models short")
        return listed

    async def _watch(self) -> None:
        # One after the other: CLIs that start together disturb each other. What is known of the
        # version serves the first requests already; the models are fetched by who needs them.
        for remembered in (self._sign_in, self._version, self._models):
            if remembered.value is None:  # else a request was faster
                await asyncio.shield(remembered.refresh())
        while True:
            await asyncio.sleep(SIGN_IN_WATCH if self.authenticated else NO_SIGN_IN_LASTS)
            await asyncio.shield(self._sign_in.refresh())
            # An agent may update itself, and what is known is known of one version.
            self._version.refresh_if_older(VERSION_LASTS)
            if self.authenticated and self._models.value is None:
                await asyncio.shield(self._models.refresh())

    def _sign_in_lasts(self) -> float:
        return SIGN_IN_LASTS if self.authenticated else NO_SIGN_IN_LASTS
