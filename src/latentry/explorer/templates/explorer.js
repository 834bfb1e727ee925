// The explorer's page: lists latents, searches and sorts them, shows one. All data comes in chunks, as scripts, since a page
// opened from disk may fetch nothing. Text is only ever put into the page as text: nothing here writes markup.
"use strict";

const PAGE = 50, KEPT_CHUNKS = 300;
const $ = (id) => document.getElementById(id);
const chunks = new Map();
let meta, state = {}, shown = {rows: null, n: 0}, chosen = 0, turn = 0;

// ---- chunks

function latentry_chunk(name, value) { chunks.get(name)?.resolve(value); }

function chunk(name) {
  if (!chunks.has(name)) {
    const entry = {};
    entry.promise = new Promise((resolve, reject) => Object.assign(entry, {resolve, reject}));
    chunks.set(name, entry);
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onload = () => script.remove();
    script.onerror = () => { chunks.delete(name); entry.reject(new Error(`data/${name}.js cannot be read; fetch the whole report folder`)); };
    document.head.append(script);
    if (chunks.size > KEPT_CHUNKS) chunks.delete([...chunks.keys()].find((key) => /^(rows|details|words)/.test(key)));
  }
  return chunks.get(name).promise;
}

function numbers(base64) {
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(base64) : Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Uint32Array(bytes.buffer);
}

// ---- search

const UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]/;

function wordsOf(text) {
  const found = [];
  for (const run of text.normalize("NFKC").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []) {
    let part = "";
    for (const character of run) {
      if (UNSPACED.test(character)) { found.push(character); if (part) found.push(part); part = ""; } else part += character;
    }
    if (part) found.push([...part].slice(0, 40).join(""));
  }
  return [...new Set(found)];
}

function fileOf(word) {
  let value = 0x811c9dc5;
  for (const character of [...word].slice(0, 2)) value = Math.imul(value ^ character.codePointAt(0), 0x01000193) >>> 0;
  return value % meta.n_word_files;
}

async function matching(query) {
  const words = wordsOf(query);
  if (!words.length) return null;
  const held = await Promise.all(words.map((word) => chunk(`words/${fileOf(word)}`)));
  const mask = new Uint8Array(meta.n_rows);
  words.forEach((word, place) => {
    const whole = [...word].length < 2;  // one character alone begins too much: it is a word of its own
    for (const known of Object.keys(held[place])) {
      if (whole ? known === word : known.startsWith(word)) {
        for (const row of numbers(held[place][known])) if (mask[row] === place) mask[row] = place + 1;
      }
    }
  });
  return {mask, wanted: words.length};
}

async function listed() {
  const order = state.sort === "" ? null : numbers(await chunk(`orders/${state.sort}`));
  const found = await matching(state.q);
  const sae = meta.saes.find((one) => one.name === state.sae);
  const [first, last] = sae ? [sae.first, sae.first + sae.n] : [0, meta.n_rows];
  const n_valued = order ? meta.orders[state.sort].n : meta.n_rows;
  const at = (place) => !state.ascending ? place : place < n_valued ? n_valued - 1 - place : place;
  const rows = new Uint32Array(found || sae ? meta.n_rows : 0);
  let n = 0;
  if (!found && !sae) return {n: meta.n_rows, at: (place) => order ? order[at(place)] : at(place)};
  for (let place = 0; place < meta.n_rows; place++) {
    const row = order ? order[at(place)] : at(place);
    if (row >= first && row < last && (!found || found.mask[row] === found.wanted)) rows[n++] = row;
  }
  return {n, at: (place) => rows[place]};
}

// ---- building the page

function make(tag, settings = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) name === "class" ? (element.className = value) : element.setAttribute(name, value);
  element.append(...inside.filter((one) => one !== null && one !== undefined));
  return element;
}

// What turns the direction of writing, or is no character, stands as a sign.
const visible = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0))).replace(/\u007f/g, "\u2421").replace(/[\u0080-\u009f\u202d\u202e]/g, "\ufffd");
const said = (text) => make("bdi", {dir: "auto"}, visible(text));
const shownNumber = (value, digits = 2) => value === null || value === undefined ? "–" : value.toFixed(digits);
const percent = (value) => value === null || value === undefined ? "–" : `${(100 * value).toPrecision(3)} %`;
const saeOf = (row) => meta.saes.find((one) => row >= one.first && row < one.first + one.n);
const link = (row, latent) => `#${new URLSearchParams({...kept(), latent: `${saeOf(row).name}/${latent}`})}`;

function kept(changes = {}) {
  const all = {q: state.q, sae: state.sae, sort: state.sort, ascending: state.ascending ? "1" : "", from: state.from ? String(state.from) : "", ...changes};
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ""));
}

function highlighted(text) {
  const words = wordsOf(state.q).filter((word) => [...word].length > 1);
  if (!words.length) return [said(text)];
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, "")).join("|")})`, "giu");
  const whole = said("");
  text = visible(text);
  let done = 0;
  for (const hit of text.matchAll(pattern)) {
    whole.append(text.slice(done, hit.index), make("mark", {class: "hit"}, hit[0]));
    done = hit.index + hit[0].length;
  }
  whole.append(text.slice(done));
  return [whole];
}

async function rowAt(row) { return (await chunk(`rows/${Math.floor(row / meta.rows_per_chunk)}`))[row % meta.rows_per_chunk]; }

async function showList() {
  const mine = ++turn;
  const started = performance.now();
  const list = await listed();
  const places = Array.from({length: Math.max(0, Math.min(PAGE, list.n - state.from))}, (_, place) => state.from + place);
  const rows = await Promise.all(places.map(async (place) => [list.at(place), await rowAt(list.at(place))]));
  if (mine !== turn) return;
  shown = list;
  $("rows").replaceChildren(...rows.flatMap(([row, found]) => lines(row, found)));
  $("latent").hidden = true;
  $("list").hidden = false;
  $("place").textContent = list.n ? `${(state.from + 1).toLocaleString("en")} to ${(state.from + rows.length).toLocaleString("en")} of ${list.n.toLocaleString("en")}` : "";
  $("earlier").disabled = state.from === 0;
  $("later").disabled = state.from + PAGE >= list.n;
  tell(list.n ? `${list.n.toLocaleString("en")} latent${list.n === 1 ? "" : "s"}` : nothing());
  document.title = "latentry: latents";
  document.body.dataset.took = String(performance.now() - started);
  choose(0, false);
}

function nothing() {
  return meta.n_rows ? `No latent's explanation has ${state.q ? `words beginning with “${state.q}”` : "anything"}${state.sae ? ` in ${state.sae}` : ""}.` : "No latents yet: no SAE has examples.";
}

function lines(row, [latent, status, frequency, texts, scores, label]) {
  const sae = saeOf(row), found = texts.map((text, explainer) => [text, explainer]).filter(([text, explainer]) => text || scores.some((one) => one[0] === explainer));
  if (!found.length) found.push([null, null]);
  return found.map(([text, explainer], place) => {
    const first = place === 0;
    const line = make("tr", {class: `${first ? "first" : ""} ${place === found.length - 1 ? "last" : ""}`, "data-row": row, "data-latent": latent},
      make("td", {}, first ? sae.name : ""),
      make("td", {class: "n"}, first ? make("a", {href: link(row, latent)}, label) : ""),
      make("td", {class: "text"}, ...(text ? highlighted(text) : [make("span", {class: status === "ok" ? "dim" : "failed"}, explainer === null ? status.replaceAll("_", " ") : "needs no explanation")])),
      make("td", {class: "dim"}, explainer === null ? "" : meta.explainers[explainer]),
      make("td", {class: "n", "data-label": "fires at"}, first ? percent(frequency) : ""),
      ...meta.scorers.map((scorer, at) => {
        const score = scores.find((one) => one[0] === explainer && one[1] === at);
        return make("td", {class: "n", "data-label": scorer.name}, score ? shownNumber(score[2]) : "");
      }));
    line.addEventListener("click", (event) => { if (!event.target.closest("a") && !String(getSelection())) location.hash = link(row, latent).slice(1); });
    return line;
  });
}

function head() {
  const chance = (scorer) => scorer.chance === null ? "see the null" : `chance ${scorer.chance}`;
  $("columns").replaceChildren(make("tr", {}, make("th", {scope: "col"}, "SAE"), make("th", {scope: "col", class: "n"}, "Latent"), make("th", {scope: "col"}, "Explanation"),
    make("th", {scope: "col"}, "Explainer"), make("th", {scope: "col", class: "n"}, "Fires at", make("small", {}, "of tokens")),
    ...meta.scorers.map((scorer) => make("th", {scope: "col", class: "n", title: scorer.definition}, scorer.name, make("small", {}, `${scorer.metric}, ${chance(scorer)}`)))));
  $("sae").replaceChildren(make("option", {value: ""}, "all"), ...meta.saes.map((sae) => make("option", {value: sae.name}, sae.name)));
  $("sort").replaceChildren(make("option", {value: ""}, "the sample's order"),
    ...meta.orders.map((order, place) => make("option", {value: String(place)}, order.explainer ? `${order.name} of ${order.explainer}` : order.name)));
}

function tell(text, failed = false) { $("said").textContent = text; $("said").className = failed ? "failed" : ""; }

// ---- one latent

async function find(name) {
  const slash = name.lastIndexOf("/"), sae = meta.saes.find((one) => one.name === name.slice(0, slash)), latent = name.slice(slash + 1);
  if (!sae) throw new Error(`there is no SAE ${name.slice(0, slash)}`);
  const held = await chunk(`words/${fileOf(latent)}`);
  for (const row of held[latent] ? numbers(held[latent]) : []) {
    if (row >= sae.first && row < sae.first + sae.n && String((await rowAt(row))[0]) === latent) return row;
  }
  throw new Error(`latent ${latent} of ${sae.name} is not among those asked for`);
}

async function showLatent(name) {
  const mine = ++turn;
  const row = await find(name), sae = saeOf(row);
  const [one, listing] = [(await chunk(`details/${Math.floor(row / meta.details_per_chunk)}`))[row % meta.details_per_chunk], await rowAt(row)];
  const near = await Promise.all(one.similar.map(async ([other, cosine]) => [other, cosine, await rowAt(other)]));
  if (mine !== turn) return;
  $("latent").replaceChildren(
    make("h2", {tabindex: "-1"}, `${sae.name}, latent ${one.label}`), facts(one, listing, sae), explanations(one), tokens("Fires at", one.fires_at?.map(([text, share]) => [text, percent(share)])),
    make("div", {class: "columns"}, tokens("Promotes", one.promotes?.map((text) => [text])) ?? "", tokens("Suppresses", one.suppresses?.map((text) => [text])) ?? ""),
    histogram(one) ?? "", examples(one), make("div", {class: "columns"}, similar(near) ?? "", matches(one) ?? ""), inputs(one) ?? "", provenance(one, sae));
  $("list").hidden = true;
  $("latent").hidden = false;
  tell("");
  document.title = `${sae.name} ${one.label}: latentry`;
  $("latent").querySelector("h2").focus({preventScroll: true});
  scrollTo(0, 0);
}

function facts(one, listing, sae) {
  const all = [["Status", one.status === "ok" ? "ok" : `${one.status.replaceAll("_", " ")}: ${one.detail}`], ["Fires at", percent(listing[2])], ["Tokens", one.firing_count?.toLocaleString("en")], ["Windows", percent(one.window_fraction)],
    ["Median", one.median], ["90 %", one.quantile_90], ["99 %", one.quantile_99], ["Peak", one.peak], ["Loss", sae.loss], ["Width", sae.width?.toLocaleString("en")], ["L0", sae.l0?.toFixed(1)], ["Hookpoint", sae.hookpoint], ["Baseline", sae.baseline || null]];
  return make("dl", {class: "facts"}, ...all.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

function explanations(one) {
  const names = [...new Set([...one.explanations.map(([name]) => name), ...one.scores.map(([name]) => name)])];
  const head = make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "Explainer"), make("th", {scope: "col"}, "Explanation"), ...meta.scorers.map((scorer) => make("th", {scope: "col", class: "n", title: scorer.definition},
    scorer.name, make("small", {}, `${scorer.metric}${scorer.contrast ? `, ${scorer.contrast.replaceAll("_", " ")} contrasts` : ""}`), make("small", {}, scorer.chance === null ? "see the null" : `chance ${scorer.chance}`)))));
  const body = names.map((name) => {
    const [, text, note] = one.explanations.find(([explainer]) => explainer === name) ?? [name, null, "needs no explanation"];
    return make("tr", {}, make("th", {scope: "row"}, name), make("td", {class: "text"}, text ? said(text) : make("span", {class: "failed"}, note)), ...meta.scorers.map((scorer) => score(one.scores.find((found) => found[0] === name && found[1] === scorer.name), scorer)));
  });
  return make("div", {class: "wide"}, make("table", {class: "scores"}, head, make("tbody", {}, ...body)));
}

function score(found, scorer) {
  if (!found) return make("td", {class: "n"});
  const [, , value, low, high, none, status] = found;
  if (value === null) return make("td", {class: "n", "data-label": scorer.name}, make("span", {class: "failed"}, (status ?? "no score").replaceAll("_", " ")));
  const interval = low === null ? "" : `${shownNumber(low)} to ${shownNumber(high)}`;
  return make("td", {class: "n", "data-label": scorer.name}, make("strong", {}, shownNumber(value)), " ", make("small", {}, interval), none === null ? null : make("div", {class: "dim"}, `null ${shownNumber(none)}`));
}

function tokens(title, found) {
  if (!found?.length) return null;
  return make("section", {}, make("h3", {}, title), make("ul", {class: "tokens"}, ...found.map(([text, note]) => make("li", {}, said(text.replaceAll("\n", "⏎")), note ? make("small", {}, ` ${note}`) : null))));
}

function histogram(one) {
  if (!one.histogram?.length) return null;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), most = Math.max(...one.histogram), width = 560 / one.histogram.length;
  svg.setAttribute("viewBox", "0 0 560 110");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Histogram of ${one.firing_count} activations from 0 to ${one.peak}`);
  const add = (tag, settings, text) => { const part = document.createElementNS(svg.namespaceURI, tag); for (const [name, value] of Object.entries(settings)) part.setAttribute(name, value); if (text) part.textContent = text; svg.append(part); };
  one.histogram.forEach((n, bin) => { const height = n ? Math.max(1, 90 * n / most) : 0; add("rect", {x: bin * width + 0.5, y: 92 - height, width: width - 1, height}); });
  add("text", {x: 0, y: 107}, "0"); add("text", {x: 560, y: 107, "text-anchor": "end"}, `${one.peak}`); add("text", {x: 280, y: 107, "text-anchor": "middle"}, `activation; the largest bar has ${most.toLocaleString("en")} tokens`);
  return make("section", {}, make("h3", {}, "Activations"), svg);
}

function examples(one) {
  const splits = {explain: "explain", held_out: "held out"};
  const active = one.active.map(([split, decile, peak, pieces]) => make("p", {class: "window"}, make("span", {class: "dim"}, `${decile} ${splits[split]}`), windowText(pieces, peak)));
  const silent = one.silent.map(([source, supplier, text]) => make("p", {class: "window"}, make("span", {class: "dim", title: supplier === null ? source : `${source}, of latent ${supplier}`}, source.replaceAll("_", " ")), said(text)));
  return make("section", {}, make("h3", {}, "Examples, the strongest decile first"), ...(active.length ? active : [make("p", {class: "dim"}, "none were chosen")]), ...(silent.length ? [make("h3", {}, "Contrasts: it is silent here"), ...silent] : []));
}

function windowText(pieces, peak) {
  const whole = make("bdi", {dir: "auto", title: `peak ${peak}`});
  for (const piece of pieces) whole.append(typeof piece === "string" ? visible(piece) : make("mark", {class: `l${piece[1]}`, title: String(piece[2])}, visible(piece[0])));
  return whole;
}

function similar(near) {
  if (!near.length) return null;
  const entry = ([row, cosine, found]) => make("li", {}, make("small", {}, `${shownNumber(cosine)} `), make("a", {href: link(row, found[0])}, `${saeOf(row).name} ${found[5]}`), " ", said(found[3].find((text) => text) ?? ""));
  return make("section", {}, make("h3", {}, "Similar explanations (cosine)"), make("ul", {class: "plain"}, ...near.map(entry)));
}

function matches(one) {
  if (!one.matches.length) return null;
  const entry = ([sae, latent, cosine]) => make("li", {}, make("small", {}, `${shownNumber(cosine)} `), make("a", {href: `#${new URLSearchParams({...kept(), latent: `${sae}/${latent}`})}`}, `${sae} ${latent}`));
  return make("section", {}, make("h3", {}, "The same direction in other SAEs (decoder cosine)"), make("ul", {class: "plain"}, ...one.matches.map(entry)));
}

function inputs(one) {
  if (!one.inputs.length) return null;
  const entry = ([jacobian, explainer, sae, latent, mean, text]) => make("li", {}, make("small", {}, `${mean > 0 ? "+" : ""}${mean} ${jacobian}, ${explainer} `), make("a", {href: `#${new URLSearchParams({...kept(), latent: `${sae}/${latent}`})}`}, `${sae} ${latent}`), " ", said(text));
  return make("section", {}, make("h3", {}, "Its strongest inputs that are explained (mean J)"), make("ul", {class: "plain"}, ...one.inputs.map(entry)));
}

function provenance(one, sae) {
  const digests = Object.entries(sae.digests).map(([name, digest]) => make("li", {}, `${name} `, make("code", {}, digest)));
  const prompts = one.explanations.filter(([, , note]) => note.startsWith("prompt ")).map(([name, , note]) => make("li", {}, `${name}'s prompt `, make("code", {}, note.slice(7))));
  return make("section", {}, make("h3", {}, "Provenance (beginnings of digests)"), make("ul", {class: "plain"}, ...digests, ...prompts), one.shortfall ? make("p", {class: "dim"}, `Contrasts missing: ${one.shortfall}`) : null);
}

// ---- moving about

function choose(place, scroll = true) {
  const firsts = [...$("rows").querySelectorAll("tr.first")];
  chosen = Math.max(0, Math.min(place, firsts.length - 1));
  const row = firsts[chosen]?.dataset.row;
  for (const line of $("rows").children) line.classList.toggle("chosen", line.dataset.row === row);
  if (scroll) firsts[chosen]?.scrollIntoView({block: "nearest"});
}

async function step(by) {
  const row = await find(state.latent);
  if (!shown.at) shown = await listed();
  for (let place = 0; place < shown.n; place++) {
    if (shown.at(place) === row) {
      const next = place + by;
      if (next >= 0 && next < shown.n) location.hash = link(shown.at(next), (await rowAt(shown.at(next)))[0]).slice(1);
      return;
    }
  }
}

function goTo(changes) { location.hash = new URLSearchParams(kept(changes)).toString(); }

async function render() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const sort = asked.get("sort") ?? "";
  state = {q: asked.get("q") ?? "", sae: asked.get("sae") ?? "", sort: meta.orders[sort] ? sort : "", ascending: asked.get("ascending") === "1",
    from: Math.min(Math.max(0, Math.floor(Number(asked.get("from"))) || 0), Math.max(0, meta.n_rows - 1)), latent: asked.get("latent")};
  if (document.activeElement !== $("query")) $("query").value = state.q;
  $("sae").value = state.sae; $("sort").value = state.sort; $("ascending").checked = state.ascending;
  try { await (state.latent ? showLatent(state.latent) : showList()); } catch (error) { tell(error.message, true); $("list").hidden = $("latent").hidden = true; }
}

function listen() {
  let waiting;
  $("query").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => goTo({q: $("query").value, from: ""}), 150); });
  $("search").addEventListener("submit", (event) => { event.preventDefault(); goTo({q: $("query").value, from: ""}); });
  $("sae").addEventListener("change", () => goTo({sae: $("sae").value, from: ""}));
  $("sort").addEventListener("change", () => goTo({sort: $("sort").value, from: ""}));
  $("ascending").addEventListener("change", () => goTo({ascending: $("ascending").checked ? "1" : "", from: ""}));
  $("earlier").addEventListener("click", () => { goTo({from: String(Math.max(0, state.from - PAGE))}); scrollTo(0, 0); });
  $("later").addEventListener("click", () => { goTo({from: String(state.from + PAGE)}); scrollTo(0, 0); });
  addEventListener("hashchange", render);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { if (document.activeElement === $("query")) $("query").blur(); else if (state.latent) goTo({}); return; }
    if (event.target.matches("input, select, textarea")) return;
    const keys = {"/": () => $("query").focus(), j: () => choose(chosen + 1), ArrowDown: () => choose(chosen + 1), k: () => choose(chosen - 1), ArrowUp: () => choose(chosen - 1),
      Enter: () => { const line = $("rows").querySelectorAll("tr.first")[chosen]; if (line) location.hash = link(Number(line.dataset.row), line.dataset.latent).slice(1); }, n: () => step(1), p: () => step(-1)};
    const inList = !state.latent, act = keys[event.key];
    if (!act || (inList ? "np" : "jk").includes(event.key) || (!inList && event.key.startsWith("Arrow")) || (event.key === "Enter" && (!inList || event.target.closest("a, button")))) return;
    event.preventDefault();
    act();
  });
}

async function start() {
  try { meta = await chunk("meta"); } catch (error) { tell(error.message, true); return; }
  head();
  listen();
  await render();
  document.body.dataset.ready = "1";
}

start();
