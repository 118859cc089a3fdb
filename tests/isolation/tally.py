"""Print how the corpus of hostile programs ends: gate off and on, as the caller and as nobody.

    PYTHONPATH=artifact python tests/isolation/tally.py [--verbose] [--once]

Exits with 1 when anything is not as expected. Started as root it also runs the corpus as an unprivileged
user, unless ``--once`` is given; where the interpreter is hidden from that user, in a mount namespace.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from isolation_corpus import cases, judge

NOBODY = 65534
_ONCE = "--once"


def main() -> int:
    """Run the settings that this user can run; returns the exit status."""
    wrong = run_corpus()
    if os.geteuid() == 0 and _ONCE not in sys.argv:
        wrong += subprocess.call(as_nobody([sys.executable, __file__, _ONCE, *sys.argv[1:]]))
    if _ONCE not in sys.argv:
        print("all as expected" if not wrong else "NOT as expected", flush=True)
    return 1 if wrong else 0


def run_corpus() -> int:
    """Run the corpus in both modes as the present user; prints a tally and returns the wrong endings."""
    return sum(tally(mode) for mode in ("paper", "strict"))


def tally(mode: str) -> int:
    """Run the corpus in one mode; returns how many programs ended otherwise than expected."""
    corpus, complaints = cases(), []
    user = "root" if os.geteuid() == 0 else f"uid {os.geteuid()}"
    with judge(mode) as judging:
        layers = judging.slot.barriers()
        endings: Counter[str] = Counter()
        for case in corpus:
            run = judging.run(case.task, case.code)
            endings[run.isolation.value] += 1
            if complaint := judging.complaint(case, run):
                complaints.append(complaint)
    print(f"gate {'on' if mode == 'strict' else 'off'}, started as {user}: ", end="")
    print(f"{len(corpus) - len(complaints)}/{len(corpus)} as expected")
    print("  " + ", ".join(f"{count} {name}" for name, count in endings.most_common()))
    if "--verbose" in sys.argv:
        print(f"  layers: {dict(layers)}")
    for complaint in complaints:
        print(f"  ! {complaint}", flush=True)
    sys.stdout.flush()
    return len(complaints)


def as_nobody(command: list[str]) -> list[str]:
    """A command line that runs another one as nobody, with the interpreter readable."""
    script = f'exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups -- "$@"'
    hidden = [path for path in Path(sys.base_prefix).parents if not path.stat().st_mode & 0o001]
    if hidden:
        prefix, keep = sys.base_prefix, "/mnt"
        script = (
            f"mount --bind {prefix} {keep} && mount -t tmpfs -o mode=755 none {hidden[-1]} "
            f"&& mkdir -p {prefix} && mount --bind {keep} {prefix} && {script}"
        )
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


if __name__ == "__main__":
    sys.exit(main())
