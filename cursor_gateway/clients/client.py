"""What is known of a client; docs/clients/ has a page for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cursor_gateway.core.models import Model
from cursor_gateway.foreign_files import home
from cursor_gateway.settings import FIELDS

Env = Mapping[str, str]

# Most clients refuse an empty key, and the gateway takes any while it has none of its own.
NO_KEY = "-"
# The gateway's own key, by the name that the gateway itself reads: it never goes on a command line.
KEY_VARIABLE = FIELDS["api_key"].env
# Where the key itself must not stand; no client takes it for a key that works.
KEY_PLACEHOLDER = "YOUR-GATEWAY-KEY"
# The name of our provider in every client's configuration. None of them has it built in: oh-my-pi
# (18.2.3) has a provider `cursor`, and sends what is asked of that to Cursor's own servers.
PROVIDER = "cursor-gateway"
# Put in the place of the file that a start without any change to the user's files needs.
FILE = "{file}"
# Cursor does not tell the sizes of its models; these fit all that it had when this was written.
CONTEXT, OUTPUT = 200_000, 32_000


@dataclass(frozen=True, slots=True)
class Target:
    """The gateway that a client shall use. The first model becomes its default."""

    base_url: str
    models: tuple[Model, ...]
    key: str = NO_KEY

    @property
    def root_url(self) -> str:
        return self.base_url.removesuffix("/v1")

    @property
    def model(self) -> str:
        return self.models[0].id


@dataclass(frozen=True, slots=True)
class Launch:
    """A start that changes no file of the user's."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of a client, and what to set in it."""

    # By which its change is remembered.
    name: str
    # Of the client.
    title: str
    config: Callable[[Env], Path]
    wanted: Callable[[Target], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Client(ConfigFile):
    page: str
    tried_with: str
    # What its program is called; found on PATH, it is installed.
    program: str
    # Where in its configuration the base URL stands; a list is searched for the entry that has it.
    address: tuple[str, ...]
    # Where the key stands, beside that.
    key: tuple[str, ...]
    # None where only files can point it elsewhere.
    launch: Callable[[Target], Launch] | None
    # A first command, once it is set up.
    example: str
    # Whether its base URL ends in `/v1`.
    has_v1: bool = True
    # Whether its configuration has to name every model.
    lists_models: bool = False
    # Where one file cannot say it all.
    second_file: ConfigFile | None = None

    def installed(self, env: Env) -> str | None:
        return shutil.which(self.program, path=env.get("PATH", ""))

    def url(self, target: Target) -> str:
        return target.base_url if self.has_v1 else target.root_url

    def configured(self, config: Any) -> list[tuple[str, str | None]]:
        """Every base URL that its configuration names at the place of ours, with its key."""
        *way, last = self.address
        places = _entries(_followed([config], way))
        return [
            (place[last], _text(_followed([place], self.key)))
            for place in places
            if isinstance(place.get(last), str)
        ]


def _followed(values: list[Any], way: Sequence[str]) -> list[Any]:
    for name in way:
        values = [value[name] for value in _entries(values) if name in value]
    return values


def _text(values: list[Any]) -> str | None:
    return next((value for value in values if isinstance(value, str)), None)


def _entries(values: list[Any]) -> list[Mapping[str, Any]]:
    flat = [entry for value in values for entry in (value if isinstance(value, list) else [value])]
    return [entry for entry in flat if isinstance(entry, Mapping)]


def below(variable: str, default: str, *names: str) -> Callable[[Env], Path]:
    """A file in the folder that `variable` names, else in `default` of the home directory."""

    def path(env: Env) -> Path:
        folder = Path(env[variable]) if env.get(variable) else home(env) / default
        return folder.joinpath(*names)

    return path


def first_existing(paths: list[Path], otherwise: Path) -> Path:
    return next((path for path in paths if path.exists()), otherwise)
