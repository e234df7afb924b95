"""Dagster's own log lines go to `dagster/headrace.log` in the home, not to the terminal."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

import logging
from functools import cache
from logging.handlers import RotatingFileHandler

import dagster as dg

LOG_FILE = "headrace.log"
_LARGEST_BYTES = 4 << 20


@cache
def _handler(path: str) -> logging.Handler:
    """One open file for each path, however many runs write to it."""
    handler = RotatingFileHandler(path, maxBytes=_LARGEST_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    return handler


@dg.logger({"path": str}, description="Appends to a file.")
def file_logger(context: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("headrace.dagster", logging.DEBUG)
    logger.addHandler(_handler(context.logger_config["path"]))
    return logger


def close_logs(path: str) -> None:
    _handler(path).close()
    _handler.cache_clear()
