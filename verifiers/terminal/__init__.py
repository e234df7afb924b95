"""Verdicts on the state that an episode left: probes as data, or the test script of a Harbor task."""
