"""Verdicts on the state that an episode left: probes as data, or the test script of a Harbor task."""

from verifiers.terminal.verifier import MODULES, TerminalVerifier

__all__ = ["MODULES", "TerminalVerifier"]
