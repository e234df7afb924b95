"""The one error tree. Each class is named by the boundary that was crossed; each carries a stable code.

    HeadraceError
    ├── UserError          a mistake of the user: one paragraph, exit code 2
    │   ├── ConfigError        settings, flags, environment
    │   ├── TaskError          a task file or spec
    │   ├── QueryError         SQL
    │   ├── NotFoundError      an id that nobody knows
    │   └── UnavailableError   a component that is missing or cannot be reached (broker, bubblewrap, extra)
    ├── SchemaError        bytes or fields that violate an event schema
    ├── LogError           the event log
    │   ├── LogDamagedError    the log's own bytes are not what was written
    │   └── LogRecreatedError  the log behind the address is not the one we knew
    ├── ArtifactError      the artifact store (missing, corrupt)
    │   └── ArtifactStorageError  the store cannot be read or written now, which may pass: try again, conclude nothing
    ├── LakeError          Delta tables
    │   └── CommitConflictError  another sink committed first: drop buffers, reload, seek
    ├── SandboxError       the sandbox broke (never the command in it)
    ├── VerifierError      a verifier failed to give a verdict
    ├── PolicyError        a policy failed to generate
    └── TrainingError      batches, the learner, weights

An episode's failure is data (a termination), not an exception; these are for what stops a room.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """What happened, where, the value, and a hint; `code` is stable across releases."""

    code = "error"
    exit_code = 1

    def __init__(self, what: str, *, where: str = "", value: object = None, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.value, self.hint = what, where, value, hint

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f" at {self.where}"
        if self.value is not None:
            shown = repr(self.value)
            text += f": {shown if len(shown) <= 300 else shown[:297] + '...'}"
        return text

    def paragraph(self) -> str:
        """The whole message as a user sees it: code, what, where, value, hint."""
        lines = f"error[{self.code}]: {self}"
        return f"{lines}\nhint: {self.hint}" if self.hint else lines


class UserError(HeadraceError):
    code = "user"
    exit_code = 2


class ConfigError(UserError):
    code = "config"


class TaskError(UserError):
    code = "task"


class QueryError(UserError):
    code = "query"


class NotFoundError(UserError):
    code = "not-found"


class UnavailableError(UserError):
    code = "unavailable"


class SchemaError(HeadraceError):
    code = "schema"
    exit_code = 2


class LogError(HeadraceError):
    code = "log"
    exit_code = 2


class LogDamagedError(LogError):
    code = "log-damaged"


class LogRecreatedError(LogError):
    code = "log-recreated"


class ArtifactError(HeadraceError):
    code = "artifact"
    exit_code = 2


class ArtifactStorageError(ArtifactError):
    code = "artifact-storage"


class LakeError(HeadraceError):
    code = "lake"
    exit_code = 2


class CommitConflictError(LakeError):
    code = "lake-conflict"


class SandboxError(HeadraceError):
    """`kind` is what `failure_kind` of an episode will say."""

    code = "sandbox"

    def __init__(self, what: str, *, kind: str = "sandbox_broken", **details: object) -> None:
        super().__init__(what, **details)  # type: ignore[arg-type]
        self.kind = kind


class VerifierError(HeadraceError):
    code = "verifier"


class PolicyError(HeadraceError):
    code = "policy"


class TrainingError(HeadraceError):
    code = "training"
