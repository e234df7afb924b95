"""Verdicts on submissions: the Verifier contract, its registry, one module per domain."""
