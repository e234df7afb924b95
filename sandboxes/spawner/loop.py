"""The spawner's main loop: one thread, one epoll. Started by `sandboxes.helper`; `main` never returns to a caller.

It ends when its owner ends (a pidfd says so) or closes the main socket. It is process 1 of a pid namespace: however it
ends, the kernel kills every process that it started, at whatever point of its start, and mounts go with them.

Most of a start is waiting for the kernel, so there are several such loops, one a core: process 1 and forks of it. All
take requests from the same socket, whichever is free; a sandbox is one loop's from its start to its end.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from sandboxes.spawner import cgroups, mounts, wire
from sandboxes.spawner.life import Host, Life
from sandboxes.spawner.view import View

AHEAD = 2
"""So many sandboxes each loop starts before anybody asks for them, while there is nothing else to do."""
_QUIET_S = 0.02
"""The last of them is replaced at once, the others when nobody has wanted anything for this long."""
_RESERVED = 16
_SHUTDOWN_S = 5.0
_MOST_LOOPS = 4


def main() -> None:
    setup = json.loads(sys.argv[1])
    os.set_inheritable(setup["lock"], False)  # held for our life, and by no sandbox
    watch = os.pidfd_open(setup["owner"])
    if os.getppid() != setup["owner"]:
        return
    main_socket = socket.socket(fileno=os.dup(0))
    parents = cgroups.make_parents(setup["token"])
    try:
        unprivileged = mounts.leave_host()
        child = os.fork()
        if child:
            _bury(child, [0, watch, main_socket.detach()], parents)
            return
        outside = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)  # counts as the host does
        host = _enter(setup, unprivileged, parents, _reserve_descriptors())
    except OSError as wrong:
        wire.send(main_socket, {"error": f"{wrong.filename or 'its helper process'}: {wrong.strerror}"})
        return
    lowers = os.open(host.lowers, os.O_RDONLY | os.O_DIRECTORY)
    others = min(_MOST_LOOPS, len(os.sched_getaffinity(0))) - 1
    wire.send(main_socket, {"others": others, "user": host.user, "group": host.group, "lowers": host.lowers,
                            "layer_on_disk": host.layer_on_disk, "cgroups": parents._asdict() if parents else None},
              [lowers])
    os.close(lowers)
    main_socket.setblocking(False)
    gc.freeze()
    children = _fork(others)
    wire.send(main_socket, {"pid": int(os.readlink("self", dir_fd=outside)), "first": children is not None})
    os.close(outside)
    _Loop(host, main_socket, watch, children or []).run()


def _fork(others: int) -> list[int] | None:
    """Further processes that are as we are now; None in each of these."""
    children = []
    for _ in range(others):
        child = os.fork()
        if not child:
            return None
        children.append(child)
    return children


def _bury(child: int, descriptors: list[int], parents: cgroups.Parents | None) -> None:
    """Wait for the spawner's end, which is the end of every process of its namespace, and take the cgroups away."""
    for descriptor in descriptors:
        os.close(descriptor)
    os.waitpid(child, 0)
    if parents:
        cgroups.remove_all(parents)


def _reserve_descriptors() -> int:
    """Occupy the low numbers, which `posix_spawn` gives to the agent; the null device for it."""
    null = os.open("/dev/null", os.O_RDWR)
    while null < _RESERVED:
        null = os.open("/dev/null", os.O_RDWR)
    return null


def _enter(setup: dict[str, Any], unprivileged: bool, parents: cgroups.Parents | None, null: int) -> Host:
    mounts.split_off()
    mounts.keep_to_ourselves()
    mounts.mount_own_proc()
    os.umask(0o022)
    if not unprivileged:
        os.setgroups([])
    held = cgroups.by_descriptor(parents) if parents else None
    stage = mounts.make_stage()
    for name in ("life", "lowers"):
        os.mkdir(f"{stage}/{name}")
    mounts.mount_layer(f"{stage}/lowers", setup["lowers_mb"])
    return Host(bwrap=setup["bwrap"], stage=stage, state=setup["state"], unprivileged=unprivileged,
                layer_on_disk=not mounts.layer_keeps_marks(f"{stage}/life", unprivileged), parents=held,
                view=View(stage, setup), seccomp=_memory_file(bytes.fromhex(setup["seccomp"])),
                setup_seccomp=_memory_file(bytes.fromhex(setup["setup_seccomp"])), null=null)


def _memory_file(data: bytes) -> int:
    if not data:
        return -1
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.fchmod(descriptor, 0o444)
    return descriptor


class _Loop:
    def __init__(self, host: Host, main_socket: socket.socket, watch: int, children: list[int]) -> None:
        """`children`: process ids of other loops, without which this one does not go on."""
        self.host, self.main = host, main_socket
        self.others = [os.pidfd_open(child) for child in children]
        self.watch, self.home = watch, mounts.current_namespace()
        self.poll = select.epoll()
        self.calls: dict[int, Callable[[], None]] = {}
        self.lives: set[Life] = set()
        self.ahead: list[Life] = []
        """Sandboxes that are nobody's yet. One that fails is not tried again before somebody has taken another."""
        self.wanted, self.made = AHEAD, 0
        self.names = f"{time.monotonic_ns()}-{os.getpid()}"
        self.ended = False
        self._watch(main_socket.fileno(), self.accept, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        for descriptor in (watch, *self.others):
            self._watch(descriptor, self.end)

    def run(self) -> None:
        while not self.ended:
            if self.wanted and not self._turn(_QUIET_S if self.ahead else 0):
                self.wanted -= 1
                self._start_ahead()
            elif not self.wanted:
                self._turn(1.0 if self.lives else None)
            self._expire()
        self._shut_down()

    def _turn(self, timeout_s: float | None) -> bool:
        """Take one step; False when there was none to take."""
        # One event at a time: a step may close descriptors, and a number may come back as another's.
        events = self.poll.poll(timeout_s, 1)
        for descriptor, _ in events:
            self.calls[descriptor]()
        return bool(events)

    def end(self) -> None:
        self.ended = True

    def _watch(self, descriptor: int, call: Callable[[], None], events: int = select.EPOLLIN) -> None:
        self.calls[descriptor] = call
        self.poll.register(descriptor, events)

    def _forget(self, descriptor: int) -> None:
        if self.calls.pop(descriptor, None):
            self.poll.unregister(descriptor)

    def accept(self) -> None:
        try:
            message, descriptors = wire.receive(self.main)
        except BlockingIOError:  # another loop was faster
            return
        if message is None:
            self.end()
            return
        channel = socket.socket(fileno=descriptors[0])
        life = self.ahead.pop(0) if self.ahead and not message["root"] else self._new()
        life.claim(channel, message)
        self.lives.add(life)
        self.wanted = AHEAD - len(self.ahead)
        self._watch(channel.fileno(), lambda: self._guard(life, lambda life: self.request(life, channel)))
        self._guard(life, self._begin)

    def _new(self) -> Life:
        self.made += 1
        return Life(f"{self.names}-{self.made}", self.host)

    def _start_ahead(self) -> None:
        life = self._new()
        self.ahead.append(life)
        self._guard(life, self._begin)

    def _guard(self, life: Life, step: Callable[[Life], None]) -> None:
        """One sandbox's trouble ends that sandbox and no other."""
        try:
            step(life)
        except Exception as wrong:
            # A log that grew with each failure would be a leak.
            if life.channel:
                life.reply({"error": str(wrong)})
            else:
                print(f"spawner: {life.name}: {type(wrong).__name__}: {wrong}", file=sys.stderr, flush=True)
            self._end(life)

    def _begin(self, life: Life) -> None:
        """Whatever it lacks of what it is to have, in its mount namespace."""
        try:
            if life.namespace < 0:
                mounts.split_off()
                life.prepare()
            else:
                mounts.go_to(life.namespace)
            if life.outer < 0:
                self._start(life)
            if life.workspace < 0 and life.channel:
                life.fill()
        finally:
            mounts.go_to(self.home)
        if life.waiting and life.inner >= 0:
            life.hand_over()

    def _start(self, life: Life) -> None:
        life.spawn()
        self._watch(life.info, lambda: self._guard(life, self.informed))
        self._watch(life.outer, lambda: self._guard(life, self.exited))

    def informed(self, life: Life) -> None:
        pid = life.read_info()
        if not pid:
            return
        self._forget(life.info)
        if pid < 0:
            return  # its end will tell
        life.adopt(pid)
        if life.waiting == "start":
            life.hand_over()
        elif life.waiting:  # its end was asked for meanwhile
            life.kill()

    def exited(self, life: Life) -> None:
        waiting, life.waiting = life.waiting, ""
        self._forget(life.outer)
        self._forget(life.info)
        status = life.reap()
        if waiting == "start":
            life.reply({"error": life.complaint() or f"bubblewrap ended with status {status}"})
            life.close_ends()
        elif waiting == "kill":
            life.reply({"killed": True})
        elif waiting == "close":
            self._dispose(life)
        elif not life.channel:
            print(f"spawner: {life.name}: ended: {life.complaint()}", file=sys.stderr, flush=True)
            self._end(life)

    def request(self, life: Life, channel: socket.socket) -> None:
        message, _ = wire.receive(channel, wire.REPLY_BYTES)
        wanted = message["do"] if message else "close"
        if wanted == "start":
            life.waiting = wanted
            self._begin(life)
        elif wanted == "close":
            self._end(life)
        elif life.outer >= 0:
            life.waiting = wanted
            life.kill()
        else:
            life.reply({"killed": True})

    def _end(self, life: Life) -> None:
        """Kill what runs, then take everything away."""
        if life.waiting == "close":
            return
        if life.channel:
            self._forget(life.channel.fileno())
        elif life in self.ahead:
            self.ahead.remove(life)
        self.lives.add(life)
        life.waiting = "close"
        life.kill()
        life.let_go()
        if life.outer < 0:
            self._dispose(life)

    def _dispose(self, life: Life) -> None:
        self.lives.discard(life)
        life.dispose()

    def _expire(self) -> None:
        now = time.monotonic()
        for life in [life for life in self.lives if life.expires < now]:
            self._end(life)

    def _shut_down(self) -> None:
        """Sandboxes are told that they end; what is left after a while, the end of this process ends."""
        for descriptor in (self.main.fileno(), self.watch, *self.others):
            self._forget(descriptor)
        for life in [*self.lives, *self.ahead]:
            self._end(life)
        deadline = time.monotonic() + _SHUTDOWN_S
        while any(life.outer >= 0 for life in self.lives) and time.monotonic() < deadline:
            self._turn(0.1)
        for life in list(self.lives):
            self._dispose(life)
        for other in self.others:
            select.select([other], [], [], max(0.0, deadline - time.monotonic()))


def run() -> None:
    """Entry point with a clean exit: no traceback of a broken pipe, no exit handlers."""
    code = 0
    try:
        main()
    except BaseException as wrong:
        code = 1
        print(f"spawner: {type(wrong).__name__}: {wrong}", file=sys.stderr, flush=True)
        raise
    finally:
        sys.stderr.flush()
        if not code:
            os._exit(0)
