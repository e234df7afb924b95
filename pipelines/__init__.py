"""Thin Dagster definitions over plain functions: assets, blocking checks, one sensor, and the way to run them here.

Dagster is never in the path of an event: it seals batches from snapshots of the lake and shows what they hold.
"""
