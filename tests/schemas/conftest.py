"""Property tests run the same examples on every machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headrace", max_examples=100, derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")
