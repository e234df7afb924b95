"""Errors: one paragraph that says what, where, the value and a hint."""

from __future__ import annotations

import re

import pytest

from schemas import errors
from schemas.errors import ConfigError, HeadraceError, SandboxError, SchemaError, UserError

TREE = {item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, HeadraceError)}


def test_the_paragraph_as_a_user_sees_it() -> None:
    wrong = ConfigError("unknown setting", where="headrace.toml", value="hme", hint="did you mean `home`?")
    assert wrong.paragraph() == (
        "error[config]: unknown setting at headrace.toml: 'hme'\n"
        "hint: did you mean `home`?")


@pytest.mark.parametrize(("given", "shown"), [
    ({}, "it broke"),
    ({"where": "$.turn"}, "it broke at $.turn"),
    ({"value": 0}, "it broke: 0"),
    ({"where": "$.turn", "value": "x", "hint": "mend it"}, "it broke at $.turn: 'x'"),
    ({"value": "x" * 400}, "it broke: '" + "x" * 296 + "..."),
])
def test_only_what_is_known_is_said(given: dict[str, object], shown: str) -> None:
    wrong = SchemaError("it broke", **given)  # type: ignore[arg-type]
    assert str(wrong) == shown
    assert wrong.paragraph().startswith(f"error[schema]: {shown}")
    assert ("hint:" in wrong.paragraph()) == ("hint" in given)


def test_codes_are_unique_and_the_tree_is_the_docstring() -> None:
    assert len({item.code for item in TREE}) == len(TREE)
    assert set(re.findall(r"\b\w+Error\b", errors.__doc__ or "")) == {item.__name__ for item in TREE}


def test_a_mistake_of_the_user_exits_with_2() -> None:
    assert all(item.exit_code == 2 for item in TREE if issubclass(item, UserError))
    assert HeadraceError.exit_code == 1


def test_a_sandbox_error_says_which_failure_kind_it_is() -> None:
    assert SandboxError("gone").kind == "sandbox_broken"
    assert str(SandboxError("gone", kind="sandbox_start", where="bwrap")) == "gone at bwrap"
