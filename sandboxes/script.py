"""What is said to the agent: the `sh` that is process 1 of a sandbox and runs one command after the other.

The agent reads its script from descriptor 0 (a socket) and answers there; output of commands goes through pipes of its
own (3 and 4), so no output can pass for a result. It is process 1, so no command can signal it, and its binary is not
readable, so no command can trace it or open its descriptors. After each command it kills and reaps whatever is left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from sandboxes.sandbox import ExecResult, Limits
from sandboxes.workspace import INSIDE

READY = b"ready\n"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_EXIT_CODE = re.compile(rb"[0-9]{1,3}\n\Z")
_PLAIN = re.compile(rb"[A-Za-z0-9_@%+:,./-]+\Z")
# Nothing but process 1 is left when `kill` finds nobody; the subshell makes it reap the dead.
_SWEEP = b"while kill -9 -1;do (:);done;"
_CLOSE = b"3>&- 4>&- 5>&-"
SESSIONS = {"shell": 8, "python": 9}
"""Descriptors of the agent that sessions talk through."""
_CLOSE_SESSIONS = b" 8>&- 9>&-"
ENDED = b"\0\0\0"
"""Stands before the exit code of a session's process; no other answer holds it."""
_ENDED_ESCAPED = ENDED.replace(b"\0", b"\\0")
_NOT_FOUND = b"printf '%%s: command not found\\n' %s>&2;exit 127;};"


def quote(text: str | bytes) -> bytes:
    """One shell word. It must not hold a NUL byte: see `refusal`."""
    raw = os.fsencode(text)
    if _PLAIN.match(raw):
        return raw
    return b"'" + raw.replace(b"'", b"'\\''") + b"'"


def refusal(argv: Sequence[str], cwd: str, environment: Mapping[str, str]) -> ExecResult | None:
    """The result of what no system could run. It is the caller's command that is wrong, not the sandbox."""
    if not argv or not argv[0]:
        return refused(127, "no command was given\n")
    if any("\0" in word for word in (*argv, cwd, *environment, *environment.values())):
        return refused(126, f"{argv[0]}: an argument cannot hold a NUL byte\n".replace("\0", "?"))
    return None


def session_refusal(kind: str, text: str) -> ExecResult | None:
    return refused(126, "a shell command cannot hold a NUL byte\n") if kind == "shell" and "\0" in text else None


def refused(code: int, message: str) -> ExecResult:
    raw = message.encode(errors="surrogateescape")
    return ExecResult(exit_code=code, stderr=raw, stderr_bytes=len(raw))


def exit_code(line: bytes, number: int | None = None) -> int | None:
    """What a line says that a session's process wrote about the call of that number; null if none did."""
    if number is not None:
        said, _, line = line.partition(b" ")
        if said != b"%d" % number:
            return None
    return int(line) if _EXIT_CODE.match(line) and int(line) < 256 else None


def is_name(text: str) -> bool:
    """Whether a shell can hold a variable of this name."""
    return bool(_NAME.match(text))


def prologue(limits: Limits, environment: Mapping[str, str], rlimits: bool) -> bytes:
    """What a new agent runs first: resource limits, the environment of all commands, then `ready`.

    `rlimits`: memory and processes too, where no cgroup limits them.
    """
    lines = [b"ulimit -c 0", b"ulimit -n 1024", b"ulimit -f %d" % (limits.file_mb * 2048)]
    if limits.cpu_seconds is not None:
        lines.append(b"ulimit -t %d" % limits.cpu_seconds)
    if rlimits:
        lines += [b"ulimit -v %d" % (limits.memory_mb * 1024),
                  b"ulimit -u %d 2>&- || ulimit -p %d" % (limits.pids, limits.pids)]
    lines += [b"export %s=%s" % (name.encode(), quote(value)) for name, value in environment.items()]
    return ready(INSIDE, b"\n".join(lines))


def ready(folder: str, said: bytes) -> bytes:
    """The end of a prologue: whatever else is to be done first, then `ready` from that folder."""
    # The agent may have been there before its workspace was.
    return said + b"\ncd " + quote(folder) + b"\nunset OLDPWD\nexec 2>/dev/null;echo ready >&0\n"


def command(argv: Sequence[str], cwd: str, environment: Mapping[str, str], has_stdin: bool,
            sweep: bool = True) -> bytes:
    """The line that runs one command and answers with its exit code; `sweep`: after killing all that is left.

    Like a shell's: 127 for a command that is not found, 126 for one that cannot be run, 128 + n after signal n.
    """
    words = [quote(word) for word in argv]
    program, name = words[0], words[0]
    body = []
    odd = []
    for key, value in environment.items():
        if is_name(key):
            body.append(b"export %s=%s;" % (key.encode(), quote(value)))
        else:
            odd.append(quote(f"{key}={value}"))
    if odd or argv[0].startswith("-"):
        words = [b"env", b"--", *odd, *words]
        program = b"env"
    if cwd:
        folder = quote(os.path.join(INSIDE, cwd))
        body.append(b"cd %s 2>/dev/null||{ printf '%%s: no such folder\\n' %s>&2;exit 126;};unset OLDPWD;"
                    % (folder, folder))
    if b"/" in program:
        body.append(b"[ -x %s -a ! -d %s ]||{ [ -e %s ]&&{ printf '%%s: permission denied\\n' %s>&2;exit 126;};%s"
                    % (program, program, program, name, _NOT_FOUND % name))
    else:
        body.append(b"command -v %s>/dev/null||{ %s" % (program, _NOT_FOUND % name))
    body.append(b"exec " + b" ".join(words))
    source = b"/proc/self/fd/5" if has_stdin else b"/dev/null"
    # In `eval` the shell's own messages do not count the lines of earlier commands.
    return b"".join((b"(eval ", quote(b"".join(body)), b") <", source, b" >/proc/self/fd/3 2>/proc/self/fd/4 ", _CLOSE,
                     _CLOSE_SESSIONS, b";s=$?;", _SWEEP if sweep else b"", b"echo $s >&0\n"))


def begin_shell() -> bytes:
    """Starts a shell that stays and reads calls from its stream; answers with its process id."""
    return _begin(b"shell", b"if command -v bash >/dev/null;then exec bash --noprofile --norc;else exec sh;fi")


def begin_python(loop: str) -> bytes:
    return _begin(b"python", b"exec python3 -c " + quote(loop))


def _begin(kind: bytes, program: bytes) -> bytes:
    number = b"%d" % SESSIONS[kind.decode()]
    other = b" ".join(b"%d>&-" % end for end in SESSIONS.values())
    # The outer subshell tells when the session's process has ended, whatever ended it.
    told = b"printf '" + _ENDED_ESCAPED + b"%s\\n' $? >&" + number
    return (b"((" + program + b") <&" + number + b" " + other + b" >/dev/null 2>&4;" + told + b")& echo $! >&0\n")


def alive(pid: int) -> bytes:
    """Asks whether a process is there: answers 0 if so."""
    return b"kill -0 %d;echo $? >&0\n" % pid


def shell_call(text: bytes, number: int) -> bytes:
    """Runs `text` in the shell of a session; answers with the call's number and exit code, the working directory and
    what is exported."""
    return (b"command eval " + quote(text) + b" </dev/null >/proc/self/fd/3 2>/proc/self/fd/4 " + _CLOSE
            + b";echo %d $? >&0;{ printf '%%s\\0' \"$PWD\";export -p;printf '\\0';} >&0\n" % number)
