"""Closed vocabularies. Values are part of the contract: they stand in events and tables."""

from __future__ import annotations

from enum import StrEnum


class Purpose(StrEnum):
    TRAIN = "train"
    EVAL = "eval"


class Termination(StrEnum):
    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    TOKEN_BUDGET = "token_budget"
    WALL_CLOCK = "wall_clock"
    CANCELLED = "cancelled"
    POLICY_ERROR = "policy_error"
    INFRA_FAILURE = "infra_failure"


class ToolStatus(StrEnum):
    OK = "ok"
    ERROR = "error"
    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    TIMEOUT = "timeout"
    OOM = "oom"
    OUTPUT_LIMIT = "output_limit"
    DENIED = "denied"
    SANDBOX_BROKEN = "sandbox_broken"
    OUTCOME_UNKNOWN = "outcome_unknown"


class ScoreStatus(StrEnum):
    OK = "ok"
    INFRA_FAILURE = "infra_failure"
    VERIFIER_ERROR = "verifier_error"


class Disposition(StrEnum):
    TRAINED = "trained"
    MASKED = "masked"
    STALE = "stale"
    SURPLUS = "surplus"
    FILTERED = "filtered"
    CANCELLED = "cancelled"
    INFRA_FAILED = "infra_failed"
    EVALUATED = "evaluated"
    UNSCORED = "unscored"
    PENDING = "pending"
