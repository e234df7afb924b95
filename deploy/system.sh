#!/usr/bin/env bash
# System packages: installed through apt when root, otherwise named with how to get them.
# Usage: deploy/system.sh [kafka]
set -euo pipefail

missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ "${HEADRACE_REQUIRE_REAL:-}" = 1 ]; then
    command -v openscad >/dev/null || missing+=(openscad)
    command -v dockerd >/dev/null || missing+=(docker.io)
fi
if [ "${1:-}" = kafka ] || [ "${HEADRACE_REQUIRE_REAL:-}" = 1 ]; then
    command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
    command -v mvn >/dev/null || missing+=(maven)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing system packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "system packages are missing: ${missing[*]}"
    echo "get them with: sudo apt-get install ${missing[*]}"
    # Without bubblewrap everything but real sandboxes works; the commands that need it say so again.
    case " ${missing[*]} " in *" python3-venv "*) exit 2 ;; esac
fi
