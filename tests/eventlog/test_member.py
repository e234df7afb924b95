"""Static member ids: different for processes that live side by side, the same for one that takes a dead one's place."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eventlog.member import static_member
from schemas.errors import UnavailableError

HOST = socket.gethostname()


def test_slots_are_shared_out_and_given_back(tmp_path: Path) -> None:
    with static_member(tmp_path, "produce") as first:
        with static_member(tmp_path, "produce") as second:
            assert (first, second) == (f"produce-{HOST}-0", f"produce-{HOST}-1")
        with static_member(tmp_path, "produce") as again, static_member(tmp_path, "sink") as other:
            assert (again, other) == (f"produce-{HOST}-1", f"sink-{HOST}-0")


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "members").write_text("a file where a folder belongs")
    with pytest.raises(UnavailableError, match="home cannot be written"), static_member(tmp_path, "sink"):
        pass


def test_what_fails_while_the_slot_is_held_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="elsewhere"), static_member(tmp_path, "sink"):
        raise PermissionError("elsewhere")
