"""Where settings come from: flags, the environment, a file, and what is wrong with them."""

from __future__ import annotations

import dataclasses
import difflib
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cursor_gateway.findings import EDITOR
from cursor_gateway.foreign_files import MAX_BYTES
from cursor_gateway.redaction import OUTGOING, named_secrets, secrets_in_address, secrets_in_command
from cursor_gateway.settings import (
    CONFIG_VARIABLE,
    FIELDS,
    NO_SETTINGS,
    Settings,
    SettingsError,
)
from cursor_gateway.settings_row import Setting

_PREFIX = "CURSOR_GATEWAY_"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: `flag`, `env NAME`, `file PATH` or `default`."""

    kind: Literal["flag", "env", "file", "default"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    @property
    def variable(self) -> str:
        return self.name if self.kind == "env" else ""


_DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: Mapping[str, Origin]


def load(flags: Mapping[str, Any], env: Mapping[str, str], file: Path | None = None) -> Loaded:
    _check_names(env)
    for name in flags:
        if name not in FIELDS:
            raise SettingsError(f"There is {_no_setting(name)}")
    path = file or config_file(env)
    written = _read(path, required=file is not None or bool(env.get(CONFIG_VARIABLE)))
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name, spec in FIELDS.items():
        if flags.get(name) is not None:
            value, origin = flags[name], Origin("flag")
        elif env.get(spec.env):
            value, origin = env[spec.env], Origin("env", spec.env)
        elif name in written:
            value, origin = written[name], Origin("file", str(path))
        else:
            origins[name] = _DEFAULT
            continue
        values[name] = _convert(spec, value, origin)
        origins[name] = origin
    settings = Settings(**values)
    OUTGOING.learn(_secrets(settings, env))
    _check(settings, origins)
    return Loaded(settings, origins)


def _secrets(settings: Settings, env: Mapping[str, str]) -> Iterator[str]:
    """Of ours, and what an agent finds in its environment and may repeat."""
    yield from (settings.api_key, env.get("CURSOR_API_KEY", ""))
    yield from named_secrets(env)
    yield from secrets_in_command(settings.agent_command)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        yield from secrets_in_address(env.get(name) or env.get(name.lower(), ""))


def reloaded(running: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """What a running gateway goes on with, and which changed settings need a restart."""
    changed = [name for name in FIELDS if getattr(running, name) != getattr(fresh, name)]
    taken = {name: getattr(fresh, name) for name in changed if FIELDS[name].reloads}
    settings = dataclasses.replace(running, **taken)
    # Again: the key may have gone from a file whose new host would not need one.
    _check(settings, {})
    return settings, [name for name in changed if not FIELDS[name].reloads]


def config_file(env: Mapping[str, str]) -> Path:
    if named := env.get(CONFIG_VARIABLE):
        return Path(named)
    base = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", ""), ".config")  # noqa: PTH118
    return Path(base) / "cursor-gateway" / "config.toml"


def undo_command(setting: str, env: Mapping[str, str]) -> str:
    """The command that takes a setting back, where it was made."""
    variable = FIELDS[setting].env
    file = shlex.quote(str(config_file(env)))
    return f"unset {variable}" if env.get(variable) else f"{EDITOR} {file}"


def _read(path: Path, *, required: bool) -> Mapping[str, Any]:
    try:
        # It may be a pipe, of a shell that decrypts it; but one that ends.
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SettingsError(f"{path} is too long to be a configuration file.")
        written = tomllib.loads(content.decode())
    except FileNotFoundError:
        if required:
            raise SettingsError(f"There is no configuration file {path}.") from None
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    for name in written:
        if name not in FIELDS:
            raise SettingsError(f"{path}: there is {_no_setting(name)}")
    return written


def _no_setting(name: str) -> str:
    near = difflib.get_close_matches(name, FIELDS, n=1)
    suggestion = f" Did you mean {near[0]!r}?" if near else ""
    return f"no setting {name!r}.{suggestion}"


def _check_names(env: Mapping[str, str]) -> None:
    known = {spec.env for spec in FIELDS.values()}.union(NO_SETTINGS)
    for name in env:
        if name.startswith(_PREFIX) and name not in known:
            setting = name.removeprefix(_PREFIX).lower()
            near = difflib.get_close_matches(setting, FIELDS, n=1)
            suggestion = f" Did you mean {FIELDS[near[0]].env}?" if near else ""
            complaint = f"There is no setting by that name (env {name}).{suggestion}"
            raise SettingsError(complaint, name)


def _convert(spec: Setting, value: Any, origin: Origin) -> Any:
    def wrong(words: str) -> SettingsError:
        return SettingsError(f"{spec.name} ({origin}) must be {words}.", origin.variable)

    try:
        converted = _CONVERTERS[spec.kind](value)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise wrong(f"{_KINDS[spec.kind]}, not {value!r}") from None
    if spec.limits and not spec.limits.allow(converted):
        raise wrong(f"{spec.limits}, not {converted}")
    if spec.choices and converted not in spec.choices:
        raise wrong(f"one of {', '.join(spec.choices)}, not {value!r}")
    return converted


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"1": True, "true": True, "yes": True, "on": True,
            "0": False, "false": False, "no": False, "off": False}[str(value).lower()]  # fmt: skip


def _whole_number(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if not _number(value).is_integer():
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    # To Python true is 1, but nobody who writes it means that.
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _strings(value: Any) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    return tuple(entry.strip() for entry in listed if entry.strip())


def _pairs(value: Any) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        return {str(key): str(target) for key, target in value.items()}
    return dict(_pair(entry) for entry in _strings(value))


def _pair(entry: str) -> tuple[str, str]:
    key, equals, target = entry.partition("=")
    if not equals:
        raise ValueError(entry)
    return key.strip(), target.strip()


_CONVERTERS: Mapping[str, Any] = {
    "str": lambda value: str(value).strip(),
    "int": _whole_number,
    "float": _number,
    "bool": _boolean,
    "tuple[str, ...]": _strings,
    "Mapping[str, str]": _pairs,
}
_KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple[str, ...]": "a list",
    "Mapping[str, str]": "pairs such as name=model",
}


def _check(settings: Settings, origins: Mapping[str, Origin]) -> None:
    def wrong(name: str, words: str) -> SettingsError:
        where = origins.get(name, "as it runs")
        return SettingsError(f"{name} ({where}) {words}.", _variable(name))

    def _variable(name: str) -> str:
        return origins[name].variable if name in origins else ""

    if settings.workspace and not Path(settings.workspace).expanduser().is_dir():
        raise wrong("workspace", f"names {settings.workspace}, which is no directory")
    if not settings.is_loopback and not settings.api_key:
        way = f"set {FIELDS['api_key'].env} or pass {FIELDS['api_key'].flag}"
        if _variable("host") == "HOST":
            # Shells and package managers set it for purposes of their own.
            way += ". If that HOST is not meant for the gateway, `unset HOST`, or "
            way += "serve with --host 127.0.0.1"
        raise wrong("host", f"is {settings.host}, which lets others in and so needs a key: {way}")
