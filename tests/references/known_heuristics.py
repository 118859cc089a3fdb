"""Score the shipped heuristics of the field: ``python -m tests.references.known_heuristics``.

The project's own evaluation scores them, in isolation, as it scores what a search finds. Takes minutes.
"""

from search_to_signal.base.progress import progress_display
from search_to_signal.problems.tsp import SCORES, known_heuristics
from search_to_signal.records.files import RecordWriter
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.study.scored_standings import score_programs

TIMEOUT_S = 1800.0


def main() -> None:
    """Write the scores anew."""
    codes = {sha256_text(known.program): known.program for known in known_heuristics()}
    SCORES.unlink(missing_ok=True)
    with progress_display() as progress, RecordWriter(SCORES) as writer:
        for scores in score_programs(codes, TIMEOUT_S, None, progress):
            writer.write(scores)


if __name__ == "__main__":
    main()
