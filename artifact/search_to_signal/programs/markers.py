"""The markers that prompts ask for and that parsing relies on (HOST.md, points 1 and 15)."""

OPENING = "The idea of the algorithm is to"
COMPONENT_BEFORE = "The new component"
COMPONENT_AFTER = "has been introduced"
