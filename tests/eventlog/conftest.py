"""A fresh log on each backend. Kafka is a real broker, started once for all tests of a session."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from eventlog import open_log
from eventlog.log import EventLog
from schemas.settings import Settings
from tests.conftest import REPOSITORY, require_real


def broker_module(name: str = "broker") -> ModuleType:
    """`deploy/kafka/broker.py` or its sibling, which are scripts and not of a package."""
    if f"kafka_{name}" not in sys.modules:
        path = REPOSITORY / "deploy" / "kafka" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"kafka_{name}", path)
        assert spec is not None and spec.loader is not None
        sys.modules[f"kafka_{name}"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[f"kafka_{name}"]


def start_broker(folder: Path, **options: object):
    module = broker_module()
    try:
        return module.Broker(folder, **options).start()
    except module.BrokerError as wrong:
        require_real("Apache Kafka", str(wrong))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    running = start_broker(tmp_path_factory.mktemp("kafka"))
    yield running
    running.stop()


def forget_topics(address: str) -> None:
    """Make the broker as good as new."""
    import kafka

    def ours() -> list[str]:
        return [topic for topic in admin.list_topics() if not topic.startswith("__")]

    with kafka.KafkaAdminClient(bootstrap_servers=address) as admin:
        if there := ours():
            admin.delete_topics(there)
        deadline = time.monotonic() + 30
        while ours():
            assert time.monotonic() < deadline, "the broker does not delete topics"


@pytest.fixture(params=["sqlite", "kafka"])
def log_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of a log that does not exist yet."""
    home = str(tmp_path / "home")
    if request.param == "sqlite":
        return Settings(home=home)
    broker = request.getfixturevalue("broker")
    forget_topics(broker.address)
    return Settings(home=home, log=broker.log_setting)


@pytest.fixture
def opened(log_settings: Settings) -> Iterator[Callable[[], EventLog]]:
    """Opens the log, as often as asked; all are closed at the end."""
    logs: list[EventLog] = []

    def open_it() -> EventLog:
        logs.append(open_log(log_settings))
        return logs[-1]

    yield open_it
    for log in logs:
        log.close()


@pytest.fixture
def log(opened: Callable[[], EventLog]) -> EventLog:
    return opened()


@pytest.fixture
def sqlite_settings(tmp_path: Path) -> Settings:
    return Settings(home=str(tmp_path / "home"))


@pytest.fixture
def kafka_settings(broker, tmp_path: Path) -> Settings:
    forget_topics(broker.address)
    return Settings(home=str(tmp_path / "home"), log=broker.log_setting)
