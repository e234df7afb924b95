"""Policies by name: `tiny`, `transformers:DIR`, `scripted:...`. Nothing heavy is imported before one is opened."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import ConfigError, UnavailableError
from schemas.policy import Policy
from schemas.settings import Settings

TINY_BASE = Path(__file__).parent.parent / "tiny"
"""The shipped base model: Hugging Face directory with `config.json`, `tokenizer.json` and, once made, its weights."""
NAMES = ("tiny, transformers:DIR, scripted:reference, scripted:empty, scripted:experts, scripted:variant:NAME, "
         "scripted:FILE")


def check_policy(name: str) -> None:
    """Raises ConfigError for a name that no policy has, or whose file or directory is not there."""
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest:
        from producers.policies.scripted import script_of

        script_of(name)
    elif kind == "transformers" and rest:
        if not (Path(rest) / "config.json").is_file():
            raise ConfigError("not a model directory: config.json is missing", where=f"policy {name}", value=rest)
    elif name != "tiny":
        raise ConfigError("unknown policy", value=name, hint=f"one of {NAMES}")


def open_policy(name: str, settings: Settings) -> Policy:
    """The policy of that name. Blocks while a model's libraries and weights are read.

    Raises ConfigError, UnavailableError (an extra is not installed) or PolicyError (broken files).
    """
    check_policy(name)
    if name.startswith("scripted:"):
        from artifacts import open_store
        from producers.policies.scripted import open_scripted

        return open_scripted(name, open_store(settings))
    try:
        from producers.policies.local import LocalPolicy
    except ImportError as missing:
        raise UnavailableError(f"policy {name} needs a package that is not installed ({missing.name})",
                               hint="install the extra: headrace[train]") from None
    return LocalPolicy(name, TINY_BASE if name == "tiny" else Path(name.removeprefix("transformers:")))
