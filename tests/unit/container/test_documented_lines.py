"""The lines of docs/running.md against what the image is, as far as that can be told without an engine."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli
from tests.copies import copy_to_change

from search_to_signal.base.package_data import PROFILES
from search_to_signal.cli import main

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
TAKES_A_VALUE = ("--network", "--entrypoint", "--tmpfs", "--shm-size", "--gpus", "-v", "-e", "--user")


def documented() -> str:
    """The fenced block of the page."""
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    return str(block)


def split_run(words: list[str]) -> tuple[dict[str, list[str]], str, list[str]]:
    """Options, image and arguments of a ``docker run``."""
    options: dict[str, list[str]] = {}
    place = 2
    while words[place].startswith("-"):
        name = words[place]
        taken = 1 if name in TAKES_A_VALUE else 0
        options.setdefault(name, []).extend(words[place + 1 : place + 1 + taken])
        place += 1 + taken
    return options, words[place], words[place + 1 :]


def mount_problems(options: dict[str, list[str]], writable: set[str], made: set[str]) -> Iterator[str]:
    """Mounts that an engine would make as root, or that user 10001 could not write."""
    for mount in options.get("-v", []):
        place, target, *mode = mount.removeprefix("$PWD/").split(":")
        if place not in made and mode != ["ro"]:
            yield f"nobody made {place}: the engine makes it as root"
        if mode != ["ro"] and place not in writable:
            yield f"user 10001 cannot write {place}"
        if target == "/results" and "VOLUME /results" not in DOCKERFILE:
            yield "the image has no volume /results"


def command_problems(options: dict[str, list[str]], arguments: list[str], done: set[str]) -> Iterator[str]:
    """What the entry point would not take, and results that no line before made."""
    (entry,) = options.get("--entrypoint", ["reproduce"])
    if entry == "reproduce":
        known = {path.stem for path in PROFILES.glob("*.toml")} | {"test"}
        if len(arguments) != 1 or arguments[0] not in known:
            yield f"{arguments} names no profile: the default command is another"
        else:
            done.add(f"/results/{arguments[0]}")
    elif entry == "s2s" and not done & set(arguments):
        yield f"{' '.join(arguments)} reads what no line before it has made"
    elif entry not in ("s2s", "pytest"):
        yield f"{entry} is not in the image"


def problems(lines: str) -> list[str]:
    """What would go wrong when the lines are run as written, in order, on a fresh checkout."""
    images, done = set[str](), set[str]()
    made, writable = {"mounts"}, set[str]()
    found: list[str] = []
    extras = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in lines.splitlines():
        words = shlex.split(line, comments=True)
        made |= {words[2]} if words[:2] == ["mkdir", "-p"] else set()
        writable |= {words[-1]} if "chmod" in words and "1777" in words else set()
        if words[:2] == ["docker", "build"]:
            images.add(words[words.index("-t") + 1])
            given = [extra for word in words if word.startswith("EXTRAS=") for extra in word[7:].split()]
            found += [f"{line}: no extra {extra}" for extra in given if extra not in extras]
        if words[:2] == ["docker", "run"]:
            options, image, arguments = split_run(words)
            told = [] if image in images else [f"nobody built {image}"]
            told += [*mount_problems(options, writable, made), *command_problems(options, arguments, done)]
            found += [f"{line}: {problem}" for problem in told]
    return found


def test_the_lines_work_in_their_order() -> None:
    assert documented().count("docker run") > 5
    assert problems(documented()) == []


def test_commands_in_the_lines_exist(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"--entrypoint s2s \S+ (\S+)", documented())
    assert commands
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
    capsys.readouterr()


def test_the_image_has_what_the_page_says() -> None:
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    assert 'ENTRYPOINT ["/opt/search-to-signal/reproduce.sh"]' in DOCKERFILE
    assert 'CMD ["smoke"]' in DOCKERFILE
    assert "openssh-client" in DOCKERFILE


def walk(checkout: Path, engine: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run documented.sh on the page alone, with a stand-in for the engine that notes how it was called."""
    for part in ("docs", "tests/container"):
        if not (checkout / part).exists():
            copy_to_change(ROOT / part, checkout / part)
    stand_in = checkout / "bin" / "docker"
    stand_in.parent.mkdir(exist_ok=True)
    stand_in.write_text(f"#!/usr/bin/env bash\nprintf '%s\\n' \"$*\" >>'{checkout}/calls'\n{engine}\n")
    stand_in.chmod(0o755)
    return subprocess.run(
        ["bash", checkout / "tests" / "container" / "documented.sh"],
        capture_output=True,
        text=True,
        env={"PATH": f"{stand_in.parent}:{os.environ['PATH']}", **environment},
    )


def expected_calls(checkout: Path, lines: str) -> list[str]:
    """What the engine hears of the lines: those that need nothing special, their quotes and $PWD resolved."""
    plain = [line for line in lines.splitlines() if line.startswith("docker ") and "  # needs " not in line]
    return [" ".join(shlex.split(line)[1:]).replace("$PWD", str(checkout)) for line in plain]


def test_the_script_runs_the_lines_of_the_page(tmp_path: Path) -> None:
    done = walk(tmp_path, f"test -d '{tmp_path}/results/container'")
    assert (done.returncode, done.stderr) == (0, "")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == expected_calls(tmp_path, documented())
    assert len(calls) > 5
    assert "0 with something in place" in done.stdout.splitlines()[-1]


def test_the_script_says_what_stands_in_place_of_a_line(tmp_path: Path) -> None:
    done = walk(tmp_path, "", EMBEDDED="smoke", IMAGE="built:before")
    assert done.returncode == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    written = expected_calls(tmp_path, documented())
    differ = [call for call, line in zip(calls, written, strict=True) if call != line]
    told = [line for line in done.stdout.splitlines() if line.startswith("s2s: in its place: ")]
    assert calls[0] == "tag built:before search-to-signal"
    assert not any("embedded" in call for call in calls)
    assert len(told) == len(differ) > 1
    assert f"{len(differ)} with something in place" in done.stdout.splitlines()[-1]


def test_the_script_stops_at_the_first_line_that_fails(tmp_path: Path) -> None:
    done = walk(tmp_path, "[[ $1 != run ]]")
    assert done.returncode == 1
    assert (tmp_path / "calls").read_text().count("run ") == 1
    assert done.stdout.splitlines()[-1].startswith("s2s: FAILED: docker run ")
    again = walk(tmp_path, "")
    assert again.returncode == 2
    assert "results/container is there already" in again.stdout
