"""What a long command shows: a few lines on a small terminal, plain lines elsewhere, and the time left."""

import io
import math
import time
from collections.abc import Iterator

import pytest
from rich.console import Console
from tests.command import Capture, Patch

from search_to_signal.base import progress as displays
from search_to_signal.base.progress import (
    LiveProgress,
    PlainProgress,
    Task,
    Workload,
    progress_display,
    slow_progress,
)
from search_to_signal.layers.reproduction import chosen_layers, planned_work
from search_to_signal.run.profile import load_profile

PLAN = [
    Task("cohort/native-s1", 10, cost=2.0, is_run=True),
    Task("cohort/frozen-s1", 10, is_run=True),
    Task("probe/initial", 10),
]


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(live: LiveProgress, console: Console) -> list[str]:
    """The lines of a drawing, as wide as the terminal at most."""
    with console.capture() as capture:
        console.print(live.draw())
    return capture.get().rstrip().splitlines()


def test_what_finished_takes_no_line() -> None:
    """Forty finished tasks and two running ones are three lines on 80 x 24."""
    console = Console(width=80, height=24, file=io.StringIO())
    live = LiveProgress(
        Workload(Task(f"breadth/a-long-cell-name/native-s{n}", 5) for n in range(42)), console
    )
    for number in range(42):
        live.update(
            f"breadth/a-long-cell-name/native-s{number}", 5 if number < 40 else 2, 5, "best -4.8 " * 9
        )
    lines = drawn(live, console)
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert "2/5" in lines[1]
    assert "a-long-cell-name/native-s41" in lines[2]


def test_more_tasks_than_lines_are_counted() -> None:
    """Where more run than the terminal has lines, the display stays inside it and says how many more."""
    console = Console(width=80, height=24, file=io.StringIO())
    live = LiveProgress(Workload(), console)
    for number in range(60):
        live.update(f"cohort/native-s{number}", 1, 5)
    lines = drawn(live, console)
    assert len(lines) < 24
    assert lines[-1] == "... and 40 more"


def test_the_heading_counts_layers_and_runs() -> None:
    """Layer k of n, run i of m; a task that is no run is not counted as one."""
    work = Workload(PLAN)
    work.update("cohort/native-s1", 0, 10)
    assert work.heading().startswith("cohort: 0 %, time left: not known yet; layer 1 of 2, run 1 of 2")
    work.update("cohort/native-s1", 10, 10)
    work.update("cohort/frozen-s1", 10, 10)
    work.update("probe/initial", 1, 10)
    assert work.heading().startswith("probe: 78 %, time left: not known yet; layer 2 of 2, run 2 of 2")


def test_the_time_left_follows_the_speed_and_the_costs() -> None:
    """Half the dear task in 100 s: the other half and two tasks at half its price take another 300 s."""
    clock = Clock()
    work = Workload(PLAN, clock)
    work.update("cohort/native-s1", 0, 10)
    assert work.seconds_left() is None
    for group in range(1, 6):
        clock.now = 20.0 * group
        work.update("cohort/native-s1", group, 10)
    assert work.seconds_left() == pytest.approx(300.0)


def test_what_was_done_before_is_no_speed() -> None:
    """A run that goes on at group 9, and one that was kept, make the rest neither shorter nor faster."""
    clock = Clock()
    work = Workload(PLAN, clock)
    work.update("cohort/frozen-s1", 10, 10)
    work.update("cohort/native-s1", 0, 10, "starting")
    work.update("cohort/native-s1", 8, 10)
    clock.now = 60.0
    work.update("cohort/native-s1", 9, 10)
    assert work.seconds_left() == pytest.approx(60.0 * (2.0 + 10.0) / 2.0)


def test_recent_steps_of_each_kind_decide() -> None:
    """Trained groups slow down, Frozen ones do not: the rest of each takes what its own last ones took."""
    clock = Clock()
    work = Workload(PLAN[:2], clock)
    work.update("cohort/frozen-s1", 0, 1000)
    for group in range(1, 501):
        clock.now += 1.0
        work.update("cohort/frozen-s1", group, 1000)
    work.update("cohort/frozen-s1", 1000, 1000)
    work.update("cohort/native-s1", 0, 1000)
    for group in range(1, 501):
        clock.now += 2.0 if group < 300 else 10.0
        work.update("cohort/native-s1", group, 1000)
    assert work.seconds_left() == pytest.approx(5000.0, rel=0.01)


# What a smoke run took: seconds of each layer, and of its tasks the steps and the seconds after loading.
# Tasks of the last layers follow each other.
SMOKE = {
    "cohort": (32.7, {"frozen-s42": (6, 5.8), "native-s42": (6, 8.4)}),
    "restart": (30.6, {"native-s42": (4, 5.2)}),
    "breadth": (56.2, {"cvrp-qwen2-2.1m/native-s42": (2, 1.0), "cvrp-qwen2-2.1m/frozen-s42": (2, 0.8)}),
    "audit": (30.3, {"obp-qwen2-2.1m/frozen-s42": (2, 1.1), "op-qwen2-2.1m/frozen-s42": (2, 0.5)}),
    "anchor": (26.8, {"frozen-s42": (13, 9.3)}),
    "probe": (29.4, {"initial": (3, 3.0), "native-s42": (3, 3.0)}),
    "api": (34.2, {"frozen-s42": (4, 2.9)}),
    "updates": (15.2, {"cvrp-qwen2-2.1m": (4, 2.0), "tsp-qwen2-2.1m": (4, 2.0)}),
    "heldout": (5.6, {"heldout_50": (2, 1.5), "heldout_100": (2, 1.5), "heldout_200": (2, 1.5)}),
}


def smoke_reports() -> Iterator[tuple[float, str, int, int]]:
    """Second, task, steps done and steps of every report of that run."""
    start = 0.0
    for layer, (seconds, tasks) in SMOKE.items():
        turns = len(tasks) if layer in ("probe", "updates", "heldout") else 1
        for number, (name, (steps, working)) in enumerate(tasks.items()):
            end = start + seconds * (1 + number % turns) / turns
            yield end - seconds / turns, f"{layer}/{name}", 0, steps
            for step in range(1, steps + 1):
                yield end - working * (1 - step / steps), f"{layer}/{name}", step, steps
        start += seconds


def test_the_time_left_of_a_smoke_run_is_near_what_it_took() -> None:
    """Off by less than a fifth of the run on average, and falling while nothing reports."""
    profile, clock, before = load_profile("smoke"), Clock(), math.inf
    work = Workload(planned_work(profile, [layer.key for layer in chosen_layers(profile, [])]), clock)
    reports, whole = sorted(smoke_reports()), sum(seconds for seconds, _ in SMOKE.values())
    errors = []
    for now in range(math.ceil(whole)):
        due = [report for report in reports if report[0] <= now]
        del reports[: len(due)]
        for second, task, done, steps in due:
            clock.now = second
            work.update(task, done, steps)
        clock.now = float(now)
        left = work.seconds_left()
        if left is not None:
            assert due or left <= before
            errors.append(abs(left - (whole - now)))
            before = left
    assert len(errors) > 200
    assert sum(errors) / len(errors) < whole / 5


def test_earlier_layers_are_done_when_a_later_one_begins() -> None:
    """An estimate that was too large, or a layer that was kept, leaves no rest."""
    work = Workload(PLAN)
    work.update("probe/initial", 10, 10)
    assert work.share == 1.0


def test_what_a_layer_makes_again_of_another_is_not_planned() -> None:
    """A run of the cohort trained again for a restart: neither a layer, nor the end of the planned ones."""
    work = Workload([Task("restart/native-s1", 10), Task("restart/native-s2", 10)])
    work.update("cohort/native-s1", 5, 10)
    assert work.heading().startswith("restart: 17 %, time left: not known yet; layer 1 of 1")
    work.update("cohort/native-s1", 10, 10)
    work.update("restart/native-s1", 5, 10)
    assert work.share == 0.5


def test_plain_lines_come_while_nothing_reports(monkeypatch: Patch, capsys: Capture) -> None:
    """Off a terminal a task is named when it begins, and its state is told again and again."""
    monkeypatch.setattr(displays, "PLAIN_SECONDS", 0.01)
    with progress_display(PLAN) as progress:
        progress.update("cohort/native-s1", 3, 10, "best -4.9")
        seen, end = "", time.monotonic() + 30.0
        while "layer 1 of 2" not in seen and time.monotonic() < end:
            seen += capsys.readouterr().out
    assert seen.startswith("cohort/native-s1: 3/10 best -4.9\n")
    assert "native-s1 3/10 best -4.9\n" in seen.partition("[cohort")[2]


def test_what_was_there_already_is_said_once(capsys: Capture) -> None:
    """A task that is first seen finished says nothing of its own."""
    plain = PlainProgress()
    plain.update("cohort/native-s1", 10, 10)
    plain.say("cohort/native-s1: complete and verified, kept")
    assert capsys.readouterr().out == "cohort/native-s1: complete and verified, kept\n"


@pytest.mark.parametrize("name", ["smoke", "embedded", "cohort"])
def test_every_layer_of_a_profile_is_planned(name: str) -> None:
    """No layer that a profile asks for is missing from its plan, and every task has steps."""
    profile = load_profile(name)
    layers = [layer.key for layer in chosen_layers(profile, ())]
    tasks = planned_work(profile, layers)
    assert list(dict.fromkeys(task.layer for task in tasks)) == layers
    assert all(task.steps > 0 for task in tasks)


def test_a_command_whose_output_is_its_result_says_what_takes_long(
    monkeypatch: Patch, capsys: Capture
) -> None:
    """On standard error: nothing of what is over soon, else the task under way, then what follows it."""

    def waited_for(text: str) -> bool:
        seen, end = "", time.monotonic() + 10
        while text not in seen and time.monotonic() < end:
            time.sleep(0.01)
            told = capsys.readouterr()
            assert told.out == ""
            seen += told.err
        return text in seen

    with slow_progress("read"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(displays, "_SLOW_SECONDS", 0.02)
    with slow_progress("read") as progress:
        progress.update("unpack", 1, 8)
        assert waited_for("unpack: 1/8")
        progress.update("unpack", 8, 8)
        assert waited_for("read (")
