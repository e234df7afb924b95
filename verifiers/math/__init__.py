"""Verdicts on answers to mathematical problems."""

from verifiers.math.verifier import MODULES, MathVerifier

__all__ = ["MODULES", "MathVerifier"]
