"""What shows that a submission was made for whoever judges it. Nothing of it is run.

A sign costs nothing by itself (an honest program may walk its own frames): it is told as component `tampering`, beside
a reward that the deed cannot have reached.
"""

from __future__ import annotations

from collections.abc import Iterable

from artifacts.store import ArtifactStore
from sandboxes.snapshot import list_files
from tasks.task import Submission, Task
from verifiers.signs import OF_FUNCTIONS, Signs, signs_in, takes_over


def paths_of(submission: Submission, artifacts: ArtifactStore) -> list[str]:
    """Of the files that were handed in."""
    if submission.workspace is None:
        return []
    return [file.path for file in list_files(artifacts, submission.workspace)]


def seen_in(source: bytes, seed: bytes, paths: Iterable[str], task: Task, signs: Signs = OF_FUNCTIONS) -> list[str]:
    """All signs of a submission that is one source, among other files."""
    usual = signs_in(seed, signs)
    return [*(sign for sign in signs_in(source, signs) if sign not in usual),
            *(f"takes test runs over: {path}" for path in sorted(paths)
              if path not in task.files and takes_over(path))]
