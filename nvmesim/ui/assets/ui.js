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
    titleFontWeight: 500, labelFontSize: 11, titleFontSize: 12, labelOverlap: true, labelSeparation: 6 },
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
  else ["load", "error"].forEach((event) => $("vega").addEventListener(event, ready));
});

async function draw(root) {
  const places = [...root.querySelectorAll(".chart")];
  if (places.length) await vega;
  if (!window.vegaEmbed) {
    places.forEach((place) => { place.textContent = "The charts' code did not load; open this page again."; });
    return;
  }
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
  // A bar with an interval stays, greyed, until the next one is known.
  const bars = fast.querySelector("figure.bars");
  fast.outerHTML = html;
  if (bars) { bars.classList.add("old"); document.querySelector("#answer .stick").after(bars); }
  const slow = document.querySelector("#answer .slow");
  if (slow) { slow.classList.add("old"); slow.inert = true; } // its buttons are of another design
}

// Work in the background; each place on a page has its own. ------------------------------------------
const current = {};
const following = {};

function busy(on, what = "", share = 0, name = "answer") {
  $(`${name}-what`).textContent = what;
  $(`${name}-share`).hidden = $(`${name}-cancel`).hidden = !on;
  $(`${name}-share`).value = share;
}

// What was to come will not: it is not known, and what is of another design goes.
function giveUp(place) {
  place.querySelectorAll(".fast .old, .slow.old").forEach((old) => old.remove());
  place.querySelectorAll(".fast").forEach((fast) => {
    const walk = document.createTreeWalker(fast, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replace("…", "not known");
  });
}

async function follow(job, onEnd = () => {}, name = "answer") {
  const mine = following[name] = (following[name] || 0) + 1;
  current[name] = job;
  let seen = 0;
  let said = "";
  for (;;) {
    let state;
    try { state = await ask(`api/job/${job}?seen=${seen}`); } catch (error) {
      if (mine === following[name]) { problem(error.message, name); busy(false, "", 0, name); }
      return;
    }
    if (mine !== following[name]) return;
    if (state.html !== null) {
      (state.data.stage === "first" ? showFirst : show)(state.html, name);
      seen = state.version;
      $(name).classList.remove("old");
    }
    if (state.state === "running") {
      // The status is read aloud: it changes with the step, not with each per cent.
      const step = state.what.replace(/[\d,.]+/g, "").trim();
      if (step !== said) { said = step; $(`${name}-what`).textContent = state.what; }
      $(`${name}-share`).hidden = $(`${name}-cancel`).hidden = false;
      $(`${name}-share`).value = state.share;
      continue; // the answer comes when there is news, or after a moment
    }
    const stopped = state.state === "cancelled";
    busy(false, stopped ? "Cancelled; what is shown is not complete." : "", 0, name);
    if (stopped) giveUp($(name));
    if (state.state === "failed") problem(state.error, name);
    onEnd(state);
    return;
  }
}

async function start(path, body, onEnd, name = "answer") {
  problem("", name);
  busy(true, "starting", 0, name);
  $(name).classList.add("old");
  try {
    const { job } = await ask(path, body);
    await follow(job, onEnd, name);
  } catch (error) { busy(false, "", 0, name); problem(error.message, name); }
}

document.querySelectorAll("[id$=-cancel]").forEach((button) => {
  const name = button.id.replace(/-cancel$/, "");
  button.addEventListener("click", () => {
    $(`${name}-what`).textContent = "cancelling";
    if (current[name]) ask(`api/job/${current[name]}/cancel`, {});
  });
});

async function fetchFile(address, name) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(await answer.text());
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

// The answer as one HTML file and as a PDF.
function offerFiles(job) {
  [["report", "nvmesim-report.html", ""], ["pdf", "nvmesim-report.pdf", "?as=pdf"]].forEach(([id, name, how]) => {
    $(id).addEventListener("click", async () => {
      $("said").textContent = how ? "Printing …" : "";
      try { await fetchFile(`api/job/${job()}/report${how}`, name); $("said").textContent = ""; }
      catch (error) { $("said").textContent = error.message; }
    });
  });
}

// State: the design travels in the address, so that a reload or a link brings it back. --------------
const pack = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
function unpack(text) {
  const bytes = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes, (c) => c.charCodeAt(0)));
}
let broken = "";
function linked() {
  const found = /^#s=([\w-]+)$/.exec(location.hash);
  if (!found) return "";
  try { return unpack(found[1]); } catch {
    broken = "The link is broken: its design cannot be read. The page starts with its own.";
    return "";
  }
}
const kept = {
  get design() { return sessionStorage.getItem("design") || ""; },
  set design(text) { sessionStorage.setItem("design", text); },
  get compared() { try { return JSON.parse(sessionStorage.getItem("compared")) || []; } catch { return []; } },
  set compared(list) { sessionStorage.setItem("compared", JSON.stringify(list)); },
};
// Designs of the file that the app was started with, once a tab.
const opened = JSON.parse($("opened").textContent);
if (opened.length && !sessionStorage.getItem("opened")) {
  sessionStorage.setItem("opened", "1");
  [kept.design] = opened;
  if (opened.length > 1) kept.compared = opened;
}
const MOST_TOML = 256 * 1024;
async function readToml(file) {
  if (file.size > MOST_TOML) throw new Error(`${file.name} is not a scenario: it is larger than 256 KiB`);
  return file.text();
}
