"""Static member ids: different for producers that live side by side, the same for one that takes a dead one's place."""

from __future__ import annotations

from pathlib import Path

from producers.member import member_of


def test_slots_are_shared_out_and_given_back(tmp_path: Path) -> None:
    with member_of("produce", tmp_path, "host") as first:
        with member_of("produce", tmp_path, "host") as second:
            assert (first, second) == ("produce-host-0", "produce-host-1")
        with member_of("produce", tmp_path, "host") as again, member_of("other", tmp_path, "host") as other:
            assert (again, other) == ("produce-host-1", "other-host-0")
