"""What is said to shells in a container.

The keeper is root there with the right to kill and no other, and reads nothing but what its owner writes: no command
can stop it, speak for it or starve it, as it starts no process. Commands start by themselves, as an ordinary user;
none says anything before its owner has sent a line, so nothing is lost while the connection is handed over.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sandboxes import script
from sandboxes.sandbox import Limits

SHELL = "/bin/sh"
# Answers each line (`kill` or `count`, and a number) with itself, how many processes the memory limit has killed, and
# how often the limit of processes has refused one.
_KEEPER = """
cd /sys/fs/cgroup
memory=memory.events pids=pids.events
[ -r $memory ] || memory=memory/memory.oom_control pids=pids/pids.events
counted() { n=0; [ -r $1 ] && while read -r name count; do [ $name = $2 ] && n=$count; done < $1; }
while IFS= read -r line; do
case $line in kill*) while kill -9 -1; do :; done;; esac
counted $memory oom_kill; oom=$n
counted $pids max
echo "$line $oom $n"
done 2>/dev/null
"""
_LISTEN = "IFS= read -r __go||exit 1;"
# What a shell would say of a folder or a command that is not there.
_TOLD = """__told() { printf '%s: %s\\n' "$2" "$3" >&2; exit "$1"; }
"""
_ENTER = """if [ "$__folder" ]; then cd -- "$__folder" 2>/dev/null || __told 126 "$__folder" 'no such folder'; fi
unset OLDPWD
case $1 in
*/*) if [ ! -e "$1" ]; then __told 127 "$__name" 'command not found'
  elif [ -d "$1" -o ! -x "$1" ]; then __told 126 "$__name" 'permission denied'; fi;;
*) command -v "$1" >/dev/null || __told 127 "$__name" 'command not found';;
esac
unset __go __folder __name
exec "$@"
"""
_LONGEST_WORD, _LONGEST_COMMAND = 131071, 1_900_000
"""Bytes that the kernel takes as one argument, and about as all of them."""


def keeper() -> list[str]:
    return [SHELL, "-c", _KEEPER]


def command(argv: Sequence[str], folder: str, environment: Mapping[str, str], stdin_bytes: int, limits: Limits,
            sweep: bool) -> list[str]:
    """Runs one command, `sweep`: then kills all that is left of the sandbox's user, so that its streams end.

    Like a shell's: 127 for a command that is not found, 126 for one that cannot be run, 128 + n after signal n.
    """
    words = list(argv)
    odd = [f"{key}={value}" for key, value in environment.items() if not is_plain(key, value)]
    if odd or words[0].startswith("-"):
        words = ["env", "--", *odd, *words]
    given, unfold = _folded([folder, argv[0], *words])
    source = ""
    if stdin_bytes:
        source = f"command -v head >/dev/null || __told 126 head 'command not found'\nhead -c {stdin_bytes}|"
    text = (f"{_LISTEN}{limits_of(limits)}{unfold}__folder=$1 __name=$2;shift 2\n{_TOLD}{source}({_ENTER})"
            f"{'' if source else '</dev/null'}\n__s=$?;{'kill -9 -1 2>/dev/null;' if sweep else ''}exit $__s")
    return [SHELL, "-c", text, "sh", *given]


def is_plain(name: str, value: str) -> bool:
    """Whether the engine and a shell pass a variable on as it is."""
    return script.is_name(name) and _is_text(value)


def is_too_long(line: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether the kernel would refuse the command for its length."""
    sizes = [len(os.fsencode(word)) for word in (*line, *(f"{key}={value}" for key, value in environment.items()))]
    return max(sizes) > _LONGEST_WORD or sum(sizes) + len(sizes) > _LONGEST_COMMAND


def _folded(words: Sequence[str]) -> tuple[list[str], str]:
    """The words as text, as the engine takes nothing else, and what makes them bytes again in a shell."""
    odd = {number: word for number, word in enumerate(words, 1) if not _is_text(word)}
    if not odd:
        return list(words), ""
    given = [_octal(word) if number in odd else word for number, word in enumerate(words, 1)]
    # What a shell substitutes loses its last newlines: something else is last.
    unfold = "".join(f"__w{one}=$(printf '%b.' \"${{{one}}}\");__w{one}=${{__w{one}%.}};" for one in odd)
    listed = " ".join(f'"$__w{one}"' if one in odd else f'"${{{one}}}"' for one in range(1, len(words) + 1))
    return given, f"{unfold}set -- {listed};"


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _octal(word: str) -> str:
    return "".join(chr(byte) if byte < 128 and byte != 92 else f"\\0{byte:03o}" for byte in os.fsencode(word))


def shell_session(limits: Limits) -> list[str]:
    return [SHELL, "-c", f"{_LISTEN}{limits_of(limits)}unset __go;exec 3>&1 4>&2 >/dev/null;"
                         "if command -v bash>/dev/null;then exec bash --noprofile --norc;else exec sh;fi"]


def python_session(limits: Limits, loop: str) -> list[str]:
    return [SHELL, "-c", f'{_LISTEN}{limits_of(limits)}unset __go;exec python3 -c "$1" framed 3>&1 4>&2', "sh", loop]


def shell_call(text: bytes, number: int, begin: bytes, end: bytes) -> bytes:
    """Runs `text` in the shell of a session. The answer stands between two marks on stdout: the call's number and exit
    code, working directory and what is exported; on stderr the first mark alone."""
    return (b"command eval " + script.quote(text) + b" </dev/null >/proc/self/fd/3 2>/proc/self/fd/4 3>&- 4>&-;"
            b"printf '%b" + b"%d" % number + b" %s\\n' " + _escaped(begin) + b" $? >&3;"
            b"{ printf '%s\\0' \"$PWD\";export -p;printf %b " + _escaped(end) + b"; } >&3;"
            b"printf %b " + _escaped(begin) + b" >&4\n")


def _escaped(mark: bytes) -> bytes:
    return b"'" + mark.replace(b"\0", b"\\0000") + b"'"


def limits_of(limits: Limits) -> str:
    text = f"ulimit -c 0;ulimit -n 1024;ulimit -f {limits.file_mb * 2048};"
    return text if limits.cpu_seconds is None else f"{text}ulimit -t {limits.cpu_seconds};"
