"""The markers that prompts ask for and that parsing relies on (HOST.md, points 1 and 15)."""

OPENING = "The idea of the algorithm is to"
COMPONENT_BEFORE = "The new component"
COMPONENT_AFTER = "has been introduced"

ANSWER_RULES = (
    f'State the idea between double braces, starting with "{OPENING}". Then give one Python function in one '
    "python code block. It is deterministic. Answer nothing else."
)
"""What an answer has to look like to be parsed, in words for any prompt."""
