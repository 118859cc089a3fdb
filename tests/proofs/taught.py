"""Whether leaving out native's copies predicts how tail-weighted answers, better than shares of credit do.

    s2s retrain EVIDENCE PLACE/native-s42 [...] --without copies --out ONE
    s2s retrain EVIDENCE PLACE/tail_weighted-s42 [...] --without nothing --out OTHER
    python -m tests.proofs.taught ONE/taught.json OTHER/taught.json

Tail-weighted pays less for copies than native. Two predictions of how its adapter answers are made from
native's records: native's adapter made again without the credit of copies; and native's adapter, less the
share of its training's effect that copies had of the positive advantage. Observed is the adapter of
tail-weighted's run of the same seed, on the same prompts. An error is the mean absolute difference over seeds
and columns. Both have to beat a third prediction: no difference to native.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from tests.figures import print_figure

from search_to_signal.verify.taught import ALL, CREDIT

NAME = re.compile(r"(.*/)native-s(\d+)")
WAYS = ("retrained", "by share", "no difference")
Rows = dict[str, dict[str, float | None]]


def rows_of(table: dict[str, Any]) -> Rows:
    """The values of a table by row and column."""
    return {
        row["label"]: dict(zip(table["columns"], (cell["value"] for cell in row["cells"]), strict=True))
        for row in table["rows"]
    }


def differences(levels: Rows, bought: Rows, native: str, other: str) -> dict[str, dict[str, float]]:
    """By column: tail-weighted minus native as observed, and as each way predicts it."""
    share = (bought[f"{native}/copies"][CREDIT] or 0.0) / 100
    found = {}
    for column, start in levels[f"{native}/without-nothing"].items():
        seen, copies = levels[f"{other}/without-nothing"][column], bought[f"{native}/copies"][column]
        whole = bought[f"{native}/{ALL}"][column]
        if start is None or seen is None or copies is None or whole is None:
            continue
        found[column] = {
            "observed": seen - start,
            "retrained": -copies,
            "by share": -share * whole,
            "no difference": 0.0,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--name", help="note the last line under this name")
    arguments = parser.parse_args()
    runs: dict[str, dict[str, Any]] = {}
    levels: Rows = {}
    bought: Rows = {}
    for file in arguments.results:
        result = json.loads(file.read_text(encoding="utf-8"))
        runs.update(result["runs"])
        levels.update(rows_of(result["tables"]["levels"]))
        bought.update(rows_of(result["tables"]["bought"]))
    by_column: dict[str, list[dict[str, float]]] = defaultdict(list)
    natives = list(filter(NAME.fullmatch, runs))
    for native in natives:
        other = native.replace("/native-s", "/tail_weighted-s")
        equal = [runs[name]["as_recorded"] for name in (native, other)]
        share = bought[f"{native}/copies"][CREDIT]
        print(f"{native}: copies have {share:.1f} % of the positive advantage; as recorded: {equal}")
        for column, row in differences(levels, bought, native, other).items():
            by_column[column].append(row)
            print(f"  {column}: " + ", ".join(f"{way} {value:+.4f}" for way, value in row.items()))
    print("\n| tail-weighted less native, means over seeds | observed | retrained | by share |")
    print("| :-- | --: | --: | --: |")
    for column, rows in by_column.items():
        cells = (f"{mean(row[way] for row in rows):+.4f}" for way in ("observed", "retrained", "by share"))
        print(f"| {column} | {' | '.join(cells)} |")
    said = []
    for unit in ("points", "nats"):
        percent = unit == "points"
        rows = [row for column, own in by_column.items() if column.endswith("(%)") == percent for row in own]
        if rows:
            errors = {way: mean(abs(row[way] - row["observed"]) for row in rows) for way in WAYS}
            nearer = sum(
                abs(row["retrained"] - row["observed"]) < abs(row["by share"] - row["observed"])
                for row in rows
            )
            text = ", ".join(f"{way} {error:.4f}" for way, error in errors.items())
            said.append(f"error in {unit}: {text}; retrained is nearer in {nearer} of {len(rows)}")
    model, groups = Path(runs[natives[0]]["model"]).name, runs[natives[0]]["groups"]
    printed = f"{model}, {groups} groups, seeds: {len(natives)}; {'; '.join(said)}"
    if arguments.name:
        print_figure(
            arguments.name, "python -m tests.proofs.taught ONE/taught.json OTHER/taught.json", printed
        )
    else:
        print(printed)


if __name__ == "__main__":
    main()
