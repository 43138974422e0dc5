"""A schema, read once in linear time: the keywords of each of its subschemas, and its names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from cursor_gateway.core.json_schema.limits import Unresolvable
from cursor_gateway.core.json_schema.paths import Path, json_path
from cursor_gateway.core.json_schema.shapes import SHAPES, is_schema

_LONGEST_REFERENCE = 1000


class Schema:
    """A schema that was read. Its maker has checked its size with `nodes_within`."""

    def __init__(self, schema: Any) -> None:
        # A sentence about the first keyword whose value does not have the right shape.
        self.problem = ""
        self.root = schema
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        draft = dialect if isinstance(dialect, str) else ""
        self._id = "id" if "draft-03" in draft or "draft-04" in draft else "$id"
        self._ref_stands_alone = "draft-0" in draft
        # In draft 3, `required` and `type` have other shapes.
        self._is_draft_3 = "draft-03" in draft
        # Subschemas by their `id()`. The schema stays alive, so no other object gets the same one.
        self._nodes: dict[int, tuple[str, list[tuple[str, Any]]]] = {}
        self._resources: dict[str, Any] = {"": schema}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: set[tuple[str, str]] = set()
        # Results that checks reuse, by the `id()` of a keyword's value.
        self.memory: dict[int, Any] = {}
        self._found: dict[tuple[str, str], tuple[Any, str]] = {}
        self._read(schema, "")

    def node(self, schema: Any, base: str) -> tuple[str, list[tuple[str, Any]]]:
        """The base of a subschema's references, and its keywords that can be checked."""
        if id(schema) not in self._nodes:
            self._read(schema, base)  # only a reference leads to it
        return self._nodes[id(schema)]

    def _read(self, schema: Any, base: str) -> None:
        waiting: list[tuple[Any, str, Path]] = [(schema, base, None)]
        while waiting:
            schema, base, path = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in self._nodes:
                continue
            base = self._entered(schema, base)
            keywords: list[tuple[str, Any]] = []
            self._nodes[id(schema)] = base, keywords
            alone = self._ref_stands_alone and isinstance(schema.get("$ref"), str)
            for name, value in schema.items():
                if name not in SHAPES:
                    continue
                subschemas = SHAPES[name].subschemas(value)
                if subschemas is None:
                    self._blame(path, name)
                    continue
                within = (path, name)
                waiting += [
                    (inner, base, within if key is None else (within, key))
                    for key, inner in subschemas
                ]
                if not alone or name == "$ref":
                    keywords.append((name, value))

    def _blame(self, path: Path, name: str) -> None:
        if not self.problem and not self._is_draft_3:
            where = f"at {json_path(path)[:200]}, " if path else ""
            self.problem = f"{where}`{name}` must be {SHAPES[name].words}"

    def _entered(self, schema: Mapping[str, Any], base: str) -> str:
        """The base below `schema`. Its ids and anchors are stored."""
        own = schema.get(self._id)
        if isinstance(own, str) and not (self._ref_stands_alone and "$ref" in schema):
            uri, fragment = _parted(base, own)
            if fragment:
                self._anchors[uri, fragment] = schema
            else:
                base = uri
                self._resources.setdefault(uri, schema)
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(name), str):
                self._anchors[base, anchor] = schema
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic.add((base, anchor))
        if schema.get("$recursiveAnchor") is True and self._resources.get(base) is schema:
            self._anchors[base, ""] = schema
            self._dynamic.add((base, ""))
        return base

    def referred(self, reference: str, base: str) -> tuple[Any, str]:
        """The schema that `reference` means where `base` is the base, and the base there."""
        known = self._found.get((base, reference))
        if known is None:
            known = self._found[base, reference] = self._looked_up(reference, base)
        return known

    def dynamically_referred(
        self, reference: str, base: str, scope: tuple[str, ...]
    ) -> tuple[Any, str]:
        """As `referred`, unless a resource of the `scope` has a dynamic anchor of that name."""
        uri, name = _parted(base, reference)
        if (uri, name) in self._dynamic:
            outermost = next(each for each in (*scope, uri) if (each, name) in self._dynamic)
            return self._anchors[outermost, name], outermost
        return self.referred(reference, base)

    def _looked_up(self, reference: str, base: str) -> tuple[Any, str]:
        uri, fragment = _parted(base, reference)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((uri, fragment))
        else:
            found = self._resources.get(uri)
            for part in unquote(fragment).split("/")[1:]:
                found = _member(found, part.replace("~1", "/").replace("~0", "~"))
                uri = self._nodes.get(id(found), (uri,))[0]
        if not is_schema(found):
            raise Unresolvable(reference)
        return found, uri


def _parted(base: str, reference: str) -> tuple[str, str]:
    """The resource and the place in it that `reference` means. A reference that is no URI leads
    nowhere, and so does one that is so long that joining many of them would take long."""
    if len(base) + len(reference) > _LONGEST_REFERENCE:
        return reference, ""
    if reference.startswith("#"):
        return base, reference[1:]
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        return reference, ""
    return uri, fragment


def _member(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    is_position = isinstance(value, list) and key.isdecimal() and len(key) < 10
    return value[int(key)] if is_position and int(key) < len(value) else None
