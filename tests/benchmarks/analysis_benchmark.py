"""From records to tables and to the report: seconds and peak memory over 25 runs of 500 groups of 4.

    pytest tests/benchmarks/analysis_benchmark.py -s

The analysis runs in a process of its own, so that its peak memory is its own.
"""

import json
import subprocess
import sys
from pathlib import Path

from spec.synthetic_runs import write_synthetic_run

CODE = """
import json, resource, sys, time
from pathlib import Path
from search_to_signal.report.tables.catalogue import BUILDERS
from search_to_signal.report.tables.catalogue import build
from search_to_signal.report.results import NoTableError
from search_to_signal.report.results import Results
from search_to_signal.report.tables.cells import write_table
start = time.perf_counter()
results, out, seconds = Results(Path(sys.argv[1])), Path(sys.argv[2]), {}
results.cohort, results.restart
seconds["reading"] = time.perf_counter() - start
for name in BUILDERS:
    begin = time.perf_counter()
    try:
        write_table(build(results, name), out)
    except NoTableError:
        continue
    seconds[name] = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"total": time.perf_counter() - start, "peak_mib": peak, "parts": seconds}))
"""
REPORT = """
import json, resource, sys, time
from pathlib import Path
from search_to_signal.report.build import HTML
from search_to_signal.report.build import report
from search_to_signal.claims.page import write_ledger
start, out = time.perf_counter(), Path(sys.argv[2])
report(Path(sys.argv[1]), out, write_ledger)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
used = {"total": time.perf_counter() - start, "processor": time.process_time(), "peak_mib": peak}
print(json.dumps({**used, "page_mib": (out / HTML).stat().st_size / 2**20}))
"""
COHORT = ("frozen", "native", "factorized", "tail_weighted")
SEEDS = (42, 3407, 1926000, 7, 11)
GROUPS = 500


def make(root: Path) -> int:
    """A cohort of four conditions and five seeds, and five restarts: 25 runs."""
    for seed in SEEDS:
        for condition in COHORT:
            adapter = None if condition == "frozen" else f"{condition} {seed}"
            where = root / "cohort" / f"{condition}-s{seed}"
            write_synthetic_run(where, condition, seed, groups=GROUPS, final_adapter_sha256=adapter)
        where = root / "restart" / f"tail_weighted-s{seed}"
        write_synthetic_run(
            where,
            "tail_weighted",
            seed,
            groups=GROUPS,
            layer="restart",
            config={"parent": {"run": f"../../cohort/tail_weighted-s{seed}"}},
            initial_adapter_sha256=f"tail_weighted {seed}",
        )
    return len(list(root.rglob("manifest.json")))


def test_full_cohort_from_records_to_tables(tmp_path: Path) -> None:
    """All tables of 25 runs in under a minute and under 1 GB."""
    runs = make(tmp_path / "results")
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", CODE, str(tmp_path / "results"), str(tmp_path / "out")]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"\n{runs} runs of {GROUPS} groups: {found['total']:.1f} s, peak {found['peak_mib']:.0f} MiB")
    for name, seconds in sorted(found["parts"].items(), key=lambda item: -item[1]):
        print(f"  {name:20s} {seconds:7.2f} s")
    assert found["total"] < 60
    assert found["peak_mib"] < 1024


def test_full_cohort_from_records_to_report(tmp_path: Path) -> None:
    """Tables, figures, ledger and page of 25 runs in under a minute and under 1 GB; the page under 5 MB."""
    runs = make(tmp_path / "results")
    command = [sys.executable, "-c", REPORT, str(tmp_path / "results"), str(tmp_path / "report")]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"\n{runs} runs of {GROUPS} groups: {', '.join(f'{k} {v:.1f}' for k, v in found.items())}")
    assert found["total"] < 60
    assert found["peak_mib"] < 1024
    assert found["page_mib"] < 5
