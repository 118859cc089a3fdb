"""A group opened in the page of an audit: the files beside it, and what a browser makes of them."""

import csv
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.browser import needs_browser, visited
from tests.changed_logs import LOGS
from tests.command import Command
from tests.unit.audit import logs
from tests.unit.conftest import write_run

from search_to_signal import audit
from search_to_signal.audit.group_files import GroupTable

# Their records are nested, or rows of a database.
WITHOUT_TEXTS = {
    *("trl-wandb", "nemo-rl", "prime-rl", "prime-rl-tokens", "tinker", "ttt-discover", "s2s"),
    *("openevolve-checkpoint", "shinka"),
}
HOSTILE = '</script><script>hacked = 1</script><img src=x onerror="hacked = 1">\u2028\u2029\ud800 __proto__'
# Looks at the page as a reader does: links, controls and keys.
DRIVER = """<script>
(async () => {
  const seen = {}, one = (query) => document.querySelector(`#look ${query}`);
  const all = (query) => [...document.querySelectorAll(`#look ${query}`)];
  const until = async (holds) => {
    for (let tries = 0; tries < 400; tries++) {
      if (holds()) return;
      await new Promise((done) => { setTimeout(done, 20); });
    }
    throw new Error(`${holds}`);
  };
  const titled = (number) => one(".title").textContent.startsWith(`Group ${number},`);
  const opened = (number) => until(() => titled(number) && !one(".group").hidden);
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const choose = (name, value) => {
    one(`[name=${name}]`).value = value;
    one(`[name=${name}]`).dispatchEvent(new Event("input"));
  };
  try {
    await opened(601);
    seen.cards = all(".card pre").map((card) => card.textContent);
    seen.numbers = all(".numbers tr").map((row) => [...row.cells].map((cell) => cell.textContent));
    seen.prompt = one(".prompt").textContent;
    location.hash = "group=2";
    await opened(2);
    // Without what was added each is the text that it is compared with.
    seen.compared = all(".card").map((card) => {
      const nodes = [...card.querySelector("pre").childNodes];
      const without = (tag) => nodes.filter((node) => node.nodeName !== tag).map((node) => node.textContent);
      return [without("INS").join(""), without("DEL").join("")];
    });
    seen.marks = all("ins, del").length;
    const under = one("[name=under]");
    seen.under = [...under.options].map((option) => option.value);
    under.selectedIndex = 1;
    under.onchange();
    seen.chosen = all(".numbers tr").map((row) => row.cells[2].textContent);
    press("j");
    await opened(3);
    press("k");
    await opened(2);
    press("Escape");
    await until(() => one(".group").hidden);
    document.querySelector("a[href='#flag=dead']").click();
    await until(() => one("[name=flag]").value === "dead");
    seen.dead = one(".range").textContent;
    all(".rows a")[0].click();
    await opened(1);
    one("[name=next]").click();
    await opened(4);
    choose("flag", "");
    await until(() => one(".range").textContent.includes("of 620"));
    choose("q", "needle");
    await until(() => one(".range").textContent.startsWith("No"));
    one("form").requestSubmit();
    await until(() => all(".rows tr").length === 1);
    seen.found = one(".rows a").textContent;
    seen.said = one(".said").textContent;
    seen.hacked = typeof hacked;
    seen.images = document.images.length;
  } catch (error) { seen.error = `${error.stack}`; }
  document.body.innerHTML = "<pre id=seen></pre>";
  document.getElementById("seen").textContent = JSON.stringify(seen);
})();
</script></body>"""


def rollouts(groups: int = 620) -> list[dict[str, Any]]:
    """Groups of three, one in three dead; one holds a word that no other does, one is hostile."""
    rows = [
        {
            "group": f"g{group}",
            "step": group // 50,
            "reward": 1.0 if group % 3 == 0 else [0.0, 1.0, 0.25][at],
            "prompt": f"What is {group} plus one?",
            "response": f"First I take {group},\nthen add {['two', 'one', 'one or so'][at]}: {group + at}.\n",
            "label": "plain",
        }
        for group in range(groups)
        for at in range(3)
    ]
    if groups > 600:
        rows[1700]["response"] += "needle"
        rows[1800]["response"] = rows[1800]["prompt"] = HOSTILE
        for row in rows[1800:1803]:
            row |= {"label": HOSTILE, "group": HOSTILE, "components": {"__proto__": 1.0}}
    return rows


def script(path: Path) -> Any:
    """What a script beside the page hands over."""
    name, data = path.read_text(encoding="ascii").removeprefix("s2sPut(").removesuffix(");\n").split(",", 1)
    assert name == f'"{path.stem}"'
    assert "<" not in data
    return json.loads(data)


def texts_of(out: Path) -> dict[tuple[int, int], str]:
    """The text of each completion, by the number of its group and its place there."""
    pieces = [script(path) for path in (out / "groups").glob("t*.js")]
    return {(group, at): text for piece in pieces for group, at, _, text in piece["rows"]}


@needs_browser
@pytest.mark.slow
def test_a_reader_opens_groups_from_a_disk(tmp_path: Path, s2s: Command) -> None:
    rows = rollouts()
    log = logs.jsonl(tmp_path / "log.jsonl", rows)
    s2s("audit", log, "--normalizer", "verl-grpo", "--class", "label", "--out", tmp_path / "out")
    page = tmp_path / "out" / "audit.html"
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", DRIVER), encoding="utf-8")
    text, console = visited(f"{page.as_uri()}#group=601", tmp_path / "profile")
    seen = json.loads(text)
    assert "error" not in seen, seen
    assert console == []
    assert (seen["hacked"], seen["images"]) == ("undefined", 0)
    shown = HOSTILE.replace("\ud800", "\ufffd")
    assert [seen["cards"][0].replace("\ud800", "\ufffd"), seen["cards"][1]] == [shown, rows[1801]["response"]]
    assert seen["numbers"][1][1:3] == ["1", "1"]
    assert seen["prompt"] in (HOSTILE, shown, rows[1801]["prompt"])
    best, given = rows[4]["response"], [row["response"] for row in rows[3:6]]
    assert seen["compared"] == [[best if text != best else text, text] for text in given]
    assert seen["marks"] > 0
    with (tmp_path / "out" / "groups.csv").open(encoding="utf-8") as lines:
        row = list(csv.DictReader(lines))[1]
    assert seen["under"] == ["verl-grpo", "verl-dr-grpo"]
    assert seen["chosen"] == row["verl-dr-grpo"].split()
    assert seen["dead"] == "1–10 of 207 groups"
    assert seen["found"] == "567"
    assert "groups found: 1." in seen["said"]


def test_texts_are_those_of_their_completions(tmp_path: Path, s2s: Command) -> None:
    """Also where rows of a group stand apart, in two files, or under each other in one line."""
    rows = rollouts(4)
    apart = logs.jsonl(tmp_path / "apart.jsonl", sorted(rows, key=lambda row: str(row["response"])[::-1]))
    (tmp_path / "ranks").mkdir()
    for rank in range(2):
        logs.jsonl(tmp_path / "ranks" / f"rank{rank}.jsonl", rows[rank::2])
    for path in (apart, tmp_path / "ranks"):
        s2s("audit", path, "--out", tmp_path / "out")
        groups, found = tmp_path / "out" / "groups", texts_of(tmp_path / "out")
        names = script(groups / "index.js")["name"]
        (rewards,) = (cells for kind, _, cells in script(groups / "n0.js") if kind == "reward")
        told = {row["response"]: (row["group"], row["reward"]) for row in rows}
        for (group, at), text in found.items():
            assert told.pop(text) == (names[group], float(rewards[group].split()[at]))
        assert not told
    s2s("audit", logs.ms_swift(tmp_path), "--out", tmp_path / "out")
    assert texts_of(tmp_path / "out") == {(0, 0): "w", (0, 1): "x", (1, 0): "y", (1, 1): "z"}


@pytest.mark.parametrize("name", LOGS)
def test_equal_responses_have_equal_texts(name: str, tmp_path: Path) -> None:
    """In every format whose texts are read: what the audit took for a response is what the page shows."""
    table, responses = GroupTable((), 1000), dict[tuple[int, int], int]()
    for batch in audit.read(LOGS[name][0](tmp_path)):
        audit.audit(batch, each=table.add)
        number = len({group for group, _ in responses})
        for row, (group, response) in enumerate(zip(batch.group, batch.response.tolist(), strict=True)):
            responses[number + int(group), row - int(batch.offsets[group])] = response
    table.write_files(tmp_path)
    found = texts_of(tmp_path)
    assert bool(found) == (name not in WITHOUT_TEXTS)
    pairs = {(responses[place], text) for place, text in found.items() if responses[place]}
    assert len(pairs) == len({response for response, _ in pairs}) == len({text for _, text in pairs})


def test_a_run_of_this_package_has_its_texts(tmp_path: Path, s2s: Command) -> None:
    run = write_run(tmp_path / "run")
    s2s("audit", run, "--out", tmp_path / "out")
    records = (run / "completions.jsonl").read_text(encoding="utf-8").splitlines()
    hashes = [json.loads(line)["response_sha256"] for line in records]
    texts = [text for _, text in sorted(texts_of(tmp_path / "out").items())]
    assert [sha256(text.encode()).hexdigest() for text in texts] == hashes


def test_as_many_groups_as_asked_for(tmp_path: Path, s2s: Command) -> None:
    """Pieces of an earlier audit go, and what is not ours stays."""
    log, groups = logs.jsonl(tmp_path / "log.jsonl", rollouts()), tmp_path / "out" / "groups"
    s2s("audit", log, "--out", tmp_path / "out")
    assert sorted(path.name for path in groups.iterdir()) == ["index.js", "n0.js", "n1.js", "t0.js"]
    assert texts_of(tmp_path / "out")[600, 0] == HOSTILE
    (groups / "notes.js").write_text("mine", encoding="utf-8")
    s2s("audit", log, "--out", tmp_path / "out", "--groups", "7")
    index = script(groups / "index.js")
    assert (len(index["step"]), index["met"]) == (7, 620)
    assert set(range(len(index["prompts"]))) == {*index["prompt"]}
    assert {group for group, _ in texts_of(tmp_path / "out")} == set(range(7))
    assert sorted(path.name for path in groups.iterdir()) == ["index.js", "n0.js", "notes.js", "t0.js"]
    s2s("audit", log, "--groups", "0", code=2)
    # A step in two files, of which one has no row of the first group.
    (tmp_path / "ranks").mkdir()
    for rank in range(2):
        logs.jsonl(tmp_path / "ranks" / f"rank{rank}.jsonl", rollouts(4)[6 * rank : 6 * rank + 6])
    s2s("audit", tmp_path / "ranks", "--out", tmp_path / "ranked", "--groups", "1")
    assert {group for group, _ in texts_of(tmp_path / "ranked")} == {0}
    assert len((tmp_path / "out" / "groups.csv").read_text(encoding="utf-8").splitlines()) == 9


def test_words_are_explained_where_the_page_has_them(tmp_path: Path, s2s: Command) -> None:
    scalars = Path(__file__).parent / "real_scalars" / "wandb-0.31.0"
    s2s("audit", scalars, "--out", tmp_path / "scalars")
    s2s("audit", logs.jsonl(tmp_path / "log.jsonl", rollouts(4)), "--out", tmp_path / "rollouts")
    page, whole = ((tmp_path / name / "audit.html").read_text() for name in ("scalars", "rollouts"))
    assert "<dt>severity</dt>" in page
    assert "<dt>dead group</dt>" not in page
    assert "<script" not in page
    assert "<dt>dead group</dt>" in whole
