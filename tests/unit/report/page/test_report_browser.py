"""The pages in a real browser, as wide as a desk and as narrow as a phone."""

import functools
import json
import threading
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.browser import needs_browser, visited

pytestmark = [pytest.mark.slow, needs_browser]
WIDTHS = (1400, 390)
PAGES = ("report.html", "tables/paired.html", "ledger.html")

# Loads pages in frames of every width, looks at them, opens rows, and writes what it saw.
PROBE = """<!doctype html><link rel="icon" href="data:,"><body>
<script>
const [widths, pages] = %s, seen = {};
function look(frame, name, width) {
  const page = frame.contentDocument, root = page.documentElement;
  const all = (query) => [...page.querySelectorAll(query)];
  all("details.table").forEach((part) => { part.open = true; });
  const [heading, row] = [all("thead details")[0], all("tbody details")[0]];
  let panel = null;
  if (row) {
    heading.open = true; row.open = true;
    const box = row.querySelector("p").getBoundingClientRect();
    const top = page.elementFromPoint(width / 2, box.top + 20);
    panel = [box.left, box.right, box.bottom, frame.clientHeight, row.contains(top), !heading.open];
  }
  const wide = all("body *").filter((part) => !part.closest(".scroll, pre") && !part.closest("th details")
    && part.getBoundingClientRect().right > width + 0.5);
  seen[name + width] = {
    client: root.clientWidth, scroll: root.scrollWidth, wide: wide.map((part) => part.tagName),
    boxes: all(".scroll").filter((box) => box.scrollWidth > box.clientWidth).length,
    tables: all(".tables code").map((part) => part.textContent),
    figures: all("figure img").map((image) => image.complete && image.naturalWidth > 500),
    dangling: all("a[href^='#']").filter((link) => !page.getElementById(link.hash.slice(1))).length,
    panel,
    small: Math.min(...all("p, td, th, dd, figcaption").map((p) => parseFloat(getComputedStyle(p).fontSize))),
  };
}
let left = widths.length * pages.length;
for (const width of widths) for (const name of pages) {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width, height: 900, src: name, style: "border:0"});
  frame.onload = async () => {
    const images = [...frame.contentDocument.images];
    images.forEach((image) => { image.loading = "eager"; });
    await Promise.all(images.map((image) => image.decode()));
    look(frame, name, width);
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
        self.asked.append(self.path)
        if self.path != "/probe.html":
            super().do_GET()
            return
        body = (PROBE % json.dumps([WIDTHS, PAGES])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def visit(drawn_report: Path, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """One visit of headless Chromium to the pages."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    serve = functools.partial(handler, directory=str(drawn_report))
    server = ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/probe.html"
    seen, console = visited(address, tmp_path_factory.mktemp("profile"))
    server.shutdown()
    server.server_close()
    return Visit(json.loads(seen), asked, console)


def test_they_load_without_complaint_and_ask_for_their_own_pictures(visit: Visit, drawn_report: Path) -> None:
    assert visit.console == []
    assert visit.asked[0] == "/probe.html"
    pictures = {f"/figures/{path.name}" for path in (drawn_report / "figures").glob("*.png")}
    assert {f"/{page}" for page in PAGES} <= set(visit.asked[1:]) <= {f"/{page}" for page in PAGES} | pictures


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_wider_than_the_screen(visit: Visit, page: str, width: int) -> None:
    seen = visit.seen[f"{page}{width}"]
    assert seen["client"] == width
    assert seen["scroll"] == width
    assert seen["wide"] == []
    assert seen["small"] >= 11
    assert seen["dangling"] == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_there(visit: Visit, drawn_report: Path, width: int) -> None:
    seen = visit.seen[f"report.html{width}"]
    tables = {path.stem for path in drawn_report.glob("*.csv")}
    assert sorted(seen["tables"]) == sorted(tables - {"core_results"})
    assert seen["figures"] == [True] * len(list((drawn_report / "figures").glob("*.png")))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES[:2])
def test_a_row_opens_without_scripts_of_its_own(visit: Visit, page: str, width: int) -> None:
    left, right, bottom, height, on_top, closed = visit.seen[f"{page}{width}"]["panel"]
    assert (left, right, bottom) == (0, width, height)
    assert on_top
    assert closed
