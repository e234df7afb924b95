"""Small terminal tasks, each judged by the state that it leaves: modes, files, a repository's history, a schedule.

Every task has a reference that brings all probes to hold, a partly right script and a wrong one.
"""

from __future__ import annotations

from typing import Any

from schemas.events import Limits
from tasks.scripts import PROTOCOL, TOOLS, done, run
from tasks.task import Task

_LIMITS = Limits(max_turns=24, token_budget=8192, wall_clock_s=300.0)


def terminal_tasks() -> list[Task]:
    return [_permissions(), _logs(), _history(), _schedule(), _tidy(), _settings()]


def _task(name: str, statement: str, files: dict[str, bytes], probes: list[dict[str, Any]], reference: list[str],
          partial: list[str], wrong: list[str], difficulty: float) -> Task:
    return Task(
        task_id=f"terminal-{name}", kind="terminal", set="terminal", prompt=f"{statement}\n\n{PROTOCOL}", tools=TOOLS,
        files=files, limits=_LIMITS, difficulty=difficulty, expected_duration_s=1.0,
        hidden={"probes": probes, "reward": "rate"}, reference=_turns(reference),
        variants={"partial": _turns(partial), "wrong": _turns(wrong)})


def _turns(commands: list[str]) -> list[str]:
    return [*(run(command) for command in commands), done()]


def _permissions() -> Task:
    """Nothing holds at the start: the files stand there with mode 0644."""
    return _task(
        "permissions",
        "The folder keys holds an SSH key pair: id_work and id_work.pub. Set the mode of the private key to 0600, "
        "of the folder keys to 0700, and make scripts/backup.sh executable for its owner alone (0700). "
        "Change no content.",
        {"keys/id_work": b"private\n", "keys/id_work.pub": b"public\n",
         "scripts/backup.sh": b"#!/bin/sh\necho saved\n"},
        [{"file": "keys/id_work", "mode": "0600", "equals": "private\n"},
         {"file": "keys", "kind": "folder", "mode": "0700", "names": ["id_work", "id_work.pub"]},
         {"file": "scripts/backup.sh", "mode": "0700", "equals": "#!/bin/sh\necho saved\n"}],
        ["chmod 600 keys/id_work", "chmod 700 keys scripts/backup.sh"], ["chmod 600 keys/id_work"],
        ["chmod -R 777 keys scripts"], 0.1)


_LOG = b"""2031-03-04T08:00:01Z web INFO started
2031-03-04T08:00:09Z db ERROR disk full
2031-03-04T08:01:30Z web ERROR upstream timed out
2031-03-04T08:01:31Z web WARN retry of ERROR page
2031-03-04T08:02:00Z db ERROR disk full
2031-03-04T08:02:10Z cache INFO ERROR count is 0
2031-03-04T08:03:00Z db INFO recovered
"""


def _logs() -> Task:
    return _task(
        "logs",
        "app.log has lines of time, service, level and message. Write the lines of level ERROR, in their order, to "
        "errors.log, and to counts.txt one line `SERVICE COUNT` for each service with errors, by name.",
        {"app.log": _LOG},
        [{"file": "errors.log", "lines": [line for line in _LOG.decode().splitlines() if line.split()[2] == "ERROR"]},
         {"file": "counts.txt", "lines": ["db 2", "web 1"]},
         {"name": "log unchanged", "file": "app.log", "equals": _LOG.decode(), "gate": True, "weight": 0}],
        ["awk '$3 == \"ERROR\"' app.log > errors.log", "awk '{n[$2]++} END {for (s in n) print s, n[s]}' errors.log "
         "| sort > counts.txt"],
        ["awk '$3 == \"ERROR\"' app.log > errors.log", "grep -c ERROR app.log > counts.txt"],
        ["grep ERROR app.log > errors.log; : > app.log"], 0.3)


_GIT = ("git -c init.defaultBranch=main init -q . && git config user.name worker && "
        "git config user.email worker@example.com")


def _history() -> Task:
    return _task(
        "history",
        "Make this folder a git repository with the branch main. Its first commit, `Add notes`, holds notes.txt as it "
        "is. Then on a branch named fix correct the word `teh` in notes.txt to `the` and commit that as `Fix a typo`. "
        "Merge it into main, tag the result v1, and delete the branch fix.",
        {"notes.txt": b"This is teh first note.\n"},
        [{"name": "on main", "git": ".", "branch": "main", "file": "notes.txt", "equals": "This is the first note.\n"},
         {"name": "first commit", "git": ".", "ref": "main~1", "subject": "^Add notes$", "file": "notes.txt",
          "equals": "This is teh first note.\n"},
         {"name": "tag", "git": ".", "ref": "refs/tags/v1", "file": "notes.txt", "equals": "This is the first note.\n"},
         {"name": "no branch fix", "git": ".", "absent_ref": "refs/heads/fix"}],
        [_GIT, "git add notes.txt && git commit -qm 'Add notes'",
         "git checkout -qb fix && sed -i s/teh/the/ notes.txt && git commit -qam 'Fix a typo'",
         "git checkout -q main && git merge -q fix && git tag v1 && git branch -qd fix"],
        [_GIT, "git add notes.txt && git commit -qm 'Add notes'",
         "sed -i s/teh/the/ notes.txt && git commit -qam 'Fix a typo'"],
        ["mkdir -p .git && sed -i s/teh/the/ notes.txt"], 0.5)


_TABLE = b"""# m h dom mon dow command
0 4 * * * /srv/bin/backup --full
*/5 * * * * /srv/bin/probe
30 1 * * 0 /srv/bin/rotate
"""


def _schedule() -> Task:
    rows = _TABLE.decode().splitlines()
    return _task(
        "schedule",
        "jobs.cron is a crontab. Move the backup from 4:00 every day to 2:15 on weekdays (1-5), switch the probe off "
        "by putting `# ` before its line, and append a line that runs /srv/bin/report at 6:30 on the first of each "
        "month.",
        {"jobs.cron": _TABLE},
        [{"file": "jobs.cron", "name": "backup", "matches": r"\A(.*\n)*15 2 \* \* 1-5 /srv/bin/backup --full$",
          "lacks": rows[1]},
         {"file": "jobs.cron", "name": "probe", "matches": r"^# \*/5 \* \* \* \* /srv/bin/probe$"},
         {"file": "jobs.cron", "name": "report", "matches": r"^30 6 1 \* \* /srv/bin/report\n?\Z"},
         {"file": "jobs.cron", "name": "the rest is as it was", "contains": [f"{rows[0]}\n", f"{rows[3]}\n"],
          "gate": True, "weight": 0}],
        ["sed -i -e 's|^0 4 . . . |15 2 * * 1-5 |' -e 's|^.*/probe$|# &|' jobs.cron",
         "echo '30 6 1 * * /srv/bin/report' >> jobs.cron"],
        ["echo '30 6 1 * * /srv/bin/report' >> jobs.cron"], ["echo '15 2 * * 1-5 /srv/bin/backup --full' > jobs.cron"],
        0.3)


def _tidy() -> Task:
    names = {"in/photo one.jpg": b"1", "in/photo-two.JPG": b"2", "in/notes.txt": b"3", "in/deep/er/three.jpg": b"4",
             "in/old.tmp": b"5"}
    return _task(
        "tidy",
        "Move every file below `in` whose name ends in .jpg or .JPG to the folder pictures (flat, names unchanged), "
        "delete the files that end in .tmp, and remove folders below `in` that are empty then. Leave the rest.",
        names,
        [{"file": "pictures", "kind": "folder", "names": ["photo one.jpg", "photo-two.JPG", "three.jpg"]},
         {"file": "pictures/photo one.jpg", "equals": "1"}, {"file": "pictures/three.jpg", "equals": "4"},
         {"file": "in", "kind": "folder", "names": ["notes.txt"]}],
        ["mkdir pictures && find in -type f -iname '*.jpg' -exec mv -t pictures {} +",
         "find in -name '*.tmp' -delete; find in -mindepth 1 -type d -empty -delete"],
        ["mkdir pictures && cp in/*.jpg pictures"], ["rm -r in"], 0.4)


def _settings() -> Task:
    given = b'{"name": "relay", "port": 8080, "hosts": ["a", "b"], "debug": true}\n'
    return _task(
        "settings",
        "In settings.json set port to 9090 and debug to false and append \"c\" to hosts; keep the rest. Write a link "
        "named current.json that leads to settings.json (relative).",
        {"settings.json": given},
        [{"file": "settings.json", "json": {"name": "relay", "port": 9090, "hosts": ["a", "b", "c"], "debug": False}},
         {"file": "current.json", "kind": "link", "target": "settings.json"}],
        ["python3 -c \"import json; d = json.load(open('settings.json')); d.update(port=9090, debug=False); "
         "d['hosts'].append('c'); json.dump(d, open('settings.json', 'w'))\"", "ln -s settings.json current.json"],
        ["ln -s settings.json current.json"], ["cp settings.json current.json"], 0.2)
