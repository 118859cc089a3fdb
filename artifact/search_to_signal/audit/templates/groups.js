"use strict";
// Texts of a log are hostile: they enter the page as text nodes only.
(() => {
  const SHOWN = 10, HELD = 30, EDITS = 1500;
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
  const cells = (text) => (text ? text.split(" ") : []);
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
      for (const [group, , , prompt, texts] of rows) {
        if (fits[prompt] || texts.some((text) => text.toLowerCase().includes(sought))) groups.add(group);
      }
      part("said").textContent = `Texts searched: ${piece + 1} of ${all} files, ${counted(groups.size)} groups found.`;
    }
    if (run === searches) {
      found = {q, groups};
      await show();
    }
  }

  // What two texts differ in, by Myers' algorithm: pieces of 0 both texts, -1 the first, 1 the second.
  // Null where more differs than a person would read.

  function differences(first, second) {
    const most = Math.min(EDITS, Math.max(40, 0.3 * (first.length + second.length)));
    const middle = Math.ceil(most) + 1, ends = new Int32Array(2 * middle + 1), rounds = [];
    for (let edits = 0; edits <= most; edits++) {
      rounds.push(ends.slice(middle - edits - 1, middle + edits + 2));
      for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
        const below = ends[middle + diagonal - 1], above = ends[middle + diagonal + 1];
        let x = diagonal === -edits || (diagonal !== edits && below < above) ? above : below + 1;
        while (x < first.length && x - diagonal < second.length && first[x] === second[x - diagonal]) x++;
        ends[middle + diagonal] = x;
        if (x >= first.length && x - diagonal >= second.length) return traced(first, second, rounds);
      }
    }
    return null;
  }

  function traced(first, second, rounds) {
    const pieces = [];
    let x = first.length, y = second.length;
    for (let edits = rounds.length - 1; edits > 0; edits--) {
      const at = (diagonal) => rounds[edits][diagonal + edits + 1], diagonal = x - y;
      const adds = diagonal === -edits || (diagonal !== edits && at(diagonal - 1) < at(diagonal + 1));
      const before = at(adds ? diagonal + 1 : diagonal - 1);
      pieces.push([0, first.slice(adds ? before : before + 1, x).join("")]);
      x = before;
      y = before - (adds ? diagonal + 1 : diagonal - 1);
      pieces.push(adds ? [1, second[y]] : [-1, first[x]]);
    }
    return [...pieces, [0, first.slice(0, x).join("")]].reverse();
  }

  function marked(text, other) {
    const words = (one) => one.match(/\s+|\S+/g) ?? [], lines = (one) => one.match(/.*\n|.+/g) ?? [];
    const pieces = differences(words(other), words(text)) ?? differences(lines(other), lines(text));
    const parts = [];
    let cut = "", added = "";
    for (const [kind, piece] of pieces ? [...pieces, [0, "\n"]] : []) {
      if (kind === -1) cut += piece;
      if (kind === 1) added += piece;
      if (kind === 0 && piece) {
        parts.push(...(cut ? [make("del", {}, cut)] : []), ...(added ? [make("ins", {}, added)] : []), piece);
        cut = added = "";
      }
    }
    return pieces && parts;
  }

  // One group: its numbers, and its texts beside each other.

  async function textsOf(group, data) {
    const files = cells(data.file).map(Number), places = cells(data.position).map(Number), texts = files.map(() => null);
    let prompt = "";
    for (const [piece, [first, last]] of index.texts.entries()) {
      if (group < first || last < group) continue;
      const {prompts, rows} = await load(`t${piece}`);
      for (const [, file, place, at, given] of rows.filter(([owner]) => owner === group)) {
        const own = [...files.keys()].filter((one) => files[one] === file && places[one] === place);
        // A record with another number of completions does not say which of them were audited.
        if (own.length === given.length) own.forEach((one, number) => { texts[one] = given[number]; });
        prompt ||= prompts[at];
      }
    }
    return {prompt, texts};
  }

  function numbers(data, texts) {
    const under = part("under"), all = [...cells(data.file).keys()];
    const remarks = all.map((one) => [texts[one] !== null && texts.indexOf(texts[one]) < one && `same text as ${texts.indexOf(texts[one]) + 1}`,
      cells(data.masked)[one] === "1" && "left out of the loss", cells(data.taught)[one] !== "1" && "teaches nothing"].filter(Boolean).join(", "));
    const columns = [["reward", cells(data.reward)], ...data.parts.map(([name, text]) => [name, cells(text)]),
      ["advantage", cells(data.logged)], [`under ${under.value}`, cells(data.under[under.selectedIndex])],
      ["tokens", cells(data.tokens)], ["ended", data.status], ["class", data.label], ["", remarks]];
    const known = [["", all.map((one) => one + 1)], ...columns.filter(([, column]) => column?.some(Boolean))];
    part("heads").replaceChildren(row("th", known.map(([name]) => name)));
    part("numbers").replaceChildren(...all.map((one) => row("td", known.map(([, column]) => column[one] ?? "–"))));
  }

  function cards(data, texts) {
    const reference = part("reference").selectedIndex - 1, rewards = cells(data.reward);
    part("cards").replaceChildren(...texts.flatMap((text, one) => {
      if (text === null) return [];
      const apart = reference >= 0 && one !== reference, parts = apart ? marked(text, texts[reference] ?? "") : [text];
      const note = parts === null ? `differs throughout from ${reference + 1}` : one === reference ? "the others are compared with this"
        : apart && text === texts[reference] ? `same text as ${reference + 1}` : "";
      return [make("section", {className: one === reference ? "card chosen" : "card"},
        make("h4", {}, `${one + 1}`, make("span", {}, `reward ${rewards[one] ?? "–"}`), make("em", {}, note)),
        make("pre", {tabIndex: 0}, ...(parts ?? [text])))];
    }));
  }

  async function openGroup(group) {
    const run = ++shown, data = (await load(`n${Math.floor(group / index.groups)}`))[group % index.groups];
    const {prompt, texts} = await textsOf(group, data), rewards = cells(data.reward).map(Number), reference = part("reference");
    if (run !== shown) return;
    part("title").textContent = `Group ${group + 1}, step ${index.step[group]}${index.name[group] && `: ${index.name[group]}`}`;
    part("place").textContent = `${index.files[cells(data.file)[0]]}:${cells(data.position)[0]}`;
    part("flags").replaceChildren(...flags(group).map(([name, meaning]) => make("li", {}, make("strong", {}, name), ` ${meaning}`)));
    part("prompt").textContent = prompt;
    part("asked").hidden = prompt === "";
    const known = texts.some((text) => text !== null), best = rewards.indexOf(Math.max(...rewards));
    part("none").hidden = known;
    reference.parentNode.hidden = !known || texts.length < 2;
    reference.replaceChildren(make("option", {}, "none"), ...texts.map((_, one) => make("option", {}, `${one + 1}`)));
    // What got less is best understood beside what got most.
    reference.selectedIndex = reference.parentNode.hidden || (texts[best] ?? null) === null ? 0 : best + 1;
    const draw = () => { numbers(data, texts); cards(data, texts); };
    reference.onchange = part("under").onchange = draw;
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
    part("under").append(...index.under.map((name) => make("option", {}, name)));
    const all = index.step.length;
    part("said").textContent = all < index.met ? `The first ${counted(all)} of ${counted(index.met)} groups are here: --groups ${index.met} writes all.` : "";
    part("body").hidden = false;
    link(counts);
    listen();
    return show();
  }).catch(report);
})();
