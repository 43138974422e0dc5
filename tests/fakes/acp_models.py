"""The models as ACP names them: in two spaces, of which a client chooses one with `initialize`.

With the picker of parameters a model is a name, and its parameters are options of the session;
without it one name holds both: `gpt-5.6[effort=high,fast=false]`. Neither has the names of the
CLI's list, from which both are made here. `acp-models.json` in the home replaces the answer of
`cursor/list_available_models`, and the models with it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes import bridge_models
from tests.fakes.acp_wire import RpcError, invalid
from tests.fakes.steps import HOME

Json = dict[str, Any]
OF_A_VARIANT = re.compile(r" (?:1M|Extra|Max|High|Medium|Low|Thinking|Fast)\b")
EFFORTS = ("low", "medium", "high", "extra-high", "max")
USUAL_EFFORTS = {"low", "medium", "high"}
MODES = {"agent": "Agent", "plan": "Plan", "ask": "Ask"}
SWITCH = ("false", "true")


def listing() -> Json:
    """What `cursor/list_available_models` answers."""
    replaced = HOME / "acp-models.json"
    if replaced.exists():
        return dict(json.loads(replaced.read_text()))
    return {"models": made_of_the_list()}


def made_of_the_list() -> list[Json]:
    return [model_of(each) for each in bridge_models.listed()]


def models() -> list[Json]:
    """Sessions have some, whatever shape the answer has."""
    return list(listing().get("models") or made_of_the_list())


def model_of(family: Json) -> Json:
    name = "default" if family["id"] == "auto" else family["id"]
    title = OF_A_VARIANT.sub("", family["displayName"])
    return {"value": name, "name": title, "configOptions": options_of(family)}


def options_of(family: Json) -> list[Json]:
    offered = {
        each["id"]: [value["value"] for value in each["values"]]
        for each in family.get("parameters", [])
    }
    first = {each["id"]: each["value"] for each in family["variants"][0]["params"]}
    found = []
    if "thinking" in offered:
        found.append(option("thinking", "model_config", first["thinking"], SWITCH))
    if " 1M" in family["displayName"]:
        found.append(option("context", "model_config", "1m", ("300k", "1m")))
    if "effort" in offered:
        levels = tuple(each for each in EFFORTS if each in USUAL_EFFORTS | set(offered["effort"]))
        # The models of one vendor have another word for it.
        word = "reasoning" if family["id"].startswith("gpt-") else "effort"
        found.append(option(word, "thought_level", first["effort"], levels))
    if "fast" in offered:
        found.append(option("fast", "model_config", first["fast"], SWITCH))
    return found


def option(name: str, category: str, current: str, values: tuple[str, ...]) -> Json:
    shown = [{"value": value, "name": value.capitalize()} for value in values]
    kind = {"id": name, "name": name.capitalize(), "category": category, "type": "select"}
    return kind | {"currentValue": current, "options": shown}


def whole_name(model: Json) -> str:
    """A model in the space that has no options beside it. Some are always fast there."""
    chosen = {each["id"]: each["currentValue"] for each in model.get("configOptions", [])}
    if "fast" in chosen and re.match("composer|cursor-grok", model["value"]):
        chosen["fast"] = "true"
    return f"{model['value']}[{','.join(f'{name}={value}' for name, value in chosen.items())}]"


def is_usable(name: str) -> bool:
    """Whether `--model` takes it: names of the CLI's own list, with overrides or without."""
    base = name.partition("[")[0]
    listed = re.findall(r"^(\S+) - ", (HOME / "models.txt").read_text(), re.MULTILINE)
    return base in listed or base in {model["value"] for model in models()}


class Choices:
    """What one session has chosen: its mode, its model, and the parameters of that."""

    def __init__(self, named: str, *, with_options: bool) -> None:
        """`named` is the model of the command line, by its own name or by one of the CLI's list."""
        self._with_options = with_options
        self.mode = "agent"
        usual, *others = models()
        chosen = (each for each in others if named.startswith(each["value"]))
        self.model = self._name_of(max(chosen, key=lambda each: len(each["value"]), default=usual))
        self.parameters: dict[str, str] = {}

    def _name_of(self, model: Json) -> str:
        return str(model["value"]) if self._with_options else whole_name(model)

    def choose(self, name: str, value: Any) -> None:
        offered = {each["id"]: each for each in self.options()}
        if name not in offered:
            raise invalid(f"Unknown config option: {name}")
        if value not in [each["value"] for each in offered[name]["options"]]:
            raise invalid(f"Invalid {name} value: {value}")
        if name == "mode":
            self.mode = value
        elif name == "model":
            self.model, self.parameters = value, {}
        else:
            self.parameters[name] = value

    def choose_mode(self, mode: str) -> None:
        if mode not in MODES:
            words = f"Invalid mode ID: {mode}"
            raise RpcError(-32603, "Internal error", {"details": words})
        self.mode = mode

    def options(self) -> list[Json]:
        mode = option("mode", "mode", self.mode, tuple(MODES))
        named = [{"value": self._name_of(each), "name": each["name"]} for each in models()]
        about = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        return [mode, about | {"currentValue": self.model, "options": named}, *self._parameters()]

    def _parameters(self) -> list[Json]:
        (chosen,) = [each for each in models() if self._name_of(each) == self.model]
        offered = chosen.get("configOptions", []) if self._with_options else []
        return [
            each | {"currentValue": self.parameters.get(each["id"], each["currentValue"])}
            for each in offered
        ]

    def shown(self) -> Json:
        """What a new session, or one that was loaded, tells about itself."""
        modes = [{"id": each, "name": name, "description": name} for each, name in MODES.items()]
        named = [{"modelId": self._name_of(each), "name": each["name"]} for each in models()]
        return {
            "modes": {"currentModeId": self.mode, "availableModes": modes},
            "models": {"currentModelId": self.model, "availableModels": named},
            "configOptions": self.options(),
        }

    def summary(self) -> dict[str, str]:
        """Everything that is chosen, for notes."""
        return {each["id"]: each["currentValue"] for each in self.options()}
