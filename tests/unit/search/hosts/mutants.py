"""Changes of one fact of the stand-in, each of which the comparison of hosts must name.

By family of findings and by file: a name, the beginning of the finding's subject, and the text that changes,
with ⟦what stands there→what takes its place⟧.
"""

import re

TRAINER, UTILS, ARGS, HEURISTIC = "calm_trainer.py", "utils.py", "args.py", "heuristic.py"
PROBLEM, CONFIG = "problems/obp.py", "configs/obp/local.yaml"
SEED, TEMPLATE = "configs/obp/seed.py", "configs/obp/template.py"

_CHANGES: dict[tuple[str, str], list[tuple[str, str, str]]] = {
    ("data", PROBLEM): [("other instances", "instances", "seed(⟦2027→2028⟧)")],
    ("evaluators", SEED): [("another seed", "our seed as the released one", "score[1:] ⟦-=→+=⟧ score")],
    ("evaluators", PROBLEM): [
        ("another score", "our seed", "-(⟦100→100.0001⟧ *"),
        ("another bin", "released seed", "room ⟦>=→>⟧ item"),
        ("a size in another form", "arguments, the size", "function(⟦item→np.float64(item)⟧,"),
        (
            "capacities in another form",
            "arguments, the capacities",
            "function(item, room[fitting]⟦→.astype(int)⟧)",
        ),
        ("every bin", "arguments, every capacity", "np.nonzero(room >= ⟦item→0⟧)[0]"),
    ],
    ("evaluators", HEURISTIC): [
        ("state carried over", "a global count", "instance.play(⟦fresh(self.step_func)→self.step_func⟧)")
    ],
    ("parsing", UTILS): [
        ("a shorter idea", "ten characters of idea", "len(OPENING) + ⟦10→9⟧"),
        ("a loose idea ends within a line", "loose idea with ticks", r"(?:⟦\n→⟧```|"),
        ("a loose idea passes a tagged fence", "loose idea of a word, then code", r"(?:⟦\n```→```\n⟧|"),
        ("a loose idea is not stripped", "loose idea and blanks", ".group(1)⟦.strip()→⟧\n    else"),
        ("a loose idea ends at a bare line", "loose idea of a word, then code", r"(?:\n```⟦→\n⟧|"),
        (
            "a loose idea ends at any fence",
            "loose idea of a word, then code on",
            r"(?:\n⟦```→?`{{3,}}[^`]*\n⟧|",
        ),
        ("the longest idea", "braces within the idea", r'r"\{\{(.*⟦?→⟧)\}\}"'),
        ("an idea of one line", "an idea of two lines", r'r"\{\{(.*?)\}\}", text⟦, re.DOTALL→⟧'),
        ("an idea stripped", "blank before the opening", "idea = braced.group(1)⟦→.strip()⟧"),
        (
            "an idea that holds the opening",
            "words before the opening",
            "⟦idea.startswith(OPENING)→OPENING in idea⟧",
        ),
        (
            "any opening",
            "a small opening",
            "⟦idea.startswith(OPENING→idea.lower().startswith(OPENING.lower()⟧)",
        ),
        ("blocks of any tag", "untagged block", "```⟦python→(?:python)?⟧(.*?)```"),
        ("a line end after the tag", "code on the line of the tag", r"```python⟦→\n⟧(.*?)```"),
        ("the first function", "two functions", "⟦len(found) != 1→not found⟧"),
    ],
    ("parsing", TRAINER): [
        ("the first block", "two blocks", "if ⟦len(codes) > 1→False⟧:"),
        ("no randomness rule", "random in a comment", '⟦"random" in policy.code→False⟧'),
        ("randomness of any case", "Random in a comment", '"random" in ⟦policy.code→policy.code.lower()⟧'),
        (
            "randomness as a word",
            "random within a word",
            r'⟦"random" in policy.code→re.search(r"\brandom\b", policy.code)⟧',
        ),
    ],
    ("rewards", ARGS): [("a severity", "severity, no code", "-⟦0.95→0.94⟧")],
    ("rewards", TRAINER): [
        ("a severity of its own", "severity, no code", "None, ⟦args.reward_code→-0.94⟧"),
        ("a steeper reward", "replacement, worse", "-3 * change / ⟦8→7⟧"),
        ("a rounded copy constant", "crossover, a copy", "-⟦(1 / 5 + 2 / 5)→0.6⟧"),
        (
            "injection earns nothing",
            "injection, better",
            'if prompt.kind ⟦in TASKS→not in ("injection", "creation")⟧',
        ),
        ("simplification earns nothing", "simplification, better", 'if prompt.kind⟦ in TASKS→[0] in "irc"⟧'),
        ("creation earns something", "creation, a valid child", "in TASKS else ⟦0.0→1.0⟧"),
        (
            "creation raises",
            "creation, a valid child",
            "if ⟦prompt.kind in TASKS else 0.0→bases else max(bases)⟧",
        ),
        ("no least change", "better by the last bit", "smaller, ⟦1e-10→0.0⟧), 1.0)"),
        ("a larger cap", "worse many times over", "1e-10), ⟦1.0→2.0⟧) if"),
        (
            "copies of any member",
            "worse, equal to another, beside",
            ("return worth(policy.perf, bases⟦→ + [x.perf for x in self.algos if x.perf == policy.perf]⟧)"),
        ),
        (
            "bases of any member",
            "better, beside a member",
            "if ⟦algo.code.strip() in shown→algo is not policy⟧]",
        ),
    ],
    ("prompts", TRAINER): [
        (
            "creation without the template",
            "creation, template shown",
            "⟦{self.algorithm_template.strip()}→...⟧",
        ),
        ("the task last", "replacement, task first", "[⟦task, *shown→*shown, task⟧]"),
        ("worst first", "crossover, layout", "key=lambda algo: algo.perf)⟦[::-1]→⟧, start"),
        ("eleven components named", "injection, components", "[-⟦10→11⟧:]"),
        (
            "the same prompt again",
            "a round of four",
            ("if ⟦drawn is not None and drawn.text not in [used.text for used in self.used_prompts]→True⟧"),
        ),
        ("no description", "system text, description", "⟦{self.problem.description} →⟧"),
        ("no name", "system text, name", "⟦{self.problem.name}: →⟧"),
        ("randomness allowed", "system text, deterministic", "⟦deterministic, →⟧"),
        ("examples allowed", "system text, no usage examples", "without⟦ usage examples and→⟧"),
        ("single braces", "system text, opening phrase", "{{{⟦{{OPENING} ...}}→OPENING} ...⟧}}"),
        (
            "a system text for each operator",
            "system text, how many",
            'f"{⟦→prompt.kind} {⟧self.problem.name}: ',
        ),
        ("a sentence more", "words of system", "; nothing else.⟦→ Take your time.⟧"),
        ("a sentence less", "system text, an idea that explains", "⟦which explains itself, →⟧"),
        ("another word", "words of crossover", "Take ⟦both→each⟧ as"),
        (
            "unequal wordings",
            "wordings of replacement, how",
            ("⟦random.choice(TASKS[kind])→random.choices(TASKS[kind], [4, 3, 3][: len(TASKS[kind])])[0]⟧"),
        ),
        ("no rank", "simplification, layout", "⟦ and rank {rank}→⟧"),
        ("a shown rank from two", "a lesser parent, layout", "and rank {rank⟦→ + 1⟧}"),
        ("an index from zero", "crossover, layout", "No. {rank⟦→ - 1⟧}"),
        ("no unit", "replacement, layout", " ⟦{self.problem.unit} →⟧and"),
        (
            "the other equal parent first",
            "equal parents",
            "key=lambda algo: ⟦algo.perf)[::-1]→-algo.perf)⟧, start",
        ),
        (
            "one task last",
            "simplification, task first",
            '[⟦→*shown, task] if kind[0] == "s" else [⟧task, *shown]',
        ),
        (
            "the task of injection last",
            "injection, task first",
            '[⟦→*shown, task] if kind[0] == "i" else [⟧task, *shown]',
        ),
        ("components backwards", "injection, components", "[⟦-10:→:-11:-1⟧]"),
        ("words at the end", "crossover, words after", '".join([⟦task, *shown→*[task, *shown], "Well?"⟧])'),
        (
            "the template twice",
            "creation, template",
            "{self.algorithm_template.strip()}⟦→{self.algorithm_template.strip()}⟧",
        ),
        (
            "nothing of an earlier round",
            "a prompt of an earlier round",
            "        ⟦self.used_prompts = []\n        →⟧return [{",
        ),
    ],
    ("options", TEMPLATE): [
        ("another name in the template", "name of the template's function", "def ⟦step→rate⟧"),
        ("another template", "template", "⟦remaining_capacity→capacities⟧"),
        ("another answer in the template", "template", "return ⟦priorities→remaining_capacity⟧"),
    ],
    ("components", TRAINER): [
        ("components in the idea alone", "after the code", "component_in(⟦answer→policy.idea⟧)"),
        (
            "components of the admitted",
            "of a child not admitted",
            'if prompt.kind == "injection" ⟦→and policy in self.algos ⟧else',
        ),
        ("components twice", "known before", "if new⟦ and new not in self.injected_components→⟧"),
        ("components of any prompt", "after a replacement", '⟦if prompt.kind == "injection" else None→⟧'),
    ],
    ("components", UTILS): [
        ("square brackets", "square brackets", r"[A-Za-z()⟦→\[\]⟧'"),
        ("a component with a comma", "with a comma", r"[A-Za-z()'\-⟦→,⟧ ]"),
        ("a component of two lines", "over a line break", r"[A-Za-z()'\-⟦ →\s⟧]"),
        ("a component of words", "with an underscore", r"[⟦A-Za-z→\w⟧()'\- ]"),
        ("a component in small letters", "in small letters", '?){AFTER}", text⟦→, re.IGNORECASE⟧)'),
        ("a component not stripped", "blanks around", "found.group(1)⟦.strip()→⟧"),
    ],
    ("transition", TRAINER): [
        (
            "copies admitted",
            "1 members, archive",
            "if ⟦not any(abs(algo.perf - policy.perf) < SAME for algo in self.algos)→True⟧",
        ),
        (
            "a bounded archive",
            "12 members, archive",
            "            ⟦self.algos.append(policy)→self.algos = [*self.algos, policy][-12:]⟧",
        ),
        (
            "equal members in order",
            "listing",
            "sorted(self.algos, key=lambda algo: ⟦algo.perf)[::-1]→-algo.perf)⟧",
        ),
        (
            "random children admitted",
            "3 members",
            (
                "⟦→"
                'self.algos += [policy] * ("random" in policy.code)\n'
                "        ⟧return self.calm_args.reward_random if"
            ),
        ),
    ],
    ("stagnation", TRAINER): [
        ("always counting", "archive below", "self.age_stuck + ⟦full→1⟧"),
        (
            "a reset by the admitted alone",
            "child above the best by less than equality",
            "any(perf ⟦> top→>= top + SAME⟧ for perf in ran)",
        ),
        (
            "a reset by the bases",
            "child above its base alone",
            "any(⟦perf > top for perf in ran→reward > 1 for reward in rewards⟧)",
        ),
        ("never a reset", "child above the best", "⟦0 if any(perf > top for perf in ran) else →⟧"),
        (
            "a reset by failures",
            "failed child above",
            ("any(⟦perf > top for perf in ran→(policy.perf or top) > top for policy, _ in made if policy⟧)"),
        ),
        (
            "a reset by the last",
            "child above the best, first of two",
            "⟦any(perf > top for perf in ran)→rewards[-1] >= 0 and ran[-1] > top⟧",
        ),
        (
            "a full population and one",
            "full archive, child below",
            "len(self.algos) ⟦>=→>⟧ self.population_size",
        ),
        ("equal is better", "full archive, child equal", "any(perf ⟦>→>=⟧ top for"),
    ],
    ("collapse", TRAINER): [
        ("seeds lost", "best and seed", "*(⟦seed for seed in self.seed_algos→s for s in []⟧"),
        (
            "components forgotten",
            "best and seed, injected",
            ("self.used_prompts, ⟦self.age_stuck =→self.injected_components, self.age_stuck = [],⟧ [], 0"),
        ),
        ("an early collapse", "at counter 10", "speed_collapse * ⟦→20 * ⟧self"),
        ("another default threshold", "threshold -1", "args.max_steps // ⟦20→10⟧"),
        ("a default for -1 alone", "threshold -2", "limit ⟦< 0→== -1⟧ else"),
        (
            "the last of equal bests",
            "three equal bests",
            "best = max(self.algos⟦→[::-1]⟧, key=lambda algo: algo.perf)",
        ),
        ("steps forgotten", "best and seed, steps", "self.age_stuck = [], 0⟦→\n        self.log_step = 0⟧"),
        (
            "a counter from one",
            "at counter 1 and",
            "args.speed_collapse * ⟦self.age_stuck→(self.age_stuck + 1)⟧",
        ),
        ("a late threshold", "at counter", "self.age_stuck ⟦>=→>⟧ limit"),
    ],
    ("operators", TRAINER): [
        ("late crossover", "2 members", "if size < ⟦2→6⟧"),
        ("no first fill", "5 members", '"⟦injection"] = max(weights.values())→x"] = 0⟧'),
        ("one more than the largest weight", "1 members", "= max(weights.values())⟦→ + 1⟧"),
        (
            "an injection more",
            "14 members",
            '{kind: getattr(args, f"ub_{kind}") ⟦→+ (kind == "injection") ⟧for kind in TASKS}',
        ),
        ("a late first fill", "10 members", "if size ⟦<→<=⟧ self.population_size"),
        (
            "operators in turn",
            "one after another",
            (
                "⟦kind = random.choices(list(weights), list(weights.values()))[0→"
                "turns = [kind for kind in weights for _ in range(int(weights[kind]))]\n"
                '        self.turn = getattr(self, "turn", 0) + 1\n'
                "        kind = turns[self.turn % len(turns)⟧]"
            ),
        ),
    ],
    ("parents", TRAINER): [
        ("parents without rank", "5 members", "1 ⟦/ rank →⟧for"),
        ("an unfair coin", "14 members", "random.random() < ⟦0.5→0.9⟧ else"),
        ("a coin of 0.4", "one way", "random.random() < ⟦0.5→0.4⟧ else"),
        ("second parents of the archive", "by performance", "unequal(⟦head→algos⟧, first)"),
        ("diverse parents of the population", "one way", "else diverse(⟦algos→head⟧,"),
        (
            "equal second parents redrawn",
            "by performance",
            (
                "    ⟦second = by_rank(algos)\n"
                "    return second if abs(second.perf - first.perf) >= SAME→"
                "others = [algo for algo in algos if abs(algo.perf - first.perf) >= SAME]\n"
                "    while others and abs((second := by_rank(algos)).perf - first.perf) < SAME:\n"
                "        pass\n"
                "    return second if others⟧ else None"
            ),
        ),
        (
            "like second parents redrawn",
            "by diversity, some",
            (
                "    ⟦return second if distance(second, first) > 0 else None→"
                "if not any(distance(algo, first) > 0 for algo in algos):\n"
                "        return None\n"
                "    return second if distance(second, first) > 0 else diverse(algos, first)⟧"
            ),
        ),
        ("ranks from two", "by performance", "for rank in range(⟦1, len(algos) + 1→2, len(algos) + 2⟧)])"),
        ("steeper ranks", "by performance", "[⟦1 / rank→rank**-1.2⟧ for"),
        (
            "a repeated parent",
            "by performance",
            "second⟦ if abs(second.perf - first.perf) >= SAME else None→⟧",
        ),
        (
            "an equal parent",
            "by performance",
            "second if ⟦abs(second.perf - first.perf) >= SAME→second is not first⟧ else None",
        ),
        (
            "repeated words counted",
            "by diversity",
            (
                "    ⟦return len(words - known→"
                'words = re.findall(r"\\w+", algo.idea.lower())\n'
                "    return sum(word not in known for word in words⟧) / len(words)"
            ),
        ),
        ("case kept", "by diversity", "⟦idea.lower()→idea⟧"),
        ("words between blanks", "by diversity", r'⟦re.findall(r"\w+", idea.lower()→idea.lower().split(⟧)'),
        ("words of letters", "by diversity", r're.findall(r"⟦\w→[a-z]⟧+", idea.lower())'),
        (
            "a share of all words",
            "by diversity",
            "len(words ⟦- known) / len(words→^ known) / len(words | known⟧)",
        ),
        (
            "a share of the other's words",
            "by diversity",
            "len(⟦words - known) / len(words→known - words) / len(known⟧)",
        ),
        (
            "a head of nine",
            "14 members, single parents",
            "algos[: ⟦self.population_size→max(self.population_size - 1, 1)⟧]",
        ),
    ],
    ("prompts", UTILS): [
        (
            "padded performance",
            "simplification, layout",
            'return ⟦str(int(abs(number) * 1000) / 1000)→f"{int(abs(number) * 1000) / 1000:.3f}"⟧',
        ),
        (
            "rounded performance",
            "crossover, layout",
            "⟦int(abs(number) * 1000) / 1000→round(abs(number), 3)⟧",
        ),
        ("a sign", "crossover, layout", "int(⟦abs(number)→number⟧ * 1000)"),
    ],
    ("options", ARGS): [
        ("a larger population", "population size", "population_size: int = ⟦10→12⟧"),
        ("a weight of simplification", "operator weight of simplification", "fication: float = ⟦1.0→2.0⟧"),
        ("a weight of injection", "operator weight of injection", "injection: float = ⟦1.0→1.5⟧"),
        ("a weight of replacement", "operator weight of replacement", "replacement: float = ⟦2.0→1.0⟧"),
        ("a weight of crossover", "operator weight of crossover", "crossover: float = ⟦4.0→3.0⟧"),
        ("a faster collapse", "collapse speed", "⟦0.0005→0.005⟧"),
        ("fewer steps", "steps", "max_steps: int = ⟦500→400⟧"),
        ("more generations", "generations", "n_generations: int = ⟦4→8⟧"),
        ("more prompts", "prompts per step", "n_prompts: int = ⟦1→2⟧"),
        ("another learning rate", "learning rate", "5e-⟦5→6⟧"),
        ("another threshold", "collapse threshold", "max_stuck_threshold: int = ⟦-1→50⟧"),
        ("reward of no idea", "severity of missing_rationale", "reward_idea: float = -⟦1.0→2.0⟧"),
        ("reward of no code", "severity of missing_code", "-⟦0.95→0.94⟧"),
        ("reward of no function", "severity of missing_function", "-⟦0.90→0.95⟧"),
        ("reward of a failure", "severity of runtime_failure", "-⟦0.85→0.8⟧"),
        ("reward of randomness", "severity of randomness", "-⟦0.75→0.7⟧"),
    ],
    ("options", CONFIG): [
        ("a population in the configuration", "population size", "⟦log_name: local→population_size: 20⟧"),
        ("the template of another problem", "template", "template_fp: ⟦''→configs/tsp/template.py⟧"),
    ],
    ("options", HEURISTIC): [
        ("a longer time limit", "time limit", "TIME_LIMIT_S = ⟦60→90⟧"),
        ("a time limit of rounds", "time limit", "run_one_episode_sync, instances⟦→, 61⟧)"),
    ],
    ("options", TRAINER): [
        (
            "a directory as log",
            "log_dir",
            (
                "        ⟦with open(self.log_dir→"
                "os.makedirs(self.log_dir, exist_ok=True)\n"
                '        with open(os.path.join(self.log_dir, "rounds.jsonl")⟧, "a") as file:'
            ),
        )
    ],
    ("ties", TRAINER): [
        ("wider ties", "admission, just beyond", "SAME = 1e-⟦7→6⟧"),
        ("narrower ties", "admission, just within", "SAME = 1e-⟦7→8⟧"),
        (
            "wider ties of the admitted",
            "admission, just beyond",
            "abs(algo.perf - policy.perf) < ⟦SAME→1.02e-7⟧",
        ),
        (
            "members told apart by code",
            "admission, a member's code at another score",
            "⟦abs(algo.perf - policy.perf) < SAME→algo.code.strip() == policy.code.strip()⟧",
        ),
        (
            "members with other code are others",
            "admission, a member's score by other code",
            "abs(algo.perf - policy.perf) < SAME⟦→ and algo.code.strip() == policy.code.strip()⟧",
        ),
        ("wider ties of copies", "reward, just beyond", "abs(perf - base) < ⟦SAME→1.02e-7⟧"),
        ("narrower ties of copies", "reward, just within", "abs(perf - base) < ⟦SAME→0.98e-7⟧"),
        (
            "wider ties of parents",
            "second parents, just beyond",
            "abs(second.perf - first.perf) >= ⟦SAME→1.02e-7⟧",
        ),
        ("an open edge", "collapse, a seed at 1e-7", "abs(seed.perf - best.perf) ⟦>=→>⟧ SAME"),
        (
            "narrower ties of seeds",
            "collapse, a seed just within",
            "abs(seed.perf - best.perf) >= ⟦SAME→0.98e-7⟧",
        ),
    ],
}


def texts_of(change: str) -> tuple[str, str]:
    """The text before and after."""
    found = re.fullmatch(r"(.*?)⟦(.*?)→(.*?)⟧(.*)", change, re.DOTALL)
    assert found is not None, change
    head, old, new, tail = found.groups()
    return f"{head}{old}{tail}", f"{head}{new}{tail}"


MUTANTS = {
    name: (family, subject, file, *texts_of(change))
    for (family, file), changes in _CHANGES.items()
    for name, subject, change in changes
}
"""By name, as (family, subject, file, old, new)."""
