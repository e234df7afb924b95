"""Whatever a workspace was made into, it can be removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxes.reaper import remove_tree
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.errors import SandboxError

# Deeper than Python's stack, and a path longer than any that the kernel takes.
DEEP = "import os\nfor _ in range(1500):\n os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('f', 'w').write('x')"


def test_folders_in_one_another_without_end(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec(files={"a": b"a"}))
    assert sandbox.exec(["python3", "-c", DEEP]).exit_code == 0
    with pytest.raises(SandboxError) as caught:
        sandbox.snapshot()
    assert caught.value.kind == "snapshot_limit"
    sandbox.close()
    backend.close()
    assert not [path for path in backend.root.rglob("*") if path.name != "lease"]  # type: ignore[attr-defined]


def test_folders_that_may_not_be_entered_and_links_out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(0o700)
    (tmp_path / "out" / "kept").write_text("kept")
    top = tmp_path / "top"
    (top / "shut" / "in" / "inner").mkdir(parents=True)
    (top / "shut" / "in" / "f").write_text("x")
    (top / "shut" / "out").symlink_to(tmp_path / "out")
    (top / "fifo").mkdir()
    os.mkfifo(top / "fifo" / "pipe")
    for path, mode in ((top / "shut" / "in", 0), (top / "shut", 0o500), (top, 0)):
        path.chmod(mode)
    remove_tree(top)
    assert not top.exists() and (tmp_path / "out" / "kept").read_text() == "kept"
    (tmp_path / "link").symlink_to(tmp_path / "out")
    remove_tree(tmp_path / "link")
    assert (tmp_path / "out" / "kept").exists()
