"""Maintenance has one owner: two at once, a crash, a pause, a clock that was wrong."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest

from artifacts.local_folder import LocalFolder
from lake.lease import FILE, Held, Lease, maintenance, read
from schemas.errors import LakeError
from schemas.ids import now_us


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "lake")


def held_for(folder: LocalFolder, seconds: float) -> None:
    folder.write(FILE, msgspec.json.encode(Held("elsewhere/7/x", "vacuum", now_us() + int(seconds * 1e6))))


def test_the_second_leaves_with_a_message_that_says_who(folder: LocalFolder) -> None:
    held_for(folder, 20)
    told = r"vacuum by process 7 on elsewhere, at least until 2\d\d\d-"
    with pytest.raises(LakeError, match=told), maintenance(folder, "compact"):
        raise AssertionError("entered")


def test_the_second_waits_for_the_first(folder: LocalFolder) -> None:
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.wait()
        with maintenance(folder, "vacuum", wait_s=30):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with maintenance(folder, "compact"):
        entered.set()
        order.append("first")
        assert read(folder)[0].task == "compact"
    thread.join()
    assert order == ["first", "second"] and read(folder)[0].owner == ""


def test_of_many_at_once_one_is_inside(folder: LocalFolder) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with maintenance(folder, "compact", wait_s=60):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6


def test_a_dead_holder_is_followed_when_its_time_is_over(folder: LocalFolder) -> None:
    held_for(folder, -0.001)
    with maintenance(folder, "compact") as lease:
        lease.check()


def test_a_time_that_lies_too_far_ahead_was_a_wrong_clock(folder: LocalFolder) -> None:
    held_for(folder, 10**6)
    with maintenance(folder, "compact") as lease:
        lease.check()


def test_a_damaged_lease_is_nobodys(folder: LocalFolder) -> None:
    folder.write(FILE, b"{")
    with maintenance(folder, "compact"):
        assert read(folder)[0].task == "compact"


def test_a_paused_holder_finds_out_that_it_was_followed(folder: LocalFolder) -> None:
    paused = Lease(folder, "a/1/x", "compact", term_s=0.05)
    assert paused.take(None)
    with maintenance(folder, "vacuum", wait_s=30):  # After the term.
        with pytest.raises(LakeError, match="took over"):
            paused.check()
        paused.give_back()
        assert read(folder)[0].task == "vacuum"


def test_a_long_work_keeps_its_lease(folder: LocalFolder) -> None:
    with maintenance(folder, "compact", term_s=0.06) as lease:
        first = read(folder)[0].until
        deadline = time.monotonic() + 10
        while read(folder)[0].until <= first + 60_000 and time.monotonic() < deadline:
            lease.check()
        assert read(folder)[0].until > first + 60_000
        with pytest.raises(LakeError), maintenance(folder, "vacuum"):
            raise AssertionError("entered")
