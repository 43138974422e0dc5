"""Where the bridge is: named by a variable, beside this Python or on PATH; and what it is given."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from cursor_gateway.agents import Located
from cursor_gateway.agents.sdk.texts import BridgeNotFound, KeyMissing
from cursor_gateway.processes.child import Environment, encoded

KIND = "sdk"
KEY = "CURSOR_API_KEY"
NAMED_BY = "CURSOR_SDK_BRIDGE_BIN"

_NAME = "cursor-sdk-bridge"
_PACKAGE = "cursor_sdk"
_IN_PACKAGE = ("_vendor", "bridge", "bin", _NAME)

# All that it needs of our environment: what it runs by, how text is written, and the way to
# Cursor's servers. Nothing else, since it may be told to run programs. The key is not among it: it
# goes into each request.
_PASSED_ON = frozenset(
    {
        *("PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "SYSTEMROOT", "CURSOR_BACKEND_URL"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA"),
    }
)


def find_bridge(env: Mapping[str, str]) -> Path:
    """Raises BridgeNotFound."""
    if named := env.get(NAMED_BY):
        if found := shutil.which(named, path=env.get("PATH")):
            return Path(found)
        raise BridgeNotFound(f"{NAMED_BY} names {named!r}, which is not an executable program.")
    for place in _places(env):
        if os.access(place, os.X_OK):
            return place
    raise BridgeNotFound(f"`{_NAME}` is neither beside this Python nor on PATH.")


def locate(env: Mapping[str, str]) -> Located:
    """The bridge, if it can be used. Raises BridgeNotFound or KeyMissing."""
    found = find_bridge(env)
    if not env.get(KEY):
        raise KeyMissing("Cursor's SDK works with an API key only, and there is none.")
    return Located(KIND, str(found))


def environment(env: Mapping[str, str], home: Path, temporary: Path) -> Environment:
    """What it keeps, it keeps in directories of ours."""
    passed = {name: value for name, value in env.items() if _is_passed_on(name)}
    return encoded(
        {
            **passed,
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "CURSOR_SDK_CLIENT_LANGUAGE": "python",
        }
    )


def _is_passed_on(name: str) -> bool:
    # Programs write the names of proxies in small letters, too.
    return name.upper() in _PASSED_ON or name.startswith("LC_")


def _places(env: Mapping[str, str]) -> Iterator[Path]:
    """The package is looked for, and never imported: it is not ours."""
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder, *_IN_PACKAGE)
    yield Path(sys.executable).with_name(_NAME)
    if found := shutil.which(_NAME, path=env.get("PATH")):
        yield Path(found)
