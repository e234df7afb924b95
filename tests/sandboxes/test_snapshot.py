"""Snapshots: equal workspaces have equal digests, and a snapshot restores to the workspace that it was taken of."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from artifacts.store import DirectoryStore
from sandboxes import manifest, snapshot
from sandboxes.capture import capture, store
from sandboxes.manifest import Entry, load
from sandboxes.sandbox import Backend, Sandbox, SandboxSpec
from schemas.errors import ArtifactError, SandboxError
from schemas.ids import digest
from tests.sandboxes.conftest import open_here

# A workspace with one of everything, made by a command.
EVERYTHING = r"""
mkdir -p empty deep/er 'sp ace' && chmod 0700 deep && chmod 0555 empty
printf small > small; head -c 4096 /dev/zero > inline; head -c 4097 /dev/zero > large; : > nothing
printf '#!/bin/sh\n' > run && chmod 0755 run && printf x > locked && chmod 0000 locked
ln -s small link; ln -s /nowhere/at/all dangling; ln -s "$(printf 'a\nb')" newline-target; ln small hard
printf n > "$(printf 'new\nline')"; printf u > "$(printf 'not-utf8-\377\376')"; printf d > deep/er/d
mkdir shut && printf s > shut/in && chmod 0000 shut
"""


def made(sandbox: Sandbox) -> str:
    assert sandbox.exec(["sh", "-c", EVERYTHING]).exit_code == 0
    return sandbox.snapshot()


def test_unchanged_workspace_has_the_digest_of_its_files(backend: Backend) -> None:
    files = {"a.txt": b"a", "b/c/d.bin": bytes(10_000), "b/e": b""}
    sandbox = backend.acquire(SandboxSpec(files=files))
    assert sandbox.snapshot() == sandbox.snapshot() == snapshot.snapshot_digest_of(files)
    sandbox.exec(["sh", "-c", "cat a.txt b/e; touch a.txt; echo x > new; rm new"])
    assert sandbox.snapshot() == snapshot.snapshot_digest_of(files)
    sandbox.close()


@pytest.mark.parametrize("change", [
    "printf b > a", "chmod 0600 a", "mv a b", "rm a", "mkdir d", "ln -s a l", "printf x >> a", "chmod 0700 .",
    "rm f/g; rmdir f; ln -s a f", "rm -r f; mkdir f"])
def test_every_change_changes_the_digest(backend: Backend, change: str) -> None:
    sandbox = backend.acquire(SandboxSpec(files={"a": b"a", "f/g": b"g"}))
    before = sandbox.snapshot()
    assert sandbox.exec(["sh", "-c", change]).exit_code == 0
    assert sandbox.snapshot() != before
    sandbox.close()


def test_round_trip_of_everything(backend: Backend) -> None:
    first = backend.acquire(SandboxSpec(files={"small": b"old"}))
    taken = made(first)
    second = backend.acquire(SandboxSpec(workspace=taken))
    assert second.snapshot() == taken
    look = r"find . -printf '%M %y %l %p\n' | sort; cat small inline large run link"
    listed = second.exec(["sh", "-c", look]).stdout
    assert listed == first.exec(["sh", "-c", look]).stdout and b"drwx------ d  ./deep\n" in listed
    assert second.read("new\nline") == b"n" and second.read(os.fsdecode(b"not-utf8-\xff\xfe")) == b"u"
    assert second.read("large") == bytes(4097) and second.read("hard") == b"small"
    second.exec(["sh", "-c", "printf more >> large"])
    assert second.snapshot() != taken
    first.close()
    second.close()


def test_digest_does_not_depend_on_the_backend(tmp_path: Path, artifacts: DirectoryStore) -> None:
    digests = set()
    for name in ("bubblewrap", "process"):
        backend = open_here(name, tmp_path / name, artifacts)
        sandbox = backend.acquire(SandboxSpec())
        digests.add(made(sandbox))
        sandbox.close()
        backend.close()
    assert len(digests) == 1


def test_a_used_sandbox_never_comes_back(backend: Backend) -> None:
    spec = SandboxSpec(files={"a": b"a", "f/g": b"g"})
    fresh = snapshot.snapshot_digest_of(spec.files)
    for _ in range(3):
        sandbox = backend.acquire(spec)
        assert sandbox.snapshot() == fresh
        dirty = sandbox.exec(["sh", "-c", "rm -r f; echo dirt > a; mkdir -p x/y; chmod 0 ."])
        assert dirty.exit_code == 0
        assert sandbox.snapshot() != fresh
        sandbox.close()


def test_files_are_laid_over_a_snapshot(backend: Backend, artifacts: DirectoryStore) -> None:
    base = snapshot.store_files({"kept": b"k", "replaced": b"old"}, artifacts)
    sandbox = backend.acquire(SandboxSpec(workspace=base, files={"replaced": b"new", "added/x": b"x"}))
    assert (sandbox.read("kept"), sandbox.read("replaced"), sandbox.read("added/x")) == (b"k", b"new", b"x")
    assert sandbox.snapshot() == snapshot.snapshot_digest_of({"kept": b"k", "replaced": b"new", "added/x": b"x"})
    sandbox.close()


def test_what_cannot_be_kept_is_left_out_and_reported(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec(files={"a": b"a"}))
    sandbox.exec(["sh", "-c", "mkfifo pipe; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\""])
    assert sandbox.snapshot() == snapshot.snapshot_digest_of({"a": b"a"})
    assert sorted(sandbox.skipped) == [b"pipe", b"sock"]  # type: ignore[attr-defined]
    sandbox.close()


def test_a_snapshot_follows_no_link_out(backend: Backend, tmp_path: Path, artifacts: DirectoryStore) -> None:
    (tmp_path / "secret").write_text("of the host")
    sandbox = backend.acquire(SandboxSpec())
    sandbox.exec(["ln", "-s", str(tmp_path), "way-out"])
    entries = snapshot.list_files(artifacts, sandbox.snapshot())
    assert [(entry.path, entry.kind) for entry in entries] == [("way-out", "l")]
    sandbox.close()


def test_too_deep_a_workspace_is_an_error_of_its_own(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec())
    deep = "import os\nfor _ in range(300):\n os.mkdir('d'); os.chdir('d')"
    assert sandbox.exec(["python3", "-c", deep]).exit_code == 0
    with pytest.raises(SandboxError) as caught:
        sandbox.snapshot()
    assert caught.value.kind == "snapshot_limit"
    sandbox.close()


def test_an_unknown_snapshot_is_an_artifact_error(backend: Backend) -> None:
    with pytest.raises(ArtifactError, match="missing"):
        backend.acquire(SandboxSpec(workspace=digest(b"never stored")))
    backend.acquire(SandboxSpec()).close()


def test_a_snapshot_is_read_without_a_sandbox(artifacts: DirectoryStore, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "answer.json").write_bytes(b"{}")
    (folder / "big").write_bytes(bytes(9000))
    for name, target in (("link", "in/answer.json"), ("in/up", "../big"), ("out", "/etc/passwd"), ("climb", "../../x"),
                         ("loop", "loop"), ("to-in", "in")):
        (folder / name).symlink_to(target)
    root = os.open(folder, os.O_RDONLY)
    taken = store(capture(root, artifacts), artifacts)
    os.close(root)
    assert snapshot.read_file(artifacts, taken, "link") == b"{}"
    for path in ("big", "to-in/up"):
        assert snapshot.read_file(artifacts, taken, path) == bytes(9000)
    for path in ("out", "climb", "loop", "absent", "big/x", "../x"):
        with pytest.raises(FileNotFoundError):
            snapshot.read_file(artifacts, taken, path)
    with pytest.raises(IsADirectoryError):
        snapshot.read_file(artifacts, taken, "in")
    with pytest.raises(OSError, match="limit"):
        snapshot.read_file(artifacts, taken, "big", limit_bytes=100)
    assert ("big", "f", 9000) in [(one.path, one.kind, one.size) for one in snapshot.list_files(artifacts, taken)]


@pytest.mark.parametrize("entries", [
    [Entry(b"", "d", 0o755), Entry(b"../evil", "f", 0o644, 1, b"x")],
    [Entry(b"", "d", 0o755), Entry(b"/evil", "f", 0o644, 1, b"x")],
    [Entry(b"", "d", 0o755), Entry(b"l", "l", 0o777, 4, b"/tmp"), Entry(b"l/evil", "f", 0o644, 1, b"x")],
    [Entry(b"", "d", 0o755), Entry(b"l", "d", 0o755), Entry(b"l", "l", 0o777, 4, b"/tmp"),
     Entry(b"l/evil", "f", 0o644, 1, b"x")],
    [Entry(b"", "d", 0o755), Entry(b"d/./x", "f", 0o644, 1, b"x")],
    [Entry(b"", "d", 0o755), Entry(b"x", "c", 0o644)],
    [Entry(b"x", "f", 0o644, 1, b"x")],
    [],
])
def test_a_forged_manifest_is_refused(entries: list[Entry], artifacts: DirectoryStore, backend: Backend) -> None:
    forged = artifacts.put(msgspec.msgpack.encode([manifest.FORMAT, entries])).digest
    with pytest.raises(SandboxError, match="manifest"):
        backend.acquire(SandboxSpec(workspace=forged))


def test_what_is_no_manifest_is_refused(artifacts: DirectoryStore) -> None:
    for data in (b"", b"\xc1", b"text", msgspec.msgpack.encode(["other", []])):
        with pytest.raises(SandboxError, match="manifest"):
            load(artifacts.put(data).digest, artifacts)


def test_the_form_of_a_manifest_never_changes(artifacts: DirectoryStore) -> None:
    """Digests are in logs: these bytes must be the same in every release."""
    assert snapshot.snapshot_digest_of({}) == EMPTY
    assert snapshot.snapshot_digest_of({"a/b": b"x", "c": bytes(5000)}) == SMALL


EMPTY = "sha256:32e0afc7eaba418dbe89518b2eb892404de4508678f72207d659d88ba340422d"
SMALL = "sha256:0a3bd26908efb46fee1b6d0361d4052cdb7f5a7d48c95df33d28091dbdaa2fd3"
