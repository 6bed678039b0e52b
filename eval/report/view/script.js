"use strict";
// Images are stored once in IMAGES and put in place when a trajectory is opened.
function fill(sample) {
  for (const img of sample.querySelectorAll("img[data-sha]")) {
    const url = IMAGES[img.dataset.sha];
    if (url) {
      img.src = url;
    } else {
      const gone = document.createElement("p");
      gone.className = "missing";
      gone.textContent = "image " + img.dataset.sha + " is in none of the image stores";
      img.replaceWith(gone);
    }
    img.removeAttribute("data-sha");
  }
}
const samples = [...document.querySelectorAll(".sample")];
for (const s of samples) s.addEventListener("toggle", () => { if (s.open) fill(s); });

const form = document.getElementById("filters");
const wanted = {
  wrong: s => s.dataset.correct === "false",
  correct: s => s.dataset.correct === "true",
  flipped: s => s.dataset.flipped === "true",
  searched: s => s.dataset.searches !== "0",
  unsearched: s => s.dataset.searches === "0",
  odd: s => s.dataset.odd === "true",
};
function apply() {
  const f = new FormData(form), text = f.get("text").toLowerCase();
  let shown = 0;
  for (const s of samples) {
    const ok = (!f.get("epoch") || s.dataset.epoch === f.get("epoch"))
      && (!f.get("category") || s.dataset.category === f.get("category"))
      && (!f.get("show") || wanted[f.get("show")](s))
      && (!text || (s.id + " " + s.textContent).toLowerCase().includes(text));
    s.hidden = !ok;
    shown += ok;
  }
  document.getElementById("count").textContent = shown + " of " + samples.length;
}
form.addEventListener("input", apply);
form.addEventListener("submit", e => e.preventDefault());
function follow() {
  const s = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (s && s.classList.contains("sample")) { s.hidden = false; s.open = true; s.scrollIntoView(); }
}
addEventListener("hashchange", follow);
if (form.elements.epoch.options.length > 2) form.elements.epoch.selectedIndex = form.elements.epoch.options.length - 1;
apply();
follow();
