"""Frames and marks come in pieces of any size; neither output nor an answer ever depends on where they are cut."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxes import docker_script
from sandboxes.docker_session import Marked, Talk
from sandboxes.docker_wire import ERR, OUT, Wire
from sandboxes.output import Stream
from sandboxes.sandbox import Limits

BEGIN, END = b"\0\0<ab\0", b"\0\0>ab\0"
# Pieces of marks in the output are output.
PIECES = st.lists(st.sampled_from([b"a", b"\0", b"\0\0", b"\0\0<a", b"<ab\0", b"\0\0>ab\0", b"line\n"]), max_size=6)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@settings(deadline=None)
@given(frames=st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.binary(max_size=30)), max_size=8),
       places=st.lists(st.integers(0, 400), max_size=12))
def test_frames_are_put_together_wherever_they_are_cut(frames: list[tuple[int, bytes]], places: list[int]) -> None:
    ours, theirs = socket.socketpair()
    wire, got = Wire(ours), {OUT: b"", ERR: b""}

    def take(kind: int, data: bytes) -> None:
        got[kind] += data

    data = b"".join(struct.pack(">BxxxI", kind, len(text)) + text for kind, text in frames)
    sinks = {kind: lambda text, kind=kind: take(kind, text) for kind in got}
    for piece in cut(data, places):
        theirs.sendall(piece)
        wire.converse(b"", sinks, time.monotonic() + 10, lambda: "")
    theirs.close()
    assert wire.converse(b"", sinks, time.monotonic() + 10, lambda: None) == ""
    assert wire.ended
    assert got == {kind: b"".join(text for one, text in frames if one == kind) for kind in got}
    wire.close()


@settings(deadline=None)
@given(before=PIECES, answer=st.binary(max_size=20), after=PIECES, places=st.lists(st.integers(0, 200), max_size=12))
def test_an_answer_is_found_wherever_its_marks_are_cut(
        before: list[bytes], answer: bytes, after: list[bytes], places: list[int]) -> None:
    said, more = b"".join(before), b"".join(after)
    if BEGIN in said + BEGIN[:-1] or END in answer + END[:-1] or BEGIN in more:
        return
    marked, stream = Marked(BEGIN, END), Stream(-1, 4096)
    marked.expect(stream)
    for piece in cut(said + BEGIN + answer + END + more, places):
        marked.add(piece)
    assert marked.complete and (stream.kept, marked.answer) == (said, answer)
    late = Stream(-1, 4096)
    marked.expect(late)  # what came too early is the next call's
    marked.give_up()
    assert late.kept == more


def test_an_answer_is_there_when_both_streams_are() -> None:
    """The streams come each at its own pace: here the one with the answer long before the other."""
    ours, theirs = socket.socketpair()
    talk, size = Talk("shell", Limits(), b""), 100_000
    assert talk.begin("process", Wire(ours), time.monotonic() + 10) is None
    answer = talk.begins + b"1 0\n/workspace\0export A=1\n" + talk.ends
    for kind, text in ((OUT, answer), (ERR, bytes(size) + talk.begins)):
        theirs.sendall(struct.pack(">BxxxI", kind, len(text)) + text)
    said = talk.say("true", time.monotonic() + 10)
    assert (said.cause, said.code, said.stderr.count) == ("", 0, size)
    assert talk.state == b"cd -- /workspace 2>/dev/null\nexport A=1\n"
    talk.forget()
    theirs.close()


def test_a_line_that_is_never_read_is_only_late() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    assert wire.converse(bytes(8 << 20), {}, time.monotonic() + 0.2, lambda: None) == "timed_out"
    wire.close()
    theirs.close()


def test_what_is_sent_and_what_comes_do_not_wait_for_each_other() -> None:
    """More than any buffer holds, both ways at once."""
    size = 4 << 20
    ours, theirs = socket.socketpair()
    wire, got = Wire(ours), bytearray()

    def echo() -> None:
        left = size
        while left:
            data = theirs.recv(1 << 16)
            left -= len(data)
            theirs.sendall(struct.pack(">BxxxI", OUT, len(data)) + data)
        theirs.close()

    thread = threading.Thread(target=echo)
    thread.start()
    assert wire.converse(bytes(size), {OUT: got.extend}, time.monotonic() + 60, lambda: None) == ""
    thread.join()
    assert len(got) == size
    wire.close()


@pytest.mark.parametrize(("argv", "environment", "long"), [
    (["x" * 131_000], {}, False), (["x" * 131_072], {}, True), (["x", "\udcff" * 30_000], {}, True),
    (["x"] * 900_000, {}, False), (["x"] * 1_000_000, {}, True), (["x"], {"A": "y" * 131_072}, True)])
def test_what_the_kernel_would_refuse_for_its_length(argv: list[str], environment: dict[str, str], long: bool) -> None:
    line = docker_script.command(argv, "", environment, 0, Limits(), sweep=True)
    assert docker_script.is_too_long(line, environment) is long
