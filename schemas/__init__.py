"""What the rooms say to each other: events, admission, folds, Arrow tables, ids, settings, errors.

Imports nothing of ours. Everything that two rooms must agree on is defined here once.
"""
