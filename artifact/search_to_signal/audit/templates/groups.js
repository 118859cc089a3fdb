"use strict";
// Texts of a log are hostile: they enter the page as text nodes only.
(() => {
  const SHOWN = 10, HELD = 30, COMPARED = 6e6;
  const root = document.getElementById("look");
  const part = (name) => root.querySelector(`.${name}, [name="${name}"]`);
  const arrived = new Map(), asked = new Map();
  let index = null, chosen = [], from = 0, shown = 0, searches = 0, found = {q: "", groups: new Set()};

  window.s2sPut = (name, data) => arrived.set(name, data);

  function load(name) {
    if (!asked.has(name)) {
      asked.set(name, new Promise((done, failed) => {
        const script = document.createElement("script");
        script.onload = () => { script.remove(); done(arrived.get(name)); arrived.delete(name); };
        script.onerror = () => failed(new Error(`groups/${name}.js does not load: keep the directory groups beside this page.`));
        script.src = `groups/${name}.js`;
        document.head.append(script);
      }));
      // What was asked for first is forgotten first.
      if (asked.size > HELD) asked.delete(asked.keys().next().value);
    }
    return asked.get(name);
  }

  function make(tag, set, ...inside) {
    const made = Object.assign(document.createElement(tag), set);
    made.append(...inside);
    return made;
  }

  const row = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, {}, text)));
  const counted = (number) => number.toLocaleString("en");
  const flags = (group) => index.flags.filter((_, bit) => index.marks[group] >> bit & 1);
  const state = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  function address(changes) {
    return `#${new URLSearchParams(Object.entries({...state(), ...changes}).filter(([, value]) => value !== ""))}`;
  }

  function opened({group = ""}) {
    const number = /^\d+$/.test(group) ? Number(group) - 1 : index.name.indexOf(group);
    return group !== "" && number < index.step.length ? number : -1;
  }

  // The groups that the address asks for.

  function choose({flag = "", step = "", q = ""}) {
    const bit = index.flags.findIndex(([name]) => name === flag), sought = q.toLowerCase();
    const fits = index.prompts.map((prompt) => prompt.toLowerCase().includes(sought));
    const within = found.q === q ? found.groups : new Set();
    chosen = [...index.step.keys()].filter((group) =>
      (flag === "" || (flag === "none" ? !index.marks[group] : index.marks[group] >> bit & 1))
      && (step === "" || index.step[group] === Number(step))
      && (fits[index.prompt[group]] || index.name[group].toLowerCase().includes(sought) || within.has(group)));
    part("meaning").textContent = bit < 0 ? "" : `${flag}: ${index.flags[bit][1]}.`;
  }

  function list(open) {
    const end = Math.min(from + SHOWN, chosen.length);
    part("rows").replaceChildren(...chosen.slice(from, end).map((group) => {
      const link = make("a", {href: address({group: group + 1})}, `${group + 1}`);
      const made = row("td", [link, index.step[group], index.prompts[index.prompt[group]] || index.name[group],
        index.size[group], index.mean[group], flags(group).map(([name]) => name).join(", ")]);
      if (group === open) made.setAttribute("aria-current", "true");
      return made;
    }));
    part("range").textContent = end ? `${counted(from + 1)}–${counted(end)} of ${counted(chosen.length)} groups` : "No group is like that.";
    part("earlier").disabled = from === 0;
    part("later").disabled = end >= chosen.length;
  }

  async function searchTexts(q) {
    const sought = q.toLowerCase(), run = ++searches, groups = new Set(), all = index.texts.length;
    part("said").textContent = all ? "" : "The log has no texts that are read here.";
    for (let piece = 0; piece < all && run === searches; piece++) {
      const {prompts, rows} = await load(`t${piece}`);
      const fits = prompts.map((prompt) => prompt.toLowerCase().includes(sought));
      for (const [group, , prompt, text] of rows) if (fits[prompt] || text.toLowerCase().includes(sought)) groups.add(group);
      part("said").textContent = `Texts searched: ${piece + 1} of ${all} files; groups found: ${counted(groups.size)}.`;
    }
    if (run === searches) {
      found = {q, groups};
      await show();
    }
  }

  // A text with what differs from another: by words, or by lines where words would be too many to compare.
  // Null where less than two fifths is common.

  function marked(text, other) {
    const words = [other, text].map((one) => one.match(/\s+|\S+/g) ?? []);
    return differences(...words) ?? differences(...[other, text].map((one) => one.match(/.*\n|.+/g) ?? []));
  }

  function differences(first, second) {
    let start = 0, end = 0;
    while (start < Math.min(first.length, second.length) && first[start] === second[start]) start++;
    while (end < Math.min(first.length, second.length) - start && first.at(-1 - end) === second.at(-1 - end)) end++;
    const [cut, added] = [first, second].map((whole) => whole.slice(start, whole.length - end)), width = added.length + 1;
    if (cut.length * added.length > COMPARED) return null;
    // The longest common subsequence of what follows each pair of tokens.
    const common = new Uint16Array((cut.length + 1) * width);
    for (let x = cut.length - 1; x >= 0; x--) for (let y = added.length - 1; y >= 0; y--) {
      const at = x * width + y;
      common[at] = cut[x] === added[y] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
    if (5 * (start + end + common[0]) < first.length + second.length) return null;
    const parts = [first.slice(0, start).join("")];
    for (let x = 0, y = 0; x < cut.length || y < added.length;) {
      const [fromX, fromY] = [x, y];
      while (x < cut.length && cut[x] === added[y]) [x, y] = [x + 1, y + 1];
      parts.push(cut.slice(fromX, x).join(""));
      const [toX, toY] = [x, y];
      while (x < cut.length && cut[x] !== added[y] && common[x * width + y] === common[(x + 1) * width + y]) x++;
      while (y < added.length && cut[x] !== added[y] && common[x * width + y] === common[x * width + y + 1]) y++;
      if (x > toX) parts.push(make("del", {}, cut.slice(toX, x).join("")));
      if (y > toY) parts.push(make("ins", {}, added.slice(toY, y).join("")));
    }
    return [...parts, first.slice(first.length - end).join("")];
  }

  // One group: its numbers, and its texts beside each other.

  async function textsOf(group) {
    const texts = Array(index.size[group]).fill(null);
    let asked = "";
    for (const [piece, [first, last]] of index.texts.entries()) {
      if (group < first || last < group) continue;
      const {prompts, rows} = await load(`t${piece}`);
      for (const [, one, prompt, text] of rows.filter(([owner]) => owner === group)) {
        texts[one] = text;
        asked = prompts[prompt];
      }
    }
    return {asked, texts};
  }

  // Columns of a group: kind, name and a value for each completion.
  async function columnsOf(group) {
    const piece = await load(`n${Math.floor(group / index.groups)}`), at = group % index.groups;
    return piece.filter(([, , cells]) => cells[at]?.length).map(([kind, name, {[at]: cell}]) =>
      [kind, name, typeof cell === "string" ? cell.split(" ") : cell]);
  }

  const ofKind = (columns, kind) => columns.find(([one]) => one === kind)?.[2] ?? [];

  function numbers(columns, texts) {
    const under = part("under").value, all = [...texts.keys()], masked = ofKind(columns, "masked"), taught = ofKind(columns, "taught");
    const known = ["reward", "part", "logged", "under", "tokens", "ended", "class"].flatMap((kind) =>
      columns.filter(([one, name]) => one === kind && (kind !== "under" || name === under)));
    const heads = known.map(([kind, name]) => ({logged: "advantage", under: `under ${name}`}[kind] ?? (name || kind)));
    part("heads").replaceChildren(row("th", ["", ...heads, ""]));
    part("numbers").replaceChildren(...all.map((one) => {
      const first = texts[one] === null ? one : texts.indexOf(texts[one]);
      const remarks = [first < one && `same text as ${first + 1}`, masked[one] === "1" && "left out of the loss", taught[one] !== "1" && "teaches nothing"];
      return row("td", [one + 1, ...known.map(([, , values]) => values[one]), remarks.filter(Boolean).join(", ")]);
    }));
  }

  function cards(rewards, texts) {
    // No completion where none is chosen.
    const reference = Number(part("reference").value) - 1;
    part("cards").replaceChildren(...texts.flatMap((text, one) => {
      if (text === null) return [];
      const apart = reference >= 0 && one !== reference, parts = apart ? marked(text, texts[reference]) : [text];
      const note = parts === null ? `differs throughout from ${reference + 1}` : one === reference ? "the others are compared with this"
        : apart && text === texts[reference] ? `same text as ${reference + 1}` : "";
      return [make("section", {className: one === reference ? "card chosen" : "card"},
        make("h4", {}, `${one + 1}`, make("span", {}, `reward ${rewards[one] ?? "–"}`), make("em", {}, note)),
        make("pre", {tabIndex: 0}, ...(parts ?? [text])))];
    }));
  }

  function offer(select, names, value) {
    select.replaceChildren(...names.map((name) => make("option", {}, name)));
    select.value = names.includes(value) ? value : names[0];
    select.parentNode.hidden = names.length < 2;
  }

  async function openGroup(group) {
    const run = ++shown, columns = await columnsOf(group), {asked, texts} = await textsOf(group);
    if (run !== shown) return;
    part("title").textContent = `Group ${group + 1}, step ${index.step[group]}${index.name[group] && `: ${index.name[group]}`}`;
    part("place").textContent = `${index.files[index.file[group]]}:${index.position[group]}`;
    part("flags").replaceChildren(...flags(group).map(([name, meaning]) => make("li", {}, make("strong", {}, name), ` ${meaning}`)));
    part("prompt").textContent = asked;
    part("asked").hidden = asked === "";
    part("none").hidden = texts.some((text) => text !== null);
    // What got less is best understood beside what got most.
    const rewards = ofKind(columns, "reward"), best = rewards.map(Number).indexOf(Math.max(...rewards.map(Number)));
    offer(part("reference"), ["none", ...texts.flatMap((text, one) => (text === null ? [] : [`${one + 1}`]))], `${best + 1}`);
    offer(part("under"), columns.filter(([kind]) => kind === "under").map(([, name]) => name), part("under").value);
    const draw = () => { numbers(columns, texts); cards(rewards, texts); };
    part("reference").onchange = part("under").onchange = draw;
    draw();
    const at = chosen.indexOf(group);
    part("previous").disabled = at < 1;
    part("next").disabled = at < 0 || at + 1 >= chosen.length;
    part("group").hidden = false;
    part("group").scrollIntoView();
    if (!part("group").contains(document.activeElement)) part("title").focus({preventScroll: true});
  }

  // The address says what is shown; controls, links and keys change the address.

  async function show() {
    const now = state(), open = opened(now);
    now.q ??= now.prompt;
    for (const name of ["flag", "step", "q"]) if (document.activeElement !== part(name)) part(name).value = now[name] ?? "";
    choose(now);
    from = SHOWN * Math.floor(Math.max(chosen.indexOf(open), 0) / SHOWN);
    list(open);
    if (open >= 0) await openGroup(open);
    else part("group").hidden = Boolean(++shown);
  }

  function turn(by) {
    const to = chosen[chosen.indexOf(opened(state())) + by];
    if (to !== undefined) location.hash = address({group: to + 1});
  }

  const report = (error) => { part("said").textContent = error.message; };
  const close = () => { location.hash = address({group: ""}); };
  const page = (by) => { from += by * SHOWN; list(opened(state())); };

  function listen() {
    const done = {earlier: () => page(-1), later: () => page(1), previous: () => turn(-1), next: () => turn(1), close};
    for (const [name, act] of Object.entries(done)) part(name).onclick = act;
    for (const name of ["flag", "step", "q"]) part(name).oninput = () => {
      searches++;
      part("said").textContent = "";
      location.replace(address({[name]: part(name).value, prompt: "", group: ""}));
    };
    part("wanted").onsubmit = (event) => { event.preventDefault(); searchTexts(part("q").value).catch(report); };
    window.addEventListener("hashchange", () => {
      // A link from a table of the page leads here.
      if (!root.contains(document.activeElement)) root.scrollIntoView();
      show().catch(report);
    });
    document.addEventListener("keydown", (event) => {
      if (part("group").hidden || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select")) return;
      const scrolls = event.target.closest("pre, .scroll");
      if (event.key === "k" || (event.key === "ArrowLeft" && !scrolls)) turn(-1);
      if (event.key === "j" || (event.key === "ArrowRight" && !scrolls)) turn(1);
      if (event.key === "Escape") close();
    });
  }

  // Flags and prompts in tables of the page lead to their groups.
  function link(counts) {
    for (const table of document.querySelectorAll("table")) {
      const kind = {found: "flag", prompt: "prompt"}[table.querySelector("th")?.textContent];
      for (const cell of kind ? table.querySelectorAll("td:first-child") : []) {
        const text = cell.textContent;
        if (kind === "prompt" ? text : counts.get(text)) cell.replaceChildren(make("a", {href: `#${new URLSearchParams({[kind]: text})}`}, text));
      }
    }
  }

  load("index").then((data) => {
    index = data;
    const counts = new Map(index.flags.map(([name], bit) => [name, index.marks.filter((marks) => marks >> bit & 1).length]));
    for (const [name, count] of counts) if (count) part("flag").append(make("option", {value: name}, `${name} (${counted(count)})`));
    const all = index.step.length;
    part("said").textContent = all < index.met ? `The first ${counted(all)} of ${counted(index.met)} groups are here: --groups ${index.met} writes all.` : "";
    part("body").hidden = false;
    link(counts);
    listen();
    return show();
  }).catch(report);
})();
