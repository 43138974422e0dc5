from __future__ import annotations

import shlex

import pytest

from tests.conftest import FakeAgent
from tests.doctor.machine import bin_folder, free_port, program
from tests.support.machine import OF_CLIENTS
from tests.support.programs import loaded_command


@pytest.fixture(autouse=True)
def machine(fake: FakeAgent) -> None:
    """A machine with nothing on it but the fake agent, the gateway and an editor."""
    for name in [name for name in fake.env if OF_CLIENTS.match(name)]:
        del fake.env[name]
    folder = bin_folder(fake)
    fake.env.update({"PATH": f"{folder}:/usr/bin:/bin", "PORT": str(free_port())})
    fake.env.update({"EDITOR": "edits", "FIXED": "{}"})
    program(fake, "edits", 'echo "$FIXED" > "$1"')
    program(fake, "cursor-gateway", f'exec {shlex.join(loaded_command())} "$@"')
