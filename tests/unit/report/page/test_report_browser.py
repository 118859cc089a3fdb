"""The page in a real browser, as wide as a desk and as narrow as a phone."""

import functools
import html
import json
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
]
WIDTHS = (1280, 390)

# Loads the page in a frame of every width, looks at it, opens cells, and writes what it saw.
PROBE = """<!doctype html><link rel="icon" href="data:,"><body>
<script>
const widths = %s, seen = {};
function look(frame, width) {
  const page = frame.contentDocument, root = page.documentElement;
  const all = (query) => [...page.querySelectorAll(query)];
  all("details.table").forEach((part) => { part.open = true; });
  const cells = all("td details");
  cells[0].open = true; cells[5].open = true;
  const panel = cells[5].querySelector("p").getBoundingClientRect();
  const wide = all("body *").filter((part) => !part.closest(".scroll, pre") && !part.closest("td details")
    && part.getBoundingClientRect().right > width + 0.5);
  seen[width] = {
    client: root.clientWidth, scroll: root.scrollWidth, wide: wide.map((part) => part.tagName),
    boxes: all(".scroll").filter((box) => box.scrollWidth > box.clientWidth).length,
    tables: all("[id^=table-]").map((part) => part.id.slice(6)),
    figures: all("figure img").map((image) => image.complete && image.naturalWidth > 500),
    dangling: all("a[href^='#']").filter((link) => !page.getElementById(link.hash.slice(1))).length,
    panel: [panel.left, panel.right, panel.bottom, frame.clientHeight],
    shown: cells[5].querySelector("code").textContent, closed: !cells[0].open,
    small: Math.min(...all("p, td, th, dd, figcaption").map((p) => parseFloat(getComputedStyle(p).fontSize))),
  };
}
let left = widths.length;
for (const width of widths) {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width, height: 900, src: "report.html", style: "border:0"});
  frame.onload = () => {
    look(frame, width);
    if (--left === 0) {
      document.body.innerHTML = "<pre id=seen></pre>";
      document.getElementById("seen").textContent = JSON.stringify(seen);
    }
  };
  document.body.append(frame);
}
</script>"""


@dataclass
class Visit:
    """What the browser saw at each width, what it asked for, and what it complained of."""

    seen: dict[str, Any]
    asked: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)


class _Handler(SimpleHTTPRequestHandler):
    """Serves a report and the probe, and remembers what was asked for."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        """Answer and remember."""
        self.asked.append(self.path)
        if self.path != "/probe.html":
            super().do_GET()
            return
        body = (PROBE % json.dumps(WIDTHS)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _browse(address: str, profile: Path) -> "subprocess.CompletedProcess[str]":
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=60000", "--window-size=1400,1000"]
    command += ["--hide-scrollbars", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


@pytest.fixture(scope="session")
def visit(drawn_report: Path, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """One visit of headless Chromium to the page."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    serve = functools.partial(handler, directory=str(drawn_report))
    server = ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = _browse(
        f"http://127.0.0.1:{server.server_address[1]}/probe.html", tmp_path_factory.mktemp("profile")
    )
    server.shutdown()
    server.server_close()
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[:2000] + done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Visit(json.loads(html.unescape(found[1])), asked, console)


def test_it_loads_without_complaint_and_asks_for_nothing(visit: Visit) -> None:
    """No message on the console, and no request but for the page itself."""
    assert visit.console == []
    assert visit.asked[0] == "/probe.html"
    assert set(visit.asked[1:]) == {"/report.html"}


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_screen(visit: Visit, width: int) -> None:
    """With all tables open, the page does not scroll sideways; wide tables scroll in their box."""
    seen = visit.seen[str(width)]
    assert seen["client"] == width
    assert seen["scroll"] == width
    assert seen["wide"] == []
    assert seen["boxes"] > 5
    assert seen["small"] >= 11


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_there(visit: Visit, drawn_report: Path, width: int) -> None:
    """Every table and every figure of the report is on the page, and every link leads somewhere."""
    seen = visit.seen[str(width)]
    assert sorted(seen["tables"]) == sorted(path.stem for path in drawn_report.glob("*.csv"))
    assert seen["figures"] == [True] * len(list((drawn_report / "figures").glob("*.png")))
    assert seen["dangling"] == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_a_number_opens_without_scripts_of_its_own(visit: Visit, width: int) -> None:
    """Its records are shown at the foot of the screen, and the number before it closes."""
    seen = visit.seen[str(width)]
    left, right, bottom, height = seen["panel"]
    assert (left, right, bottom) == (0, width, height)
    assert seen["shown"].startswith("s2s trace . core_results ")
    assert seen["closed"]
