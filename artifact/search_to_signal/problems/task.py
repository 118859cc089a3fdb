"""What a problem offers to any prompt, whatever the host's words."""

from dataclasses import dataclass

from search_to_signal.problems.base import HasStatement, Problem


@dataclass(frozen=True)
class ProblemTask:
    """``statement`` is what is sought, ``description`` the same with how a heuristic is called.

    ``signature`` is the head of the function that a heuristic is, ``template`` the whole of an empty one.
    ``unit`` is what scores measure, of which less is better unless ``maximized``.
    """

    title: str
    statement: str
    description: str
    signature: str
    template: str
    unit: str
    maximized: bool


def task_of(problem: Problem) -> ProblemTask:
    """The task of a problem, as text; one without a statement of its own has its description there."""
    head = next((line for line in problem.template.splitlines() if line.startswith("def ")), "")
    return ProblemTask(
        title=problem.title,
        statement=problem.statement if isinstance(problem, HasStatement) else problem.description,
        description=problem.description,
        signature=head,
        template=problem.template.strip(),
        unit=problem.unit,
        maximized=problem.maximized,
    )
