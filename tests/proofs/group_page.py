"""The page of an audit with 100,000 groups: what it takes to write, and to use in a real browser.

    python -m tests.proofs.group_page [GROUPS]

Groups of 8 completions with texts of about 120 characters. Seconds of the command are processor time, those
of the browser are of the clock. The page is read from a file, and reports to a server what it saw.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import unquote

from tests.benchmarks.records import of_process, written
from tests.browser import CHROMIUM
from tests.figures import print_figure

from search_to_signal.base.processes import command_line

DRIVER = """<script>
(async () => {
  const seen = [], one = (query) => document.querySelector(`#look ${query}`), last = LAST;
  const timed = async (name, act, holds) => {
    const start = performance.now();
    act();
    while (!holds()) await new Promise((done) => { setTimeout(done, 2); });
    seen.push(`${name} ${((performance.now() - start) / 1000).toFixed(2)} s`);
  };
  const opened = (number) => one(".title").textContent.startsWith(`Group ${number},`);
  const listed = (count) => one(".range").textContent.endsWith(`of ${count.toLocaleString("en")} groups`);
  const at = (hash) => () => { location.hash = hash; };
  await timed("load and open a group", () => {}, () => opened(last));
  await timed("open another", at("group=7"), () => opened(7));
  await timed("filter by flag", at("flag=dead"), () => listed(last / 4));
  await timed("no filter", at(""), () => listed(last));
  one("[name=q]").value = `is ${last + 6}.`;
  const searched = () => one(".said").textContent.includes("PIECES of");
  await timed("search every text", () => one("form").requestSubmit(), searched);
  seen.push(`${one(".said").textContent} ${Math.round(performance.memory.usedJSHeapSize / 1e6)} MB held`);
  new Image().src = `http://127.0.0.1:PORT/?${encodeURIComponent(seen.join(", "))}`;
})();
</script></body>"""


class _Report(BaseHTTPRequestHandler):
    """Keeps what the page says."""

    said = ""

    def do_GET(self) -> None:
        type(self).said = unquote(self.path.partition("?")[2])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def browser(address: str, profile: Path) -> Iterator[None]:
    """Chromium at an address."""
    assert CHROMIUM is not None
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}")
    with subprocess.Popen([CHROMIUM, *options, address], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def main(groups: int) -> None:
    """Write, measure, open."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        log, out = written(Path(place) / "rollouts.jsonl", groups, whole=True), Path(place) / "out"
        _, plain, least = of_process(*command_line("audit", str(log)))
        options = ("--groups", str(groups), "--out", str(out))
        _, seconds, memory = of_process(*command_line("audit", *options, str(log)))
        sizes = {path.name: path.stat().st_size / 1e6 for path in (out / "groups").iterdir()}
        kinds = {kind: sum(size for name, size in sizes.items() if name[0] == kind) for kind in "int"}
        pieces = sum(name.startswith("t") for name in sizes)
        server = HTTPServer(("127.0.0.1", 0), _Report)
        driver = DRIVER.replace("LAST", str(groups)).replace("PIECES", str(pieces))
        driver = driver.replace("PORT", str(server.server_address[1]))
        page = out / "audit.html"
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", driver), encoding="utf-8")
        server.timeout = 300
        with server, browser(f"{page.as_uri()}#group={groups}", Path(place) / "profile"):
            server.handle_request()
        print_figure(
            "group_page",
            f"python -m tests.proofs.group_page {groups}",
            f"{groups:,} groups of 8, a log of {log.stat().st_size / 1e6:.0f} MB: audit {plain:.0f} s, "
            f"{least} MB; with its page {seconds:.0f} s, {memory} MB; index {kinds['i']:.0f} MB, numbers "
            f"{kinds['n']:.0f} MB, texts {kinds['t']:.0f} MB in {pieces} files; in Chromium: {_Report.said}",
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
