"""What test scripts call to install things, in a sandbox without a network: `python3 shim.py NAME WORDS...`.

What is here already counts as installed; what is not is written down in MISSING, and the verdict is then a verifier
error: tests that fail for want of a library say nothing about the submission. Standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys

MISSING = "/tmp/headrace/missing"
_REAL = "/usr/local/bin:/usr/bin:/bin"
_PACKAGES = {"procps": "ps", "netcat-openbsd": "nc", "netcat": "nc", "build-essential": "cc", "coreutils": "ls",
             "python3-pip": "python3", "python3-venv": "python3", "python3-dev": "python3", "openssh-client": "ssh",
             "ca-certificates": "sh", "curl": "sh", "wget": "sh", "gnupg": "sh", "tzdata": "sh", "locales": "sh",
             "iproute2": "ss", "net-tools": "netstat", "sqlite3": "sqlite3", "gawk": "awk", "findutils": "find"}
_MODULES = {"pytest-json-ctrf": "headrace_ctrf", "pyyaml": "yaml", "beautifulsoup4": "bs4", "pillow": "PIL",
            "scikit-learn": "sklearn", "opencv-python": "cv2", "python-dateutil": "dateutil", "uv": "sys", "pip": "sys",
            "setuptools": "sys", "wheel": "sys"}
_VALUED = {"-w", "--with", "-p", "--python", "--from", "--index-url", "-i", "--extra-index-url", "--target", "-t",
           "--with-requirements", "-r", "--requirement", "--project", "--directory"}


def main() -> None:
    name, words = sys.argv[1], sys.argv[2:]
    if name in ("apt-get", "apt", "apk"):
        _apt(words)
    elif name in ("pip", "pip3"):
        _pip(words)
    elif name == "uvx":
        _run(words)
    elif name == "uv":
        _uv(words)
    elif name in ("curl", "wget"):
        _fetch(name, words)
    else:
        _pytest(words)


def _miss(what: str) -> None:
    print(f"headrace: not in this sandbox, which has no network: {what}", file=sys.stderr)
    with open(MISSING, "a") as file:
        file.write(what.replace("\n", " ")[:200] + "\n")


def _apt(words: list[str]) -> None:
    given = [word for word in words if not word.startswith("-")]
    if given[:1] in (["install"], ["add"]):
        for package in given[1:]:
            wanted = package.partition("=")[0]
            if not shutil.which(_PACKAGES.get(wanted, wanted), path=_REAL + ":/opt/python/bin:/usr/sbin:/sbin"):
                _miss(f"package {package}")


def _requirements(words: list[str]) -> list[str]:
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if word in _VALUED:
            if word in ("-r", "--requirement", "--with-requirements") and rest:
                found.append(f"requirements of {rest[0]}")
            del rest[:1]
        elif not word.startswith("-"):
            found.append(word)
    return found


def _pip(words: list[str]) -> None:
    if words[:1] == ["install"]:
        for requirement in _requirements(words[1:]):
            _need(requirement)


def _need(requirement: str) -> None:
    name = re.split(r"[\[<>=!~; @]", requirement, maxsplit=1)[0].lower()
    module = _MODULES.get(name, name.replace("-", "_"))
    try:
        there = bool(module) and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        _miss(f"library {requirement}")


def _uv(words: list[str]) -> None:
    action = words[:1]
    if action == ["pip"]:
        _pip(words[1:])
    elif action == ["add"]:
        _pip(["install", *words[1:]])
    elif action == ["run"] or words[:2] == ["tool", "run"]:
        _run(words[1 if action == ["run"] else 2:])
    elif action == ["venv"]:
        folder = next((word for word in words[1:] if not word.startswith("-")), ".venv")
        os.makedirs(f"{folder}/bin", exist_ok=True)
        open(f"{folder}/bin/activate", "a").close()


def _run(words: list[str]) -> None:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if not equals and option in _VALUED and rest:
            value = rest.pop(0)
        if option in ("-w", "--with", "--from"):
            for requirement in value.split(","):
                _need(requirement)
    if rest:
        program = "pytest" if re.split("[@=]", rest[0])[0] == "pytest" else rest[0]
        _become([program, *rest[1:]])


def _fetch(name: str, words: list[str]) -> None:
    urls = [word for word in words if "://" in word or word.startswith(("localhost", "127.0.0.1"))]
    if urls and all("//astral.sh/uv" in url or "/astral-sh/uv/" in url for url in urls):
        return  # the installer of `uv`, whose place is taken here
    if urls and all(re.match(r"(https?://)?(localhost|127\.0\.0\.1)([:/]|$)", url) for url in urls):
        real = shutil.which(name, path=_REAL)
        if real:
            os.execv(real, [name, *words])
        _miss(f"program {name}")
    elif urls:
        _miss(f"network: {urls[0]}")
    sys.exit(6)


def _pytest(words: list[str]) -> None:
    if importlib.util.find_spec("pytest") is None:
        _miss("library pytest")
        sys.exit(127)
    # Not `-m`, which would look for pytest in the working directory first.
    _become([sys.executable, "-P", "-B", "-c", "import sys, pytest; sys.exit(pytest.main())", *words])


def _become(words: list[str]) -> None:
    try:
        os.execvp(words[0], words)
    except OSError as wrong:
        _miss(f"program {words[0]}")
        sys.exit(f"{words[0]}: {wrong.strerror}")


if __name__ == "__main__":
    main()
