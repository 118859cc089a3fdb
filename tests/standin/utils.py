"""Reading what a model wrote, and writing prompts."""

import re

OPENING = "The idea of the algorithm is to"
BEFORE, AFTER = "The new component", "has been introduced"


def idea_in(text):
    """The idea of an answer, or None."""
    braced = re.search(r"\{\{(.*?)\}\}", text, re.DOTALL)
    loose = re.search(rf"({OPENING}.*?)(?:\n```|\Z)", text, re.DOTALL)
    if braced:
        idea = braced.group(1)
    elif loose:
        idea = loose.group(1).strip()
    else:
        return None
    return idea if idea.startswith(OPENING) and len(idea) > len(OPENING) + 10 else None


def codes_in(text):
    """The python blocks of a text, stripped."""
    return [code.strip() for code in re.findall(r"```python(.*?)```", text, re.DOTALL | re.IGNORECASE)]


def component_in(text):
    """The component that an answer says it adds, or None."""
    found = re.search(rf"{BEFORE}([A-Za-z()'\- ]+?){AFTER}", text)
    return found.group(1).strip() if found else None


def function_in(code):
    """The one function that a code defines; raises when it does not run, or defines none or several."""
    space = {}
    exec(code, space)
    found = [value for value in space.values() if callable(value) and hasattr(value, "__code__")]
    if len(found) != 1:
        raise LookupError(f"{len(found)} functions")
    return found[0]


def cut(number):
    """A size, cut after three decimals."""
    return str(int(abs(number) * 1000) / 1000)
