"""State probes: what must hold of the files, repositories, commands, ports and processes that an episode left.

    {file: PATH, kind?: file|folder|link|absent, mode?: "0600", uid?, gid?, size?, sha256?, target?, names?: [..],
     equals?: text, contains?: text or [..], lacks?: text or [..], matches?: regex, lines?: [..], json?: value}
    {git: FOLDER, ref?: name, commit?: hex, branch?: name, subject?: regex, absent_ref?: name, file?: path with
     equals | contains | matches}
    {command: sh text, exit?: 0, equals?, contains?, lacks?, matches?, lines?, deadline_s?}
    {port: N, start?: sh text}       {process: NAME, start?: sh text}

Each may have `name`, `weight`, `gate`. Paths are relative to the task's working directory. What was found comes as data
from a fresh sandbox in which nothing of the submission runs (but for commands); it is compared here.
A process does not outlive its episode, so `port` and `process` name the command that starts it again.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandboxes.sandbox import ExecResult, Sandbox
from schemas.errors import SandboxError, VerifierError
from verifiers.program import ENVIRONMENT, command

INSIDE = "verifiers.terminal.inside"
TEXT_LIMIT = 256 << 10
ANSWER_BYTES = 2 << 20
"""Of all files that are looked at together: their contents come back on a sandbox's output, which has a limit."""
_TEXTS = ("equals", "contains", "lacks", "matches", "lines", "json")
_COMMON = ("name", "weight", "gate")
_KEYS = {
    "file": ("kind", "mode", "uid", "gid", "size", "sha256", "target", "names", *_TEXTS),
    "git": ("ref", "commit", "branch", "subject", "absent_ref", "file", *_TEXTS),
    "command": ("exit", "deadline_s", *_TEXTS),
    "port": ("start", "deadline_s"), "process": ("start", "deadline_s")}
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*",
        "-c", "log.showSignature=false", "-c", "core.pager=cat")
_GIT_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_NO_REPLACE_OBJECTS": "1",
                    "GIT_OPTIONAL_LOCKS": "0", "HOME": "/tmp"}


def ask(sandbox: Sandbox, do: str, **request: Any) -> Any:
    """An answer of `verifiers.terminal.inside`."""
    said = sandbox.exec(command(INSIDE), stdin=json.dumps({"do": do, **request}).encode(), environment=ENVIRONMENT,
                        deadline_s=float(request.get("deadline_s", 10.0)) + 20.0, cwd="/")
    if said.exit_code != 0:
        raise SandboxError("looking into a submission failed", value=said.stderr[-400:].decode(errors="replace"),
                           kind="oom" if said.oom else "probe")
    return json.loads(said.stdout)


def check(probes: Sequence[Mapping[str, Any]], sandbox: Sandbox, workdir: str) -> list[dict[str, Any]]:
    """For each probe its name, whether it `holds`, and if not, `wrong`. Files first: commands may change them."""
    for number, probe in enumerate(probes):
        _checked(probe, number)
    if not any(probe.get("weight", 1.0) for probe in probes):
        raise VerifierError("no probe has a weight", where="probes")
    paths = sorted({posixpath.join(workdir, probe["file"]) for probe in probes if _kind(probe) == "file"})
    limit = min(TEXT_LIMIT, ANSWER_BYTES // max(1, len(paths)))
    looked = ask(sandbox, "look", paths=paths, limit_bytes=limit) if paths else {}
    order = sorted(range(len(probes)), key=lambda number: ("file", "git").count(_kind(probes[number])) == 0)
    verdicts: dict[int, dict[str, Any]] = {}
    for number in order:
        wrong = _wrong(probes[number], looked, sandbox, workdir)
        verdicts[number] = {"probe": _name(probes[number]), "holds": wrong is None}
        if wrong:
            verdicts[number]["wrong"] = wrong
    return [verdicts[number] for number in range(len(probes))]


def share(probes: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]], rule: str) -> float:
    if rule == "all":
        return float(all(verdict["holds"] for verdict in verdicts))
    if any(probe.get("gate") and not verdict["holds"] for probe, verdict in zip(probes, verdicts, strict=True)):
        return 0.0
    weights = [float(probe.get("weight", 1.0)) for probe in probes]
    held = sum(weight for weight, verdict in zip(weights, verdicts, strict=True) if verdict["holds"])
    return held / sum(weights)


def _kind(probe: Mapping[str, Any]) -> str:
    # `file` beside `git` is a file of the repository.
    return next(kind for kind in ("git", "command", "port", "process", "file") if kind in probe)


def _name(probe: Mapping[str, Any]) -> str:
    return str(probe.get("name") or f"{_kind(probe)} {probe[_kind(probe)]}")


def _checked(probe: Mapping[str, Any], number: int) -> None:
    """A probe with a key that nobody reads would hold for nothing."""
    kind = _kind(probe)
    unknown = set(probe) - {kind, *_KEYS[kind], *_COMMON}
    weight = probe.get("weight", 1.0)
    if unknown or isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e9:
        raise VerifierError("a probe has a key that its kind does not know, or a weight that is none",
                            where=f"probes[{number}]", value=sorted(unknown) or weight)
    try:
        for key in ("matches", "subject"):
            re.compile(probe.get(key, ""))
    except (re.error, TypeError) as wrong:
        raise VerifierError(f"a probe's pattern is none: {wrong}", where=f"probes[{number}]") from None


def _wrong(probe: Mapping[str, Any], looked: Mapping[str, Any], sandbox: Sandbox, workdir: str) -> str | None:
    kind = _kind(probe)
    if kind == "file":
        return _file(probe, looked[posixpath.join(workdir, probe["file"])])
    if kind == "git":
        return _git(probe, sandbox, posixpath.join(workdir, probe["git"]))
    if kind == "command":
        return _command(probe, sandbox, workdir)
    up = ask(sandbox, "listen", start=probe.get("start", ""), cwd=workdir, deadline_s=probe.get("deadline_s", 5.0),
             port=probe.get("port"), name=probe.get("process"))["up"]
    return None if up else f"{kind} {probe[kind]} did not come up"


def _file(probe: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    wanted = probe.get("kind", "file")
    if found["kind"] != wanted:
        return f"is {found['kind']}, not {wanted}"
    for key in ("mode", "uid", "gid", "size", "sha256", "target", "names"):
        if key in probe and found.get(key) != probe[key]:
            return f"{key} is {found.get(key)!r}, not {probe[key]!r}"
    if not any(key in probe for key in _TEXTS):
        return None
    if "data" not in found:
        return f"cannot be read ({found.get('problem', 'it is no file')})"
    data = base64.b64decode(found["data"])
    return _text(probe, data) if len(data) == found["size"] else f"has {found['size']} bytes, more than are read"


def _text(probe: Mapping[str, Any], data: bytes) -> str | None:
    text = data.decode(errors="replace")
    if "equals" in probe and text != probe["equals"]:
        return f"reads {text[:200]!r}, not {_shown(probe['equals'])}"
    if "lines" in probe and [line.rstrip() for line in text.rstrip().splitlines()] != list(probe["lines"]):
        return f"has other lines than {_shown(list(probe['lines']))}: {text[:200]!r}"
    for part in _listed(probe.get("contains")):
        if part not in text:
            return f"does not contain {part!r}"
    for part in _listed(probe.get("lacks")):
        if part in text:
            return f"contains {part!r}"
    if "matches" in probe and not re.search(probe["matches"], text, re.MULTILINE):
        return f"does not match {probe['matches']!r}: {text[:200]!r}"
    if "json" in probe:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return f"is not JSON: {text[:200]!r}"
        if json.dumps(value, sort_keys=True) != json.dumps(probe["json"], sort_keys=True):
            return f"holds another value than {_shown(probe['json'])}: {text[:200]!r}"
    return None


def _shown(wanted: Any) -> str:
    return repr(wanted)[:200]


def _listed(value: Any) -> Iterable[str]:
    return () if value is None else (value,) if isinstance(value, str) else value


def _git(probe: Mapping[str, Any], sandbox: Sandbox, folder: str) -> str | None:
    """Plumbing alone, without what the repository's configuration could have run."""
    def said(*words: str) -> ExecResult:
        return sandbox.exec([*_GIT, "-C", folder, *words], environment=_GIT_ENVIRONMENT, deadline_s=20.0, cwd="/")

    ref = probe.get("ref", "HEAD")
    head = said("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if head.exit_code != 0:
        return f"has no commit {ref}"
    if "commit" in probe and head.stdout.decode().strip() != probe["commit"]:
        return f"{ref} is {head.stdout.decode().strip()}, not {probe['commit']}"
    if "branch" in probe and (on := said("symbolic-ref", "--short", "HEAD").stdout.decode().strip()) != probe["branch"]:
        return f"is on {on or 'no branch'}, not {probe['branch']}"
    if "absent_ref" in probe and said("rev-parse", "--verify", "--quiet", "--end-of-options",
                                      probe["absent_ref"]).exit_code == 0:
        return f"still has {probe['absent_ref']}"
    if "subject" in probe:
        subject = said("log", "-1", "--format=%s", "--end-of-options", ref).stdout.decode(errors="replace").strip()
        if not re.search(probe["subject"], subject):
            return f"{ref} says {subject[:200]!r}, which does not match {probe['subject']!r}"
    if "file" in probe:
        content = said("cat-file", "blob", f"{ref}:{probe['file']}")
        return _output(probe, content) if content.exit_code == 0 else f"{ref} has no file {probe['file']}"
    return None


def _command(probe: Mapping[str, Any], sandbox: Sandbox, workdir: str) -> str | None:
    ran = sandbox.exec(["/bin/sh", "-c", probe["command"]], deadline_s=float(probe.get("deadline_s", 10.0)),
                       cwd=workdir)
    wanted = probe.get("exit", 0)
    if ran.exit_code != wanted:
        how = "did not end in time" if ran.timed_out else f"ended with {ran.exit_code}, not {wanted}"
        return f"{how}: {(ran.stdout + ran.stderr)[-200:].decode(errors='replace')!r}"
    return _output(probe, ran)


def _output(probe: Mapping[str, Any], ran: ExecResult) -> str | None:
    return f"wrote {ran.stdout_bytes} bytes, more than are read" if ran.truncated else _text(probe, ran.stdout)
