"""The SQL engine: one in-memory DuckDB for each process, locked down before it sees a query.

It reads files of the lake and no others, loads no extension, looks at no Python variable, and runs a single SELECT
(or EXPLAIN of one), so a query changes nothing. Each query has its own cursor with views of its own snapshot.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.folder import Folder
from lake.place import attach, sql_folder
from schemas.errors import LakeError, QueryError

if TYPE_CHECKING:
    import duckdb

Parameters = Mapping[str, Any] | Sequence[Any] | None
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)
DOCTOR = "`headrace lake doctor` and `headrace lake verify` say which file and what to do"
_READS = re.compile(r"\s*(select|from|with|pivot|unpivot|values)\b", re.IGNORECASE)
_SHOW_TABLES = re.compile(r"show\s+(all\s+)?tables\s*;?\s*\Z", re.IGNORECASE)
_RAISED = re.compile(r"\w+Error: ")
_COMMENTS = re.compile(r"\A(\s+|--[^\n]*(\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_DAMAGED = re.compile(r"""file ["'][^"']+\.parquet["']|magic bytes|parquet read for column""", re.IGNORECASE)
"""What the engine says of a data file whose bytes are not what was written."""
_WORDS_OF_USERS = ("ParserException", "BinderException", "CatalogException", "ConversionException",
                   "PermissionException")
_BAD_QUERY = ("ParserException", "SyntaxException", "BinderException", "CatalogException", "ConversionException",
              "InvalidInputException", "InvalidTypeException", "OutOfRangeException", "TypeMismatchException",
              "NotImplementedException", "PermissionException", "ConstraintException", "DependencyException")


class VanishedError(Exception):
    """A file that the snapshot names is gone: maintenance removed it. Read a newer snapshot."""


class Engine:
    """Opens on first use. Thread-safe: every query has a cursor of its own."""

    def __init__(self, root: Folder, memory_mb: int, spill: Path) -> None:
        self._root, self._memory_mb, self._spill = root, memory_mb, spill
        self._database: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def open(self, views: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """A cursor on which the views stand. Raises VanishedError."""
        import duckdb

        cursor = self._open_database().cursor()
        try:
            for view in views:
                cursor.execute(view)
        except duckdb.Error as wrong:
            if _vanished(wrong):
                raise VanishedError(_message(wrong)) from None
            raise LakeError(f"a view cannot be made: {_message(wrong)}", where=self._root.url, hint=DOCTOR) from None
        return cursor

    def _open_database(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        with self._lock:
            if self._database is None:
                self._database = duckdb.connect(":memory:", config={
                    "memory_limit": f"{self._memory_mb}MB", "temp_directory": str(self._spill),
                    "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
                    "python_enable_replacements": "false"})
                attach(self._database, self._root)
                folder = sql_folder(self._root.url).replace("'", "''")
                for statement in ("SET GLOBAL TimeZone='UTC'", "SET GLOBAL parquet_metadata_cache=true",
                                  f"SET GLOBAL allowed_directories=['{folder}/']",
                                  "SET GLOBAL enable_external_access=false", "SET GLOBAL lock_configuration=true"):
                    self._database.execute(statement)
            return self._database


def read_only(query: str, names: Sequence[str]) -> str:
    """The query to run, if it is a single one that only reads. Raises QueryError."""
    statements = _statements(query, names)
    if len(statements) != 1:
        raise QueryError("one query at a time" if statements else "there is no query", value=query,
                         hint="give a single SELECT")
    kind = statements[0].type.name
    text = query[_COMMENTS.match(query).end():]  # type: ignore[union-attr]
    if kind == "EXPLAIN" and (match := _EXPLAIN.match(text)):
        return match.group() + read_only(text[match.end():], names)
    if kind != "SELECT" and not (kind == "MULTI" and _READS.match(text)):
        raise QueryError("the lake is read-only", where=kind.lower().replace("_", " "), value=query,
                         hint="SELECT, EXPLAIN, DESCRIBE, SUMMARIZE, SHOW TABLES and PIVOT are understood")
    return _tables_query(names) if _SHOW_TABLES.match(text) else query


def _tables_query(names: Sequence[str]) -> str:
    """Public names only: not the relations that the views stand on."""
    return f"select unnest([{', '.join(repr(name) for name in sorted(names))}]) as name"


def _statements(query: str, names: Sequence[str]) -> list[Any]:
    import duckdb

    try:
        return list(duckdb.extract_statements(query))
    except duckdb.Error as wrong:
        raise user_error(wrong, query, names) from None


def run(cursor: duckdb.DuckDBPyConnection, query: str, parameters: Parameters) -> duckdb.DuckDBPyRelation:
    """The relation of a checked query. Raises duckdb errors: translate them with `user_error`."""
    relation = cursor.sql(query, params=parameters or None)
    assert relation is not None
    return relation


def user_error(wrong: Exception, query: str, names: Sequence[str]) -> QueryError | LakeError | VanishedError:
    """What a DuckDB error means to who wrote the query."""
    kind, message = type(wrong).__name__, _message(wrong)
    if _vanished(wrong):
        return VanishedError(message)
    if kind == "OutOfMemoryException":
        return QueryError("the query needs more memory than it may use", value=query,
                          hint="raise `lake.memory_mb`, or select fewer columns (token and data columns are large)")
    if kind not in _WORDS_OF_USERS and _DAMAGED.search(message):
        return LakeError(f"a file of the lake is damaged: {message}", hint=DOCTOR)
    if kind in _BAD_QUERY:
        return QueryError(message, value=" ".join(query.split()), hint=_hint(str(wrong), query, names))
    return LakeError(f"query failed: {message}", value=" ".join(query.split()), hint=DOCTOR)


def _vanished(wrong: Exception) -> bool:
    return type(wrong).__name__ == "IOException" or _message(wrong).startswith("FileNotFoundError")


def _message(wrong: Exception) -> str:
    """In one line. What our own file system raised comes with a traceback."""
    lines = str(wrong).split("\n")
    raised = [line for line in lines if _RAISED.match(line)] if lines[0].startswith("Traceback") else []
    return (raised or lines)[-1 if raised else 0].strip()


def _hint(text: str, query: str, names: Sequence[str]) -> str:
    if missing := re.search(r"Table with name (\S+) does not exist", text):
        close = difflib.get_close_matches(missing.group(1).lower(), names, n=1)
        near = f"did you mean `{close[0]}`? " if close else ""
        return f"{near}tables: {', '.join(names)}"
    if candidates := re.search(r'Candidate (?:bindings|functions): ?(.*)', text):
        columns = candidates.group(1).replace('"', "").strip()
        return f"near columns: {columns}" if columns else "`describe TABLE` lists columns"
    if re.search(r"\boffset\b", query, re.IGNORECASE) and "syntax error" in text:
        return 'the column `offset` is a keyword too: write "offset"'
    if "syntax error" in text:
        return f"tables: {', '.join(names)}"
    return "`describe TABLE` lists columns"
