"""Axis: the clients that `setup` knows, one file for each.

A client's file says where it keeps its configuration, what to set in it and how to start it
without; a new client is a file and its name below. `cursor-gateway setup`, the doctor, the page and
docs/clients/README.md read them from here. Each was tried with the version that it names.
"""

from __future__ import annotations

from collections.abc import Mapping

from cursor_gateway.clients import (
    aider,
    claude_code,
    cline,
    codex,
    continue_dev,
    droid,
    oh_my_pi,
    opencode,
    pi,
)
from cursor_gateway.clients.client import Client

_IN_ORDER = (opencode, oh_my_pi, droid, codex, claude_code, aider, continue_dev, cline, pi)

CLIENTS: Mapping[str, Client] = {each.CLIENT.name: each.CLIENT for each in _IN_ORDER}
