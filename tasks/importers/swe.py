"""SWE-style rows (SWE-bench, SWE-smith): a repository, a change, and the tests that tell whether it was made.

The repository lies beside the file of rows, as a git bundle or a folder: `owner__name.bundle`, `owner__name/` or
`name/` for `owner/name`; a key `repository` names another place. Of its history only the tree of `base_commit` is
taken, so nothing later can be found by a policy; a folder without `.git` is taken as it is.

`patch` is the solution where the row has `test_patch`; without one (SWE-smith) it is what makes the bug, and its
reverse the solution. Tests are the files that FAIL_TO_PASS and PASS_TO_PASS name, after `test_patch`, with all files of
their folders and the conftests above them. The policy never sees what `test_patch` brings.
"""

from __future__ import annotations

import json
import posixpath
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from tasks.importers.reading import rows, text_of
from tasks.scripts import PROTOCOL, TOOLS, done, run, write_file
from tasks.task import Task

SET = "swe"
HINT = ("each line is a JSON object with instance_id, repo, patch, FAIL_TO_PASS and PASS_TO_PASS; the repository lies "
        "beside the file as owner__name.bundle or owner__name/")
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", "-c", "safe.directory=*")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_TERMINAL_PROMPT": "0", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
Files = dict[str, bytes]


def load(path: str | Path) -> list[Task]:
    """All tasks of the file. The first row that is broken, or whose patch does not apply, stops the import."""
    path = Path(path)
    tasks: dict[str, Task] = {}
    for where, row in rows(path, HINT):
        task = _task(row, path.parent, where)
        if task.task_id in tasks:
            raise TaskError("a task id stands there twice", where=f"{where} $.instance_id", value=task.task_id,
                            hint=HINT)
        tasks[task.task_id] = task
    if not tasks:
        raise TaskError("the file holds no tasks", where=str(path), hint=HINT)
    return list(tasks.values())


def _task(row: dict[str, Any], folder: Path, where: str) -> Task:
    patch = text_of(row, "patch", where, HINT)
    makes_bug = not row.get("test_patch")
    tree = _tree(_place(row, folder, where), row.get("base_commit"), where)
    patched = _patched(tree, patch, f"{where} $.patch")
    seed, solved = (patched, tree) if makes_bug else (tree, patched)
    tested = solved if makes_bug else _patched(solved, text_of(row, "test_patch", where, HINT), f"{where} $.test_patch")
    expected = {key: _ids(row, key, where) for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    if not expected["FAIL_TO_PASS"]:
        raise TaskError("no test is expected to pass", where=f"{where} $.FAIL_TO_PASS", hint=HINT)
    files = _test_files(tested, [name for names in expected.values() for name in names], where)
    return Task(
        task_id=text_of(row, "instance_id", where, HINT), kind="coding", set=SET, tools=TOOLS, files=seed,
        prompt=f"{_statement(row)}\n\nThe repository is the workspace: change it so that this holds.\n\n{PROTOCOL}",
        hidden={"repository": {
            "files": files, "fail_to_pass": expected["FAIL_TO_PASS"], "pass_to_pass": expected["PASS_TO_PASS"],
            "paths": [".", "src"] if any(name.startswith("src/") for name in seed) else ["."]}},
        reference=[*_turns(seed, solved), done("changed")])


def _statement(row: Mapping[str, Any]) -> str:
    text = row.get("problem_statement")
    return text if isinstance(text, str) and text.strip() else "Tests of this repository fail. Find the fault, mend it."


def _ids(row: Mapping[str, Any], key: str, where: str) -> list[str]:
    """A list of test ids, or a text that is one in JSON. Ids are taken as they are, blanks and brackets included."""
    ids = row.get(key, [])
    if isinstance(ids, str):
        try:
            ids = json.loads(ids)
        except ValueError:
            ids = None
    if not isinstance(ids, list) or not all(isinstance(name, str) and ".py::" in name for name in ids):
        raise TaskError("not a list of pytest's test ids", where=f"{where} $.{key}", value=row.get(key),
                        hint="an id is path/to/test_file.py::test_name")
    return ids


def _place(row: dict[str, Any], folder: Path, where: str) -> Path:
    repo = text_of(row, "repo", where, HINT)
    name = repo.replace("/", "__")
    named = row.get("repository")
    tried = [named] if isinstance(named, str) and named else [f"{name}.bundle", name, repo.rpartition("/")[2]]
    for place in tried:
        if (folder / place).exists():
            return folder / place
    raise TaskError("the repository is not beside the rows", where=f"{where} $.repo", value=repo,
                    hint=f"put it there as one of: {', '.join(tried)}")


def _tree(place: Path, commit: Any, where: str) -> Files:
    """The files of one commit."""
    if place.is_dir() and not (place / ".git").exists():
        return _read(place)
    if not isinstance(commit, str) or not commit.strip() or commit.startswith("-"):
        raise TaskError("a repository with history needs the commit to start from", where=f"{where} $.base_commit",
                        value=commit, hint=HINT)
    with tempfile.TemporaryDirectory(prefix="headrace-swe-") as made:
        _git(["clone", "-q", "--no-checkout", "--no-hardlinks", str(place.resolve()), "all"], made, f"{where} $.repo")
        _git(["--work-tree", "../tree", "checkout", "-q", commit, "--", "."], f"{made}/all", f"{where} $.base_commit",
             folder=f"{made}/tree")
        return _read(Path(made) / "tree")


def _read(folder: Path) -> Files:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and ".git" not in path.relative_to(folder).parts}


def _patched(files: Files, patch: str, where: str) -> Files:
    with tempfile.TemporaryDirectory(prefix="headrace-swe-") as made:
        for name, data in files.items():
            path = Path(made) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        text = patch if patch.endswith("\n") else patch + "\n"
        _git(["apply", "--whitespace=nowarn", "-"], made, where, text.encode())
        return _read(Path(made))


def _git(words: list[str], cwd: str, where: str, stdin: bytes = b"", folder: str = "") -> None:
    if folder:
        Path(folder).mkdir()
    ran = subprocess.run([*_GIT, *words], cwd=cwd, input=stdin, capture_output=True, check=False,
                         env={**_ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(Path(cwd).parent)})
    if ran.returncode != 0:
        raise TaskError(f"git {words[0]} failed ({ran.stderr.decode(errors='replace').strip()[-300:]})", where=where,
                        hint="patches are unified diffs against base_commit" if stdin else HINT)


def _test_files(tree: Files, ids: list[str], where: str) -> Files:
    folders, above, names = set(), {""}, set()
    for test in ids:
        name = test.partition("::")[0]
        if name not in tree:
            raise TaskError("the file of an expected test is not in the repository", where=where, value=test, hint=HINT)
        names.add(name)
        folder = posixpath.dirname(name)
        folders.add(folder)
        while folder:
            folder = posixpath.dirname(folder)
            above.add(folder)
    return {name: data for name, data in tree.items()
            if name in names or any(folder and name.startswith(folder + "/") for folder in folders)
            or (posixpath.basename(name) == "conftest.py" and posixpath.dirname(name) in above | folders)}


def _turns(seed: Files, solved: Files) -> list[str]:
    """The solution as turns. Raises nothing: a file that is no text is left out, and the check of tasks tells."""
    turns = [write_file(name, data.decode()) for name, data in solved.items()
             if seed.get(name) != data and _is_text(data)]
    gone = [name for name in seed if name not in solved]
    return turns + [run("rm -- '" + name.replace("'", "'\\''") + "'") for name in gone]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
