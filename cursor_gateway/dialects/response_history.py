"""Earlier responses that a request refers to. Where they are stored is not known here.

A record is what one request added: its own input and the response. What came before it is found
through `previous_response_id`, so that a long conversation is stored once and not once per turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cursor_gateway.errors import PreviousResponseNotFound, ResponseNotFound


class StoredResponses(Protocol):
    """Records under the ids of their responses."""

    def get(self, response_id: str) -> Any: ...
    def put(self, response_id: str, value: dict[str, Any]) -> None: ...


class _NoneStored:
    def get(self, response_id: str) -> None:
        return None

    def put(self, response_id: str, value: dict[str, Any]) -> None:
        pass


NONE_STORED = _NoneStored()


def earlier_items(stored: StoredResponses, response_id: str | None) -> list[Any]:
    """The items of the conversation up to the end of that response, without its instructions."""
    turns: list[list[Any]] = []
    while response_id is not None:
        record = stored.get(response_id)
        if record is None:
            raise PreviousResponseNotFound(
                f"Previous response with id {response_id[:80]!r} not found.",
                param="previous_response_id",
            )
        turns.append([*record["input"], *record["response"]["output"]])
        response_id = record["response"]["previous_response_id"]
    return [item for turn in reversed(turns) for item in turn]


def item_id(prefix: str, answer_id: str, number: int) -> str:
    """An `item_reference` holds only the id of an item, so the id names the item's response."""
    return f"{prefix}_{answer_id}_{number}"


def dereferenced(item: Any, get: Callable[[str], Any], where: str) -> Any:
    """The output item that an `item_reference` stands for; any other item as it is."""
    if not isinstance(item, dict) or item.get("type") != "item_reference":
        return item
    wanted = str(item.get("id"))
    record = get("resp_" + "".join(wanted.split("_")[1:2])) or {"response": {"output": []}}
    for found in record["response"]["output"]:
        if found["id"] == wanted:
            return found
    raise ResponseNotFound(f"Item with id {wanted[:80]!r} not found.", param=where)


def find_record(stored: StoredResponses, response_id: str) -> Any:
    record = stored.get(response_id)
    if record is None:
        raise ResponseNotFound(f"Response with id {response_id[:80]!r} not found.")
    return record


def render_input_items(record: Mapping[str, Any], *, ascending: bool) -> dict[str, Any]:
    """The input of that request on one page, newest first unless `ascending`."""
    answer_id = record["response"]["id"].removeprefix("resp_")
    given = enumerate(record["input"])
    items = [{"id": item_id("in", answer_id, at)} | item for at, item in given]
    data = items if ascending else items[::-1]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"], "has_more": False}
    return {"object": "list", "data": data, **ends}
