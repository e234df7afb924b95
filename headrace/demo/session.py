"""One sitting of a demo: services up, loop, services down, report. Ctrl-C stops cleanly; the same command goes on."""

from __future__ import annotations

from headrace.demo.plan import Plan, finish
from headrace.demo.report import print_report
from headrace.demo.screen import Screen
from headrace.rooms import Rooms


def run_demo(rooms: Rooms, plan: Plan) -> int:
    if not plan.finished:
        rooms.matched()
        screen = Screen(plan.steps)
        screen.line(f"run {plan.run_id}, {plan.steps} steps, seed {plan.seed}, everything in {rooms.home.resolve()}")
        try:
            run_loop(rooms, plan, screen)
        except KeyboardInterrupt:
            screen.line("stopped cleanly; the same command goes on from here")
            return 130
        finish(rooms.home, plan)
    return print_report(rooms, plan)


def run_loop(rooms: Rooms, plan: Plan, screen: Screen) -> None:
    from headrace.demo.base import make_base
    from headrace.demo.loop import Loop
    from headrace.demo.waiting import start_services
    from headrace.demo.watch import Watch
    from headrace.supervisor import Supervisor
    from pipelines.run import materialize_report
    from producers.policies import TINY_BASE

    base = make_base(rooms, plan, screen) if plan.from_scratch else TINY_BASE
    with Supervisor() as supervisor, Watch(rooms.log, plan.run_id) as watch:
        start_services(rooms, supervisor, plan.run_id, base)
        Loop(rooms, plan, watch, supervisor, screen).run()
    materialize_report(rooms.settings, plan.run_id)
