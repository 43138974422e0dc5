from __future__ import annotations

import re
from pathlib import Path

import pytest

from cursor_gateway import settings
from cursor_gateway.processes import tree
from cursor_gateway.settings import FIELDS, NO_SETTINGS, Settings, SettingsError, shown
from cursor_gateway.settings_row import Setting
from cursor_gateway.settings_sources import config_file, load


def test_the_check_of_the_sign_in_may_take_the_eight_seconds_that_were_seen() -> None:
    assert load({}, {}).settings.auth_check_timeout_ms >= 12_000


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("port = 1\nslots = 1\nqueue = 1\n")
    loaded = load({"port": 3, "slots": None}, {"PORT": "2", "CURSOR_GATEWAY_SLOTS": "2"}, file)
    assert (loaded.settings.port, loaded.settings.slots, loaded.settings.queue) == (3, 2, 1)
    assert [str(loaded.origins[name]) for name in ("port", "slots", "queue", "host")] == [
        "flag",
        "env CURSOR_GATEWAY_SLOTS",
        f"file {file}",
        "default",
    ]


def test_the_environment_names_of_old_keep_working() -> None:
    env = {
        "PORT": "1",
        "HOST": "localhost",
        "CURSOR_ACP_AUTH_CHECK_TIMEOUT": "7",
        "CURSOR_DEBUG": "1",
        "CURSOR_TIMING": "true",
        "CURSOR_AGENT_EXECUTABLE": "/x",
    }
    got = load({}, env).settings
    assert (got.port, got.host, got.auth_check_timeout_ms) == (1, "localhost", 7)
    assert (got.debug, got.timing, got.agent_executable) == (True, True, "/x")


def test_lists_and_pairs_are_read_from_text_and_from_toml(tmp_path: Path) -> None:
    env = {"CURSOR_GATEWAY_CORS_ORIGINS": " a , b,", "CURSOR_GATEWAY_ALIASES": "x = y , z=w"}
    got = load({}, env).settings
    assert (got.cors_origins, dict(got.aliases)) == (("a", "b"), {"x": "y", "z": "w"})
    file = tmp_path / "c.toml"
    file.write_text('cors_origins = ["a"]\ndebug = true\n[aliases]\nx = "y"\n')
    got = load({}, {}, file).settings
    assert (got.cors_origins, dict(got.aliases), got.debug) == (("a",), {"x": "y"}, True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", "no setting 'prot'. Did you mean 'port'"),
        ("zzzzzz = 1", "no setting 'zzzzzz'.$"),
        ("port = ", "cannot be read"),
        ("port = 'x'", "must be a whole number"),
        ("port = 70000", "between 0 and 65535"),
        ("slots = 0", "must be between 1 and 1000000000, not 0"),
        ("slots = true", "must be a whole number"),
        ("slots = 2.5", "must be a whole number"),
        ("keep_alive = true", "must be a number"),
        ("keep_alive = 0", "must be more than 0"),
        ("debug = 'perhaps'", "must be true or false"),
        ("aliases = 'x'", "must be pairs"),
        ("cors_origins = 5", "must be a list"),
        ("demo = 'maybe'", "must be one of off, on, if-missing"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=complaint):
        load({}, {}, file)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("CURSOR_GATEWAY_PORT", r"\(env CURSOR_GATEWAY_PORT\)\. Did you mean PORT\?"),
        ("CURSOR_GATEWAY_DEBUG", "Did you mean CURSOR_DEBUG?"),
        ("CURSOR_GATEWAY_SLOT", "Did you mean CURSOR_GATEWAY_SLOTS?"),
        ("CURSOR_GATEWAY_ZZZZZZ", r"\(env CURSOR_GATEWAY_ZZZZZZ\)\.$"),
    ],
)
def test_a_variable_that_looks_like_ours_and_is_not_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load({}, {name: "1"})


def test_our_variables_that_are_no_settings_are_let_be() -> None:
    load({}, {tree.MARK: "x", "_CURSOR_GATEWAY_COMPLETE": "bash_source"})


def test_the_file_is_looked_for_where_files_of_its_kind_lie(tmp_path: Path) -> None:
    assert config_file({"CURSOR_GATEWAY_CONFIG": "/x"}) == Path("/x")
    assert config_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/cursor-gateway/config.toml")
    assert config_file({"HOME": "/h"}) == Path("/h/.config/cursor-gateway/config.toml")
    with pytest.raises(SettingsError, match="no configuration file"):
        load({}, {}, tmp_path / "missing")


NUMBERS = [spec for spec in FIELDS.values() if spec.kind in ("int", "float")]


@pytest.mark.parametrize("spec", NUMBERS, ids=lambda spec: spec.name)
def test_a_number_out_of_range_is_refused_wherever_it_comes_from(
    tmp_path: Path, spec: Setting
) -> None:
    limits, file = spec.limits, tmp_path / "c.toml"
    assert limits is not None
    too_much = ["-5", str(limits.most * 2)] + (["nan", "inf", "-inf"] * (spec.kind == "float"))
    for number in too_much:
        said = re.escape(f"must be {limits}, not {float(number) if '.' in number else number}")
        file.write_text(f"{spec.name} = {number}")
        with pytest.raises(SettingsError, match=rf"^{spec.name} \(flag\) must be "):
            load({spec.name: number}, {})
        with pytest.raises(SettingsError, match=rf"^{spec.name} \(env {spec.env}\) "):
            load({}, {spec.env: number})
        with pytest.raises(SettingsError, match=rf"^{spec.name} \(file .*{said}"):
            load({}, {}, file)
    assert limits.allow(spec.default)


def test_times_and_sizes_have_a_unit_and_counts_have_none() -> None:
    units = {spec.name: spec.unit for spec in NUMBERS}
    assert all(units[spec.name] == "seconds" for spec in NUMBERS if spec.kind == "float")
    assert (units["journal_mb"], units["auth_check_timeout_ms"]) == ("megabytes", "milliseconds")
    assert (units["slots"], units["port"]) == ("", "")


def test_who_answers_is_chosen_by_name() -> None:
    assert load({}, {}).settings.agent == "cli"
    assert load({}, {"CURSOR_GATEWAY_AGENT": "demo"}).settings.agent == "demo"
    with pytest.raises(SettingsError, match=r"agent .* must be one of cli, acp, sdk, demo"):
        load({"agent": "nobody"}, {})


def test_the_ends_of_a_range_are_within_it() -> None:
    assert load({"port": 0}, {}).settings.port == 0
    assert load({"port": 65535}, {}).settings.port == 65535
    assert load({"slots": 3.0}, {}).settings.slots == 3
    assert load({"keep_alive": "0.01"}, {}).settings.keep_alive == 0.01


def test_every_setting_has_a_name_of_its_own_and_a_sentence() -> None:
    names = [spec.env for spec in FIELDS.values()]
    assert len(set(names)) == len(names)
    assert all(spec.help.endswith(".") for spec in FIELDS.values())
    assert shown("debug", True) == "true"
    assert shown("api_key", "x") == "***" and shown("api_key", "") == ""
    assert Settings().is_loopback


def test_no_message_names_a_variable_that_the_table_does_not_know() -> None:
    package = Path(settings.__file__).parent
    named = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"\bCURSOR_GATEWAY_[A-Z_]*[A-Z]\b", path.read_text())
    }
    assert named <= {spec.env for spec in FIELDS.values()}.union(NO_SETTINGS)
