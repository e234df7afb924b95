"""Settings: defaults < headrace.toml < environment < flags. An unknown key is an error with a suggestion.

Keys are dotted (`sandbox.memory_mb`); the environment writes them HEADRACE_SANDBOX_MEMORY_MB. Secrets are never
settings: Kafka credentials come from the environment or a file named there.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from schemas.errors import ConfigError

FILE_NAME = "headrace.toml"
PREFIX = "HEADRACE_"
OUTSIDE = frozenset({"HEADRACE_CONFIG", "HEADRACE_FAILPOINT", "HEADRACE_REQUIRE_REAL"})
"""Variables of this prefix that are not settings."""
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default. Names end in their unit."""

    home: str = ".headrace"
    """Where log, lake, artifacts, weights and the Dagster instance lie."""
    log: str = "sqlite"
    """`sqlite` (embedded, in the home) or `kafka://host:port[,host:port]`."""
    log_partitions: Count = 4
    """Partitions of requests, trajectories and scores when topics are created."""
    artifacts: str = ""
    """Artifact store; empty: `artifacts/` in the home."""
    lake: str = ""
    """Lake tables; empty: `lake/` in the home."""
    lake_memory_mb: Count = 1024
    """DuckDB memory limit of one query."""
    sandbox_backend: str = "bubblewrap"
    """`bubblewrap`, `docker` (an engine of this machine), or `process` (no isolation; must be asked for by name)."""
    sandbox_memory_mb: Count = 512
    sandbox_pids: Count = 256
    sandbox_file_mb: Count = 256
    """Largest file that a command in the sandbox may write."""
    sandbox_output_kb: Count = 256
    """Bytes kept of each output stream, head and tail."""
    sandbox_warm: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Sandboxes made ahead of being asked for, for the tasks that were asked for last."""
    tool_deadline_s: Seconds = 30.0
    producer_concurrency: Count = 128
    """Episodes in flight in one producer."""
    producer_attempts: Count = 3
    """Attempts at an episode whose infrastructure failed."""
    verify_workers: Count = 2
    verify_deadline_s: Seconds = 60.0
    """Of one verdict: a verifier that takes longer is ended and gave none."""
    verify_memory_mb: Count = 4096
    """Of the process that judges, sandboxes apart."""
    judge_policy: str = ""
    """The policy that verifier `judge` asks for an opinion, for example transformers:DIR; empty: none."""
    verifiers: str = ""
    """Python files with verifiers of your own, separated by commas (`--verifier FILE.py`)."""
    sink_flush_interval_s: Annotated[float, msgspec.Meta(ge=0)] = 0.5
    sink_flush_rows: Count = 20000
    batch_max_staleness: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Largest distance between the version that sampled a token and the version being trained, for new runs."""
    batch_group_timeout_s: Seconds = 900.0
    """Event time after which an incomplete group closes, for new runs."""
    learner_processes: Count = 1


KEYS = {field.name: field for field in msgspec.structs.fields(Settings)}


class Resolved(msgspec.Struct, frozen=True):
    """The settings in force and where each came from (`default`, a file path, a variable's name, `flag`)."""

    settings: Settings
    sources: dict[str, str]


def resolve(flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None,
            file: Path | None = None) -> Resolved:
    """Merge the four layers. Raises ConfigError naming the key, where it stood, its value and a suggestion."""
    environment = os.environ if environment is None else environment
    values: dict[str, object] = {}
    sources = dict.fromkeys(KEYS, "default")
    path = file or Path(environment.get("HEADRACE_CONFIG", FILE_NAME))
    layers = [
        (str(path), _from_file(path, asked="HEADRACE_CONFIG" in environment or file is not None)),
        ("environment", _from_environment(environment)),
        ("flag", {key: value for key, value in (flags or {}).items() if value is not None}),
    ]
    for source, layer in layers:
        for key, value in layer.items():
            _check_key(key, source)
            sources[key] = _variable(key) if source == "environment" else source
            values[key] = _convert(key, value, sources[key])
    return Resolved(Settings(**values), sources)  # type: ignore[arg-type]


def _from_file(path: Path, asked: bool) -> dict[str, object]:
    if not path.exists():
        if asked:
            raise ConfigError("no such settings file", where=str(path))
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as wrong:
        raise ConfigError(f"settings file cannot be read: {wrong}", where=str(path)) from None
    return _flatten(document)


def _flatten(document: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}_{inner}": content for inner, content in value.items()})
        else:
            flat[key] = value
    return flat


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    return {name.removeprefix(PREFIX).lower(): value for name, value in environment.items()
            if name.startswith(PREFIX) and name not in OUTSIDE and not name.startswith("HEADRACE_KAFKA_")}


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _check_key(key: str, source: str) -> None:
    if key in KEYS:
        return
    written = _variable if source == "environment" else str
    close = difflib.get_close_matches(key, KEYS, n=1)
    hint = f"did you mean `{written(close[0])}`?" if close else "`headrace config show` lists every key"
    raise ConfigError("unknown setting", where=source, value=written(key), hint=hint)


def _convert(key: str, value: object, source: str) -> object:
    try:
        return msgspec.convert(value, KEYS[key].type, strict=False)
    except msgspec.ValidationError as wrong:
        raise ConfigError(f"setting `{key}` has a wrong value ({wrong})", where=source, value=value) from None
