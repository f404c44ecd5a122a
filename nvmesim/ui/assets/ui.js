"use strict";
// What all pages share: asking, drawing, following work in the background, keeping state.
const $ = (id) => document.getElementById(id);

async function ask(path, body) {
  const how = body === undefined ? {} : {
    method: "POST",
    body: body instanceof Blob ? body : JSON.stringify(body),
    headers: body instanceof Blob ? {} : { "Content-Type": "application/json" },
  };
  let answer;
  try { answer = await fetch(path, how); } catch {
    throw new Error("nvmesim ui does not answer; is it still running? Nothing on this page is lost.");
  }
  const text = await answer.text();
  let found;
  try { found = JSON.parse(text); } catch { throw new Error(text.slice(0, 400)); }
  if (!answer.ok) throw new Error(found.error || text.slice(0, 400));
  return found;
}

function problem(text, name = "answer") {
  const place = $(`${name}-error`);
  place.textContent = text || "";
  place.hidden = !text;
}

function save(name, text, type = "text/plain") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

// Charts: no code is made from text (ast), so the page's policy needs no unsafe-eval. ---------------
const pale = "rgba(128,128,128,0.28)";
const ink = { labelColor: "currentColor", titleColor: "currentColor" };
const look = () => ({
  font: getComputedStyle(document.body).fontFamily,
  background: "transparent",
  view: { stroke: null },
  axis: { ...ink, gridColor: pale, domainColor: "rgba(128,128,128,0.7)", tickColor: pale,
    titleFontWeight: 500, labelFontSize: 11, titleFontSize: 12, labelOverlap: true },
  legend: { ...ink, labelFontSize: 12, titleFontWeight: 500 },
  title: { color: "currentColor" },
  text: { color: "currentColor", fontSize: 11 },
  rule: { color: "currentColor" },
});

// Narrow charts are drawn so wide and scaled; names take a third of them at most.
const NARROWEST = 440;
function fit(spec, width) {
  if (spec === null || typeof spec !== "object") return;
  if (spec.labelLimit) spec.labelLimit = Math.min(spec.labelLimit, 0.34 * width);
  if (spec.orient === "top" && spec.columns) spec.columns = width < 500 ? 3 : spec.columns;
  Object.entries(spec).forEach(([key, inner]) => key === "datasets" || fit(inner, width));
}

const vega = new Promise((ready) => {
  if (window.vegaEmbed) ready();
  else $("vega").addEventListener("load", ready);
});

async function draw(root) {
  const places = [...root.querySelectorAll(".chart")];
  if (places.length) await vega;
  places.filter((place) => place.isConnected).forEach((place) => {
    const spec = JSON.parse(root.querySelector(`#${place.dataset.spec}`).textContent);
    fit(spec, Math.max(place.clientWidth, NARROWEST));
    if (place.clientWidth < NARROWEST) { spec.width = NARROWEST; spec.autosize.type = "fit-x"; }
    const options = { actions: false, renderer: "svg", config: look(), ast: true,
      loader: { http: {}, baseURL: "" } };
    // Around it stands one text for readers; Vega's own words for each mark are not read as well.
    vegaEmbed(place, spec, options).then(() => place.querySelector("svg").setAttribute("aria-hidden", "true"))
      .catch((error) => { place.textContent = String(error); });
  });
}

function show(html, name = "answer") {
  const place = $(name);
  const open = [...place.querySelectorAll("details[open] summary")].map((s) => s.textContent);
  place.innerHTML = html; // made by the app, with every text of the input escaped
  place.querySelectorAll("details").forEach((d) => {
    if (open.includes(d.querySelector("summary").textContent)) d.open = true;
  });
  draw(place);
}

// A first look has figures alone: what is drawn below stays, paler, until it is drawn anew.
function showFirst(html) {
  const fast = document.querySelector("#answer .fast");
  if (!fast) { show(html); return; }
  fast.outerHTML = html;
  const slow = document.querySelector("#answer .slow");
  if (slow) slow.classList.add("old");
}

// Work in the background ----------------------------------------------------------------------------
let current = null;
let following = 0;

function busy(on, what = "", share = 0, name = "answer") {
  $(`${name}-what`).textContent = what;
  $(`${name}-share`).hidden = $(`${name}-cancel`).hidden = !on;
  $(`${name}-share`).value = share;
}

async function follow(job, onEnd = () => {}) {
  const mine = ++following;
  current = job;
  let seen = 0;
  let said = "";
  for (;;) {
    let state;
    try { state = await ask(`api/job/${job}?seen=${seen}`); } catch (error) {
      if (mine === following) { problem(error.message); busy(false); }
      return;
    }
    if (mine !== following) return;
    if (state.html !== null) { (state.html.includes('class="slow"') ? show : showFirst)(state.html); seen = state.version; $("answer").classList.remove("old"); }
    if (state.state === "running") {
      // The status is read aloud: it changes with the step, not with each per cent.
      const step = state.what.replace(/[\d,.]+/g, "").trim();
      if (step !== said) { said = step; $("answer-what").textContent = state.what; }
      $("answer-share").hidden = $("answer-cancel").hidden = false;
      $("answer-share").value = state.share;
      continue; // the answer comes when there is news, or after a moment
    }
    busy(false, state.state === "cancelled" ? "Cancelled; the answer so far stays." : "");
    if (state.state === "failed") problem(state.error);
    onEnd(state);
    return;
  }
}

async function start(path, body, onEnd) {
  problem("");
  busy(true, "starting");
  $("answer").classList.add("old");
  try {
    const { job } = await ask(path, body);
    await follow(job, onEnd);
  } catch (error) { busy(false); problem(error.message); }
}

if ($("answer-cancel")) {
  $("answer-cancel").addEventListener("click", () => { if (current) ask(`api/job/${current}/cancel`, {}); });
}

// State: the design travels in the address, so that a reload or a link brings it back. --------------
const pack = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
function unpack(text) {
  const bytes = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes, (c) => c.charCodeAt(0)));
}
function linked() {
  const found = /^#s=([\w-]+)$/.exec(location.hash);
  if (!found) return "";
  try { return unpack(found[1]); } catch {
    problem("The link is broken: its design cannot be read. The page starts with its own.");
    return "";
  }
}
const kept = {
  get design() { return sessionStorage.getItem("design") || ""; },
  set design(text) { sessionStorage.setItem("design", text); },
  get compared() { try { return JSON.parse(sessionStorage.getItem("compared")) || []; } catch { return []; } },
  set compared(list) { sessionStorage.setItem("compared", JSON.stringify(list)); },
};
const MOST_TOML = 256 * 1024;
async function readToml(file) {
  if (file.size > MOST_TOML) throw new Error(`${file.name} is not a scenario: it is larger than 256 KiB`);
  return file.text();
}
