"""Reading what a model wrote."""

import re

OPENING = "The idea of the algorithm is to"


def idea_in(text):
    """The idea of an answer, or None."""
    braced = re.search(r"\{\{(.*?)\}\}", text, re.DOTALL)
    if braced:
        idea = braced.group(1)
    elif OPENING in text:
        idea = text[text.index(OPENING) :].split("```")[0]
    else:
        return None
    return idea if idea.startswith(OPENING) and len(idea) > len(OPENING) + 10 else None


def codes_in(text):
    """The python blocks of a text, stripped."""
    return [code.strip() for code in re.findall(r"```python(.*?)```", text, re.DOTALL | re.IGNORECASE)]


def component_in(idea):
    """The component that an idea says it adds, or None."""
    found = re.search(r"The new component([\w()\[\]'\- ]+?)has been introduced", idea)
    return found.group(1).strip() if found else None
