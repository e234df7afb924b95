"""A home whose episodes are judged as a service judges them: a real log, the consumer, processes that judge."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from consumers.verify import VerifyConsumer
from eventlog import open_log
from schemas.events import ScoreRecorded
from schemas.settings import Settings
from schemas.topics import TRAJECTORIES
from tests.consumers.episodes import episode
from tests.verifiers.rig import Rig
from verifiers import registry
from verifiers.judges import Judges


class Judged:
    """`verifiers`: a file of verifiers, for the setting of that name."""

    def __init__(self, folder: Path, verifiers: str = "", workers: int = 1, **settings: object) -> None:
        self.rig = Rig(folder / "home")
        path = folder / "verifiers_of_the_user.py"
        if verifiers:
            path.write_text(verifiers)
        self.settings: Settings = msgspec.structs.replace(
            self.rig.settings, verifiers=str(path) if verifiers else "", verify_workers=workers, **settings)
        registry.use_files(self.settings.verifiers)
        self.log = open_log(self.settings)
        self.judges = Judges(self.settings, self.rig.artifacts, workers)
        self.asked = 0

    def verdicts(self, submissions: Mapping[str, str]) -> dict[str, ScoreRecorded]:
        """What the consumer says of each: name of the episode to digest of its submission."""
        registry.use_files(self.settings.verifiers)  # Between tests that share a home they are taken back.
        for name, submission in submissions.items():
            self.log.append(TRAJECTORIES, episode(name, submission)).result()
        found: dict[str, ScoreRecorded] = {}
        VerifyConsumer(self.log, self.judges.score, self.settings, on_scored=lambda score: found.update(
            {score.episode_id: score})).run(threading.Event(), until_idle=True)
        return found

    def why(self, score: ScoreRecorded) -> str:
        return str(self.rig.evidence(score)["details"])

    def close(self) -> None:
        self.judges.close()
        self.log.close()
        self.rig.close()
        registry.use_files("")
