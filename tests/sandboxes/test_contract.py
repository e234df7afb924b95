"""The Sandbox contract, over every backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes.sandbox import Backend, Limits, Sandbox, SandboxSpec
from schemas.errors import SandboxError

Claims = Callable[[str], None]


def shell(sandbox: Sandbox, text: str, **options: object) -> bytes:
    result = sandbox.exec(["sh", "-c", text], **options)  # type: ignore[arg-type]
    assert result.exit_code == 0, result
    return result.stdout


def test_exit_code_and_both_streams(sandbox: Sandbox) -> None:
    result = sandbox.exec(["sh", "-c", "printf out; printf err >&2; exit 3"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out", b"err")
    assert (result.stdout_bytes, result.stderr_bytes, result.truncated) == (3, 3, False)
    assert not (result.timed_out or result.oom or result.output_limit)
    assert result.duration_s > 0


def test_end_by_signal_is_128_and_the_signal(sandbox: Sandbox) -> None:
    assert sandbox.exec(["sh", "-c", "kill -TERM $$"]).exit_code == 128 + 15


def test_unknown_command_is_127_and_unrunnable_126(sandbox: Sandbox) -> None:
    missing = sandbox.exec(["no-such-command"])
    assert (missing.exit_code, missing.stderr) == (127, b"no-such-command: command not found\n")
    plain = sandbox.exec(["./data.txt"])
    assert (plain.exit_code, plain.stderr) == (126, b"./data.txt: permission denied\n")


def test_output_is_bytes(sandbox: Sandbox) -> None:
    assert sandbox.exec(["printf", r"\377\376\000caf\351\n"]).stdout == b"\xff\xfe\x00caf\xe9\n"


def test_arguments_arrive_as_they_are(sandbox: Sandbox) -> None:
    every_byte = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    for word in (every_byte, "", "a b", "'", '"', "$HOME `id` $(id)", "\\", "line\nbreak\n", "-n", "*", "~", "é"):
        result = sandbox.exec(["printf", "%s", word])
        assert result.stdout == word.encode("utf-8", "surrogateescape"), word
    assert sandbox.exec(["printf", "%s", "x" * 100_000]).stdout_bytes == 100_000


def test_what_cannot_be_run_at_all_is_a_result_too(sandbox: Sandbox) -> None:
    nul = sandbox.exec(["printf", "a\0b"])
    assert nul.exit_code == 126 and b"NUL" in nul.stderr
    assert sandbox.exec(["true"], environment={"A": "\0"}).exit_code == 126
    assert sandbox.exec([]).exit_code == sandbox.exec([""]).exit_code == 127
    long = sandbox.exec(["printf", "%s", "x" * 200_000])
    assert long.exit_code == 126 and b"Argument list too long" in long.stderr
    assert sandbox.exec(["true"]).exit_code == 0


def test_stdin_is_given_and_ends(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 5000
    result = sandbox.exec(["sh", "-c", "cat | wc -c; cat | wc -c"], stdin=data)
    assert result.stdout.split() == [b"1280000", b"0"]
    assert sandbox.exec(["cat"], stdin=b"\x00short").stdout == b"\x00short"
    assert sandbox.exec(["cat"]).stdout == b""


def test_environment_is_fixed_and_extended_for_one_command(sandbox: Sandbox) -> None:
    given = {"COLOUR": "blue 'n' \"green\"\n", "odd-name": "x"}
    listed = sandbox.exec(["env"], environment=given).stdout
    assert b"COLOUR=blue 'n' \"green\"\n" in listed and b"odd-name=x" in listed
    assert b"TZ=UTC" in listed and b"LANG=C.UTF-8" in listed
    assert b"COLOUR" not in sandbox.exec(["env"]).stdout
    assert b"PYTEST_CURRENT_TEST" not in listed


def test_environment_of_the_spec_is_in_every_command(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec(environment={"TASK": "a b'c"}))
    assert shell(sandbox, 'printf %s "$TASK"') == b"a b'c"
    assert shell(sandbox, 'printf %s "$TASK"') == b"a b'c"
    sandbox.close()


def test_working_directory_and_exports_do_not_carry_over(sandbox: Sandbox) -> None:
    assert shell(sandbox, "cd folder; export A=1; cat inner.txt") == b"inner"
    assert shell(sandbox, "cat data.txt; printf %s \"$A\"") == b"hello\n"
    assert sandbox.exec(["cat", "inner.txt"], cwd="folder").stdout == b"inner"
    assert b"OLDPWD" not in sandbox.exec(["env"], cwd="folder").stdout
    nowhere = sandbox.exec(["true"], cwd="nowhere")
    assert nowhere.exit_code == 126 and nowhere.stderr.endswith(b"nowhere: no such folder\n")


def test_time_and_language_do_not_depend_on_the_host(sandbox: Sandbox) -> None:
    assert shell(sandbox, "date +%Z").strip() == b"UTC"
    assert shell(sandbox, "locale | grep ^LC_CTYPE").strip() in (b'LC_CTYPE="C.UTF-8"', b"LC_CTYPE=C.UTF-8")


def test_python_is_there(sandbox: Sandbox) -> None:
    out = shell(sandbox, "python3 -c 'import sys, json, zlib; print(sys.version_info[:2])'")
    assert out == b"(3, 11)\n"


def test_deadline_keeps_partial_output_and_files(sandbox: Sandbox) -> None:
    started = time.monotonic()
    text = "echo some; echo kept > kept; echo more >&2; sleep 60; echo never"
    result = sandbox.exec(["sh", "-c", text], deadline_s=0.5)
    assert time.monotonic() - started < 10
    assert result.timed_out and result.exit_code is None
    assert (result.stdout, result.stderr) == (b"some\n", b"more\n")
    assert shell(sandbox, "cat kept") == b"kept\n"


def test_output_is_kept_head_and_tail_with_true_counts(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec(limits=Limits(output_kb=4)))
    result = sandbox.exec(["sh", "-c", "seq 1 100000; echo warning >&2"])
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert result.exit_code == 0 and result.truncated and result.stdout_bytes == len(whole)
    assert result.stdout == whole[:2048] + whole[-2048:]
    assert (result.stderr, result.stderr_bytes) == (b"warning\n", 8)
    exact = sandbox.exec(["head", "-c", "4096", "/dev/zero"])
    assert (exact.stdout_bytes, exact.truncated, exact.stdout) == (4096, False, bytes(4096))
    sandbox.close()


def test_endless_output_is_killed(sandbox: Sandbox) -> None:
    result = sandbox.exec(["yes"], deadline_s=60)
    assert result.output_limit and result.exit_code is None and not result.timed_out
    assert result.stdout_bytes > 64 << 20 and len(result.stdout) == 256 << 10
    assert shell(sandbox, "echo next") == b"next\n"


def test_read_and_write(sandbox: Sandbox) -> None:
    assert sandbox.read("data.txt") == b"hello\n"
    sandbox.write("new/deep/file.bin", bytes(range(256)) * 100)
    assert sandbox.read("new/deep/file.bin") == bytes(range(256)) * 100
    assert shell(sandbox, "wc -c < new/deep/file.bin; echo more >> new/deep/file.bin").strip() == b"25600"
    assert sandbox.read("new/deep/file.bin").endswith(b"more\n")
    sandbox.write("data.txt", b"short")
    assert shell(sandbox, "cat data.txt") == b"short"
    assert shell(sandbox, "rm -r new; ls") == b"data.txt\nfolder\n"


def test_read_says_what_is_wrong(sandbox: Sandbox) -> None:
    with pytest.raises(FileNotFoundError):
        sandbox.read("absent")
    with pytest.raises(FileNotFoundError):
        sandbox.read("absent/too")
    with pytest.raises(IsADirectoryError):
        sandbox.read("folder")
    with pytest.raises(OSError, match="over the limit of 3"):
        sandbox.read("data.txt", limit_bytes=3)
    shell(sandbox, "mkfifo pipe")
    with pytest.raises(PermissionError, match="regular"):
        sandbox.read("pipe")


def test_links_are_followed_inside_and_never_out(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    shell(sandbox, f"ln -s data.txt inside; ln -s folder to-folder; ln -s ../data.txt folder/up; ln -s {secret} out;"
                   " ln -s /etc etc; ln -s ../../../../../../../etc/passwd climb; ln -s loop loop; ln -s .. parent")
    assert sandbox.read("inside") == b"hello\n"
    assert sandbox.read("to-folder/inner.txt") == b"inner"
    assert sandbox.read("folder/up") == b"hello\n"
    assert sandbox.read("folder/../data.txt") == b"hello\n"
    for path in ("out", "etc/passwd", "climb", "parent/x", "../x", str(secret), "/etc/passwd"):
        with pytest.raises(PermissionError, match="out of the workspace"):
            sandbox.read(path)
        with pytest.raises(PermissionError, match="out of the workspace"):
            sandbox.write(path, b"overwritten")
    with pytest.raises(OSError, match="too many links"):
        sandbox.read("loop")
    assert secret.read_text() == "of the host"


def test_readonly_mounts(backend: Backend, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir(mode=0o700)  # as a careful umask leaves it
    (tools / "greet").write_text("#!/bin/sh\necho hello \"$1\"\n")
    (tools / "greet").chmod(0o700)
    (tools / "data").write_text("42")
    (tools / "data").chmod(0o600)
    sandbox = backend.acquire(SandboxSpec(readonly={"/tools": tools, "/hidden/data": tools / "data"}))
    assert sandbox.exec(["/tools/greet", "you"]).stdout == b"hello you\n"
    assert sandbox.exec(["cat", "/tools/data", "/hidden/data"]).stdout == b"4242"
    sandbox.close()
    assert (tools / "data").read_text() == "42"


def test_what_cannot_be_started_says_so(backend: Backend, tmp_path: Path) -> None:
    for spec in (SandboxSpec(readonly={"/tools": tmp_path / "absent"}), SandboxSpec(files={"../x": b""}),
                 SandboxSpec(files={"/abs": b""})):
        with pytest.raises(SandboxError) as caught:
            backend.acquire(spec)
        assert caught.value.kind == "sandbox_start"


def test_a_closed_sandbox_is_closed(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec())
    sandbox.close()
    sandbox.close()
    for use in (lambda: sandbox.read("x"), lambda: sandbox.exec(["true"]), sandbox.snapshot):
        with pytest.raises(SandboxError, match="closed"):
            use()


def test_background_processes_do_not_outlive_their_command(sandbox: Sandbox) -> None:
    shell(sandbox, "(while :; do echo x >> ticks; sleep 0.01; done) & sleep 0.1")
    seen = sandbox.read("ticks")
    shell(sandbox, "sleep 0.1")
    assert sandbox.read("ticks") == seen


def test_a_file_may_not_grow_over_its_limit(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec(limits=Limits(file_mb=1)))
    result = sandbox.exec(["sh", "-c", "head -c 3000000 /dev/zero > big"])
    assert result.exit_code != 0
    assert len(sandbox.read("big")) == 1 << 20
    sandbox.close()


def test_processor_time_is_limited(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec(limits=Limits(cpu_seconds=1)))
    result = sandbox.exec(["sh", "-c", "while :; do :; done"], deadline_s=60)
    assert result.exit_code in (128 + 9, 128 + 24) and not result.timed_out
    sandbox.close()
