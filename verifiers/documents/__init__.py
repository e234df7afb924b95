"""Verdicts on answers about documents."""

from verifiers.documents.verifier import MODULES, DocumentsVerifier

__all__ = ["MODULES", "DocumentsVerifier"]
