"""Settings: defaults < file < environment < flags, and one clear error for each mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from schemas.settings import KEYS, Settings, resolve


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "headrace.toml"


def _refusal(file: Path | None = None, **layers: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(layers.get("flags"), layers.get("environment", {}), file)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    return caught.value


def test_without_layers_all_is_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = resolve(environment={})
    assert resolved.settings == Settings()
    assert set(resolved.sources.values()) == {"default"}
    assert resolved.sources.keys() == KEYS.keys()


def test_each_layer_beats_the_one_below(file: Path) -> None:
    file.write_text('home = "file"\nlake = "file"\nlog = "file"\nverify_workers = 5\n')
    environment = {"HEADRACE_LAKE": "environment", "HEADRACE_LOG": "environment"}
    resolved = resolve({"log": "flag", "artifacts": None}, environment, file)
    settings, sources = resolved.settings, resolved.sources
    assert (settings.home, settings.lake, settings.log, settings.artifacts) == ("file", "environment", "flag", "")
    assert settings.verify_workers == 5
    assert (sources["home"], sources["lake"], sources["log"], sources["artifacts"]) == (
        str(file), "HEADRACE_LAKE", "flag", "default")


def test_no_setting_is_without_effect() -> None:
    root = Path(__file__).parents[2]
    code = "".join(path.read_text(encoding="utf-8") for room in root.iterdir() if (room / "__init__.py").exists()
                   and room.name != "tests" for path in room.rglob("*.py"))
    assert [key for key in KEYS if not re.search(rf"settings\.{key}\b", code)] == []


def test_tables_of_the_file_are_prefixes(file: Path) -> None:
    file.write_text("[sandbox]\nmemory_mb = 64\n[sink]\nflush_interval_s = 2\n")
    settings = resolve(environment={}, file=file).settings
    assert (settings.sandbox_memory_mb, settings.sink_flush_interval_s) == (64, 2.0)


def test_the_environment_is_text_and_is_converted() -> None:
    settings = resolve(environment={
        "HEADRACE_SANDBOX_MEMORY_MB": "64", "HEADRACE_TOOL_DEADLINE_S": "1.5", "PATH": "/bin"}).settings
    assert (settings.sandbox_memory_mb, settings.tool_deadline_s) == (64, 1.5)


def test_variables_that_are_no_settings_are_left_alone(file: Path) -> None:
    file.write_text("verify_workers = 3\n")
    environment = {"HEADRACE_CONFIG": str(file), "HEADRACE_REQUIRE_REAL": "1", "HEADRACE_KAFKA_PASSWORD": "secret"}
    assert resolve(environment=environment).settings.verify_workers == 3


def test_an_unknown_key_of_the_file_is_named_with_a_suggestion(file: Path) -> None:
    file.write_text("[sandbox]\nmemry_mb = 64\n")
    assert _refusal(file).paragraph() == (
        f"error[config]: unknown setting at {file}: 'sandbox_memry_mb'\nhint: did you mean `sandbox_memory_mb`?")


def test_an_unknown_variable_is_named_with_a_suggestion() -> None:
    assert _refusal(environment={"HEADRACE_VERIFY_WORKER": "2"}).paragraph() == (
        "error[config]: unknown setting at environment: 'HEADRACE_VERIFY_WORKER'\n"
        "hint: did you mean `HEADRACE_VERIFY_WORKERS`?")


def test_a_key_like_no_other_points_to_the_list() -> None:
    assert _refusal(flags={"zzz": 1}).paragraph() == (
        "error[config]: unknown setting at flag: 'zzz'\nhint: `headrace config show` lists every key")


def test_a_wrong_type_names_key_place_and_value(file: Path) -> None:
    file.write_text('verify_workers = "two"\n')
    assert str(_refusal(file)) == (
        f"setting `verify_workers` has a wrong value (Expected `int`, got `str`) at {file}: 'two'")
    assert str(_refusal(environment={"HEADRACE_TOOL_DEADLINE_S": "soon"})) == (
        "setting `tool_deadline_s` has a wrong value (Expected `float`, got `str`) at HEADRACE_TOOL_DEADLINE_S: 'soon'")
    for value in (True, 1.5, "", "1.5"):
        assert "wrong value" in str(_refusal(flags={"verify_workers": value}))


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    assert str(_refusal(file)) == f"no such settings file at {file}"
    assert str(_refusal(environment={"HEADRACE_CONFIG": str(file)})) == f"no such settings file at {file}"
    file.write_text("home = \n")
    assert "settings file cannot be read" in str(_refusal(file))
    file.write_bytes(b'home = "\xff"\n')
    assert "settings file cannot be read" in str(_refusal(file))
    assert "settings file cannot be read" in str(_refusal(file.parent))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().home = "elsewhere"  # type: ignore[misc]
