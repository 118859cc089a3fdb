"""Changes of one rule of the stand-in that a comparison by marks and by mixed frequencies passes.

A change is (family, beginning of the finding's subject, file, text, text in its place).
"""

from tests.unit.search.hosts.settings_mutants import Mutant

_TRAINER, _UTILS, _PROBLEM = "calm_trainer.py", "utils.py", "problems/obp.py"
_Change = tuple[str, str, str]


def _of(family: str, file: str, changes: dict[str, _Change]) -> dict[str, Mutant]:
    return {name: (family, subject, file, old, new) for name, (subject, old, new) in changes.items()}


_WORDS = 're.findall(r"\\w+", idea.lower())'
_DISTANCE = "    return len(words - known) / len(words)"
_COUNTED = """    words = re.findall(r"\\w+", algo.idea.lower())
    return sum(word not in known for word in words) / len(words)"""
_EQUAL = "second if abs(second.perf - first.perf) >= SAME else None"
_UNEQUAL = f"    second = by_rank(algos)\n    return {_EQUAL}"
_REDRAWN = """    others = [algo for algo in algos if abs(algo.perf - first.perf) >= SAME]
    while others and abs((second := by_rank(algos)).perf - first.perf) < SAME:
        pass
    return second if others else None"""
_LIKE = "    return second if distance(second, first) > 0 else None"
_LIKE_REDRAWN = """    if not any(distance(algo, first) > 0 for algo in algos):
        return None
    return second if distance(second, first) > 0 else diverse(algos, first)"""
_RANKS = "for rank in range(1, len(algos) + 1)])"

_PARENTS: dict[str, _Change] = {
    "a coin of 0.4": ("one way", "random.random() < 0.5 else", "random.random() < 0.4 else"),
    "second parents of the archive": ("by performance", "unequal(head, first)", "unequal(algos, first)"),
    "diverse parents of the population": ("one way", "else diverse(algos,", "else diverse(head,"),
    "equal second parents redrawn": ("by performance", _UNEQUAL, _REDRAWN),
    "like second parents redrawn": ("by diversity, some", _LIKE, _LIKE_REDRAWN),
    "ranks from two": (
        "by performance",
        _RANKS,
        _RANKS.replace("(1, len(algos) + 1)", "(2, len(algos) + 2)"),
    ),
    "steeper ranks": ("by performance", "[1 / rank for", "[rank**-1.2 for"),
    "a repeated parent": ("by performance", _EQUAL, "second"),
    "an equal parent": ("by performance", _EQUAL, "second if second is not first else None"),
    "repeated words counted": ("by diversity", _DISTANCE, _COUNTED),
    "case kept": ("by diversity", "idea.lower()", "idea"),
    "words between blanks": ("by diversity", _WORDS, "idea.lower().split()"),
    "words of letters": ("by diversity", _WORDS, _WORDS.replace("\\w", "[a-z]")),
    "a share of all words": (
        "by diversity",
        "len(words - known) / len(words)",
        "len(words ^ known) / len(words | known)",
    ),
    "a share of the other's words": (
        "by diversity",
        "len(words - known) / len(words)",
        "len(known - words) / len(known)",
    ),
    "a head of nine": (
        "14 members, single parents",
        "algos[: self.population_size]",
        "algos[: max(self.population_size - 1, 1)]",
    ),
}

_WEIGHTS = '{kind: getattr(args, f"ub_{kind}") for kind in TASKS}'
_KIND = "kind = random.choices(list(weights), list(weights.values()))[0]"
_TURNS = """turns = [kind for kind in weights for _ in range(int(weights[kind]))]
        self.turn = getattr(self, "turn", 0) + 1
        kind = turns[self.turn % len(turns)]"""
_OPERATORS: dict[str, _Change] = {
    "an injection more": (
        "14 members",
        _WEIGHTS,
        _WEIGHTS.replace("for kind", '+ (kind == "injection") for kind'),
    ),
    "a late first fill": ("10 members", "if size < self.population_size", "if size <= self.population_size"),
    "operators in turn": ("one after another", _KIND, _TURNS),
}

_TASK = "[task, *shown]"
_TEMPLATE = "{self.algorithm_template.strip()}"
_PROMPTS: dict[str, _Change] = {
    "a sentence more": ("words of system", "; nothing else.", "; nothing else. Take your time."),
    "a sentence less": ("system text, an idea that explains", "which explains itself, ", ""),
    "another word": ("words of crossover", "Take both as", "Take each as"),
    "unequal wordings": (
        "wordings of replacement, how",
        "random.choice(TASKS[kind])",
        "random.choices(TASKS[kind], [4, 3, 3][: len(TASKS[kind])])[0]",
    ),
    "no rank": ("simplification, layout", " and rank {rank}", ""),
    "a shown rank from two": ("a lesser parent, layout", "and rank {rank}", "and rank {rank + 1}"),
    "an index from zero": ("crossover, layout", "No. {rank}", "No. {rank - 1}"),
    "no unit": ("replacement, layout", " {self.problem.unit} and", " and"),
    "the other equal parent first": (
        "equal parents",
        "key=lambda algo: algo.perf)[::-1], start",
        "key=lambda algo: -algo.perf), start",
    ),
    "one task last": ("simplification, task first", _TASK, f'[*shown, task] if kind[0] == "s" else {_TASK}'),
    "the task of injection last": (
        "injection, task first",
        _TASK,
        f'[*shown, task] if kind[0] == "i" else {_TASK}',
    ),
    "components backwards": ("injection, components", "[-10:]", "[:-11:-1]"),
    "words at the end": ("crossover, words after", f'".join({_TASK})', f'".join([*{_TASK}, "Well?"])'),
    "the template twice": ("creation, template", _TEMPLATE, _TEMPLATE * 2),
    "nothing of an earlier round": (
        "a prompt of an earlier round",
        "        self.used_prompts = []\n        return [{",
        "        return [{",
    ),
}

_KEPT = "best = max(self.algos, key=lambda algo: algo.perf)"
_STATES: dict[str, Mutant] = {
    **_of(
        "collapse",
        _TRAINER,
        {
            "the last of equal bests": (
                "three equal bests",
                _KEPT,
                _KEPT.replace("self.algos,", "self.algos[::-1],"),
            ),
            "steps forgotten": (
                "best and seed, steps",
                "self.age_stuck = [], 0",
                "self.age_stuck = [], 0\n        self.log_step = 0",
            ),
            "a counter from one": (
                "at counter 1 and",
                "args.speed_collapse * self.age_stuck",
                "args.speed_collapse * (self.age_stuck + 1)",
            ),
            "a late threshold": ("at counter", "self.age_stuck >= limit", "self.age_stuck > limit"),
        },
    ),
    **_of(
        "stagnation",
        _TRAINER,
        {
            "a reset by failures": (
                "failed child above",
                "any(perf > top for perf in ran)",
                "any((policy.perf or top) > top for policy, _ in made if policy)",
            ),
            "a reset by the last": (
                "child above the best, first of two",
                "any(perf > top for perf in ran)",
                "rewards[-1] >= 0 and ran[-1] > top",
            ),
            "a full population and one": (
                "full archive, child below",
                "len(self.algos) >= self.population_size",
                "len(self.algos) > self.population_size",
            ),
            "equal is better": ("full archive, child equal", "any(perf > top for", "any(perf >= top for"),
        },
    ),
    **_of(
        "transition",
        _TRAINER,
        {
            "equal members in order": (
                "listing",
                "sorted(self.algos, key=lambda algo: algo.perf)[::-1]",
                "sorted(self.algos, key=lambda algo: -algo.perf)",
            ),
            "random children admitted": (
                "3 members",
                "return self.calm_args.reward_random if",
                'self.algos += [policy] * ("random" in policy.code)\n'
                "        return self.calm_args.reward_random if",
            ),
        },
    ),
    **_of(
        "rewards",
        _TRAINER,
        {
            "no least change": ("better by the last bit", "smaller, 1e-10), 1.0)", "smaller, 0.0), 1.0)"),
            "a larger cap": ("worse many times over", "1e-10), 1.0) if", "1e-10), 2.0) if"),
            "copies of any member": (
                "worse, equal to another, beside",
                "return worth(policy.perf, bases)",
                "return worth(policy.perf, bases + [x.perf for x in self.algos if x.perf == policy.perf])",
            ),
            "bases of any member": (
                "better, beside a member",
                "if algo.code.strip() in shown]",
                "if algo is not policy]",
            ),
        },
    ),
    **_of(
        "components",
        _UTILS,
        {
            "a component with a comma": ("with a comma", "[A-Za-z()'\\- ]", "[A-Za-z()'\\-, ]"),
            "a component of two lines": ("over a line break", "[A-Za-z()'\\- ]", "[A-Za-z()'\\-\\s]"),
            "a component of words": ("with an underscore", "[A-Za-z()'\\- ]", "[\\w()'\\- ]"),
            "a component in small letters": (
                "in small letters",
                '?){AFTER}", text)',
                '?){AFTER}", text, re.IGNORECASE)',
            ),
            "a component not stripped": ("blanks around", "found.group(1).strip()", "found.group(1)"),
        },
    ),
}

_LOOSE = "(?:\\n```|"
_BRACED = r'r"\{\{(.*?)\}\}"'
_ANSWERS: dict[str, Mutant] = {
    **_of(
        "parsing",
        _UTILS,
        {
            "a loose idea ends at a bare line": ("loose idea of a word, then code", _LOOSE, "(?:\\n```\\n|"),
            "a loose idea ends at any fence": (
                "loose idea of a word, then code on",
                _LOOSE,
                "(?:\\n?`{{3,}}[^`]*\\n|",
            ),
            "the longest idea": ("braces within the idea", _BRACED, _BRACED.replace("*?", "*")),
            "an idea of one line": (
                "an idea of two lines",
                f"{_BRACED}, text, re.DOTALL",
                f"{_BRACED}, text",
            ),
            "an idea stripped": (
                "blank before the opening",
                "idea = braced.group(1)",
                "idea = braced.group(1).strip()",
            ),
            "an idea that holds the opening": (
                "words before the opening",
                "idea.startswith(OPENING)",
                "OPENING in idea",
            ),
            "any opening": (
                "a small opening",
                "idea.startswith(OPENING)",
                "idea.lower().startswith(OPENING.lower())",
            ),
            "blocks of any tag": ("untagged block", "```python(.*?)```", "```(?:python)?(.*?)```"),
            "a line end after the tag": (
                "code on the line of the tag",
                "```python(.*?)```",
                "```python\\n(.*?)```",
            ),
            "the first function": ("two functions", "len(found) != 1", "not found"),
        },
    ),
    **_of(
        "parsing",
        _TRAINER,
        {
            "randomness of any case": (
                "Random in a comment",
                '"random" in policy.code',
                '"random" in policy.code.lower()',
            ),
            "randomness as a word": (
                "random within a word",
                '"random" in policy.code',
                're.search(r"\\brandom\\b", policy.code)',
            ),
        },
    ),
    **_of(
        "evaluators",
        _PROBLEM,
        {
            "a size in another form": ("arguments, the size", "function(item,", "function(np.float64(item),"),
            "capacities in another form": (
                "arguments, the capacities",
                "function(item, room[fitting])",
                "function(item, room[fitting].astype(int))",
            ),
            "every bin": (
                "arguments, every capacity",
                "np.nonzero(room >= item)[0]",
                "np.nonzero(room >= 0)[0]",
            ),
        },
    ),
}

RULES: dict[str, Mutant] = {
    **_of("parents", _TRAINER, _PARENTS),
    **_of("operators", _TRAINER, _OPERATORS),
    **_of("prompts", _TRAINER, _PROMPTS),
    "a sign": ("prompts", "crossover, layout", _UTILS, "int(abs(number) * 1000)", "int(number * 1000)"),
    **_STATES,
    **_ANSWERS,
}
