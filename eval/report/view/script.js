"use strict";
// Every text of a model or of the web reaches the page as textContent, never as markup.
const $ = id => document.getElementById(id);
const ROW = 64;
const TRUNCATED = 1, FAILED = 2, UNJUDGED = 4, SEARCHED = 8, NEEDLESS = 16, ERRORS = 32, SEEN = 64;
async function unpack(id) {
  const bytes = Uint8Array.from(atob($(id).textContent.trim()), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
let all = [], shown = [], at = -1, opened = -1;
const bySeries = [];       // id -> sample, of each series
const chunks = new Map();  // unpacked ones
const form = $("filters"), list = $("list"), tall = $("tall"), pane = $("sample");
const right = s => s.s >= 0.8;
function make(tag, cls, text) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
}
const wanted = {
  wrong: s => !right(s), right,
  won: (s, old) => right(s) && old && !right(old),
  lost: (s, old) => !right(s) && old && right(old),
  seen: s => !right(s) && s.f & SEEN,
  needless: s => s.f & NEEDLESS,
  unsearched: s => !right(s) && !(s.f & SEARCHED),
  truncated: s => s.f & TRUNCATED,
  failed: s => s.f & (FAILED | UNJUDGED),
  errors: s => s.f & ERRORS,
};
function apply() {
  const f = new FormData(form), text = f.get("text").toLowerCase(), show = f.get("show"), since = f.get("since"), series = f.get("series"), category = f.get("category");
  form.elements.since.closest("label").hidden = show !== "won" && show !== "lost";
  const old = bySeries[+since || 0] || new Map();
  shown = [];
  for (const s of all) {
    if (series !== null && series !== "" && s.e !== +series) continue;
    if (category && s.c !== category) continue;
    if (show && !wanted[show](s, s.e === +since ? null : old.get(s.i))) continue;
    if (text && !s.find.includes(text)) continue;
    shown.push(s.k);
  }
  $("count").textContent = shown.length + " of " + all.length;
  tall.style.height = shown.length * ROW + "px";
  at = shown.indexOf(opened);
  list.scrollTop = at > 0 ? at * ROW - ROW : 0;
  paint();
}
const rows = new Map(); // place -> element
function paint() {
  const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4), to = Math.min(shown.length, from + Math.ceil(list.clientHeight / ROW) + 8);
  for (const [place, e] of rows) if (place < from || place >= to || e.dataset.k != shown[place]) { e.remove(); rows.delete(place); }
  for (let place = from; place < to; place++) {
    let e = rows.get(place);
    if (!e) {
      const s = all[shown[place]];
      e = make("div", "row");
      e.setAttribute("role", "option");
      e.dataset.k = s.k;
      e.style.top = place * ROW + "px";
      e.append(make("span", "mark " + (right(s) ? "right" : "wrong"), right(s) ? "✓" : "✗"));
      const texts = make("div");
      texts.style.minWidth = 0;
      texts.append(make("div", "q", s.q), make("div", "w", s.w));
      e.append(texts);
      e.addEventListener("click", () => { at = place; go(s.k); });
      rows.set(place, e);
      tall.append(e);
    }
    e.classList.toggle("chosen", place === at);
    e.setAttribute("aria-selected", place === at);
  }
}
const name = s => s.i + "@" + s.e;
const go = k => { const hash = "#sample=" + encodeURIComponent(name(all[k])); if (location.hash === hash) open(k); else location.hash = hash; };
async function open(k) {
  opened = k;
  const chunk = Math.floor(k / CHUNK);
  if (!chunks.has(chunk)) {
    if (chunks.size > 8) chunks.clear();
    chunks.set(chunk, await unpack("chunk-" + chunk));
  }
  if (opened === k) draw(all[k], chunks.get(chunk)[k % CHUNK]);
}
function picture(sha, boxes) {
  const src = $("image-" + sha), url = src ? src.textContent.trim() : "";
  if (!url.startsWith("data:image/")) return make("p", "error", "image " + sha + " is in none of the image stores");
  const box = make("span", "picture"), img = make("img");
  img.alt = "image " + sha.slice(0, 12);
  img.src = url;
  box.append(img);
  for (const b of boxes || []) {
    const [x1, y1, x2, y2] = b.map(v => Math.max(0, Math.min(1000, +v || 0)) / 10), frame = make("i");
    frame.style.cssText = `left:${x1}%;top:${y1}%;width:${Math.max(0, x2 - x1)}%;height:${Math.max(0, y2 - y1)}%`;
    box.append(frame);
  }
  return box;
}
function crops(args) { // boxes that a call cuts out of an image
  try {
    const a = JSON.parse(args);
    if (!Array.isArray(a.bbox)) return [];
    const list = Array.isArray(a.bbox[0]) ? a.bbox : [a.bbox];
    return list.filter(b => Array.isArray(b) && b.length === 4);
  } catch { return []; }
}
function fact(table, head, ...cells) {
  const tr = make("tr"), td = make("td");
  td.append(...cells);
  tr.append(make("th", "", head), td);
  table.append(tr);
}
function draw(s, d) {
  pane.replaceChildren();
  document.body.classList.add("open");
  const bar = make("div", "bar2"), close = make("button", "", "← list"), link = make("a", "", s.i);
  close.id = "close";
  close.type = "button";
  close.addEventListener("click", shut);
  link.href = "#sample=" + encodeURIComponent(name(s));
  bar.append(close, make("span", "mark " + (right(s) ? "right" : "wrong"), right(s) ? "✓ right" : "✗ wrong"), link, make("small", "", form.elements.series.querySelector(`option[value="${s.e}"]`).textContent + (s.c ? " · " + s.c : "")));
  pane.append(bar, make("h3", "", d.text));
  pane.append(make("p", "why" + (right(s) ? " ok" : ""), s.w));
  const table = make("table", "facts");
  fact(table, "truth", (d.truth || []).join(" · "));
  fact(table, "answer", d.answer ? make("b", right(s) ? "right" : "wrong", d.answer) : make("i", "", "none"));
  fact(table, "verdict", d.verdict + (d.by ? " by " + d.by.replace("_", " ") : "") + (d.judge ? ", " + d.judge : "") + (d.exact ? " · exact match" : d.sub_em ? " · truth stands in the answer" : ""));
  if (d.reply) fact(table, "judge says", d.reply);
  for (const o of d.opinions || []) fact(table, "", o[0] + ": " + o[1]);
  fact(table, "status", d.status + (d.why ? ": " + d.why : ""));
  if (d.scored) {
    const parts = (d.parts || []).map(p => make("span", "part", p.name + " " + +p.value.toPrecision(3) + " × " + +p.weight.toPrecision(3)));
    fact(table, "reward", make("b", "", +d.reward.toPrecision(3)), " ", ...parts);
  } else fact(table, "reward", make("i", "", "not scored"));
  const others = [];
  bySeries.forEach((m, e) => { const o = m.get(s.i); if (o && e !== s.e) { const a = make("a", right(o) ? "right" : "wrong", (right(o) ? "✓ " : "✗ ") + form.elements.since.options[e].textContent); a.href = "#sample=" + encodeURIComponent(name(o)); others.push(a, " "); } });
  if (others.length) fact(table, "elsewhere", ...others);
  pane.append(table);
  let last = []; // images of the question, on which crops are drawn
  let n = 0;
  for (const t of d.turns || []) {
    const seen = t.role !== "assistant" && t.role !== "system" && n > 0;
    const e = make("div", "turn " + (t.role === "assistant" ? "assistant" : seen ? "seen" : "") + (t.truth ? " found" : ""));
    const head = t.role === "assistant" ? "policy, turn " + ++n : seen ? "result" + (t.call ? " of " + t.call : "") : t.role;
    e.append(make("h4", "", head + (t.role === "assistant" && t.call ? " · calls " + t.call : "") + (t.tokens ? " · " + t.tokens + " tokens" : "") + (t.cut ? ", cut by the limit" : "") + (t.truth ? " · holds the truth" : "")));
    for (const sha of t.images || []) e.append(picture(sha));
    if (t.role === "user" && !seen && t.images) last = t.images;
    e.append(make("pre", "", t.text));
    if (t.role === "assistant" && t.args) {
      e.append(make("p", "call", t.call + " " + t.args));
      const boxes = crops(t.args);
      if (boxes.length && last.length) e.append(picture(last[0], boxes));
    }
    if (t.error) e.append(make("p", "error", t.error));
    if (t.sources) { const ul = make("ul", "sources"); for (const x of t.sources) ul.append(make("li", "", x.provider + " " + x.url + " " + x.time)); e.append(ul); }
    pane.append(e);
  }
  pane.scrollTop = 0;
}
function shut() { document.body.classList.remove("open"); list.focus(); }
function move(by) {
  if (!shown.length) return;
  at = Math.max(0, Math.min(shown.length - 1, at + by));
  const top = at * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  paint();
  if (innerWidth > 800 || document.body.classList.contains("open")) go(shown[at]);
}
addEventListener("keydown", e => {
  if (e.target.matches("input, select")) { if (e.key === "Escape") list.focus(); return; }
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1), inList = document.activeElement === list || document.activeElement === document.body;
  if (e.key === "j" || inList && e.key === "ArrowDown") move(1);
  else if (e.key === "k" || inList && e.key === "ArrowUp") move(-1);
  else if (inList && e.key === "PageDown" && document.activeElement === list) move(page);
  else if (inList && e.key === "PageUp" && document.activeElement === list) move(-page);
  else if (e.key === "Enter" && document.activeElement === list) { if (at >= 0) { go(shown[at]); pane.focus(); } }
  else if (e.key === "Escape") shut();
  else if (e.key === "/") form.elements.text.focus();
  else return;
  e.preventDefault();
});
function follow() {
  const m = location.hash.match(/^#sample=(.*)$/s);
  if (!m) return;
  let want = "";
  try { want = decodeURIComponent(m[1]); } catch { return; }
  const i = want.lastIndexOf("@"), s = (bySeries[+want.slice(i + 1)] || new Map()).get(want.slice(0, i));
  if (!s) { pane.replaceChildren(make("p", "error", "There is no sample " + want + " in this report.")); document.body.classList.add("open"); return; }
  let place = shown.indexOf(s.k);
  if (place < 0) { form.reset(); form.elements.series.value = ""; opened = s.k; apply(); place = shown.indexOf(s.k); }
  at = place;
  const top = at * ROW;
  if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = Math.max(0, top - list.clientHeight / 2);
  paint();
  open(s.k);
}
list.addEventListener("scroll", paint, { passive: true });
addEventListener("resize", paint);
form.addEventListener("input", apply);
form.addEventListener("submit", e => e.preventDefault());
addEventListener("hashchange", follow);
unpack("data-list").then(l => {
  all = l;
  all.forEach((s, k) => { s.k = k; s.find = (s.i + " " + s.q + " " + s.a + " " + s.t + " " + s.w).toLowerCase(); (bySeries[s.e] ||= new Map()).set(s.i, s); });
  const options = form.elements.series.options;
  if (options.length > 1) form.elements.series.selectedIndex = options.length - 1;
  apply();
  follow();
  document.body.dataset.ready = "1";
}).catch(e => { $("count").textContent = "the samples cannot be read: " + e; });
