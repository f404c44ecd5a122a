"use strict";
const pages = {};

// Files that are dropped on a place; the browser would open them instead of the page.
function dropped(place, take) {
  ["dragenter", "dragover"].forEach((name) => place.addEventListener(name, (e) => { e.preventDefault(); place.classList.add("over"); }));
  ["dragleave", "drop"].forEach((name) => place.addEventListener(name, (e) => { e.preventDefault(); place.classList.remove("over"); }));
  place.addEventListener("drop", (event) => take([...event.dataTransfer.files]));
}
["dragover", "drop"].forEach((name) => window.addEventListener(name, (e) => e.preventDefault()));

// Fields: each box has one key and its inputs. --------------------------------------------------------
const inputs = (box) => [...box.querySelectorAll("input, select")];

function fillFields(values) {
  Object.entries(values).forEach(([key, value]) => {
    const box = document.querySelector(`.control[data-key="${CSS.escape(key)}"]`);
    if (!box) return;
    box.hidden = value === null;
    if (value === null) return;
    inputs(box).forEach((input) => {
      if (input.type === "checkbox") { input.checked = value.includes(input.value); return; }
      if (input === document.activeElement && input.type !== "range" && input.tagName !== "SELECT") return;
      if (input.tagName === "SELECT" && ![...input.options].some((o) => o.value === String(value))) {
        input.append(new Option(String(value), String(value)));
      }
      input.value = String(value);
    });
  });
}

function onField(box, moved) {
  const { key, form } = box.dataset;
  const numeric = form === "range";
  const read = (input) => {
    if (form === "ticks") return inputs(box).filter((i) => i.checked).map((i) => i.value);
    return numeric ? Number(input.value) : input.value.trim();
  };
  inputs(box).forEach((input) => {
    const changed = () => {
      if (numeric && input.value === "") return;
      if (form !== "ticks") inputs(box).forEach((other) => { if (other !== input) other.value = input.value; });
      moved(key, read(input));
    };
    input.addEventListener(input.type === "range" ? "input" : "change", changed);
  });
}
const onFields = (moved) => document.querySelectorAll(".control").forEach((box) => onField(box, moved));

// Design --------------------------------------------------------------------------------------------
pages.design = () => {
  let toml = "";
  let job = null;
  let asking = false;
  let waiting = null;

  function fill(values, own) {
    const list = $("l-drives.profile");
    own.forEach((name) => {
      if (![...list.options].some((o) => o.value === name)) list.append(new Option("own", name));
    });
    fillFields(values);
  }

  async function send(body) {
    // One request at a time; of those that wait only the last one counts.
    if (asking) {
      waiting = { ...body, set: { ...(waiting && waiting.set), ...body.set } };
      if (waiting.toml === undefined && !Object.keys(waiting.set).length) delete waiting.set;
      return;
    }
    asking = true;
    try {
      const found = await ask("api/design", { toml, job, ...body });
      toml = found.toml;
      $("toml").value = toml;
      kept.design = toml;
      history.replaceState(null, "", `#s=${pack(toml)}`);
      fill(found.controls, found.own);
      problem(found.error || "");
      $("answer").classList.add("old");
      job = found.job || null;
      $("report").disabled = true;
      if (job) {
        const mine = job;
        follow(job, (state) => { if (mine === job) $("report").disabled = !state.version; });
      } else { following += 1; busy(false); }
    } catch (error) { problem(error.message); $("answer").classList.add("old"); }
    asking = false;
    if (waiting) { const next = waiting; waiting = null; send(next); }
  }

  onFields((key, value) => send({ set: { [key]: value } }));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("apply").addEventListener("click", () => send({ toml: $("toml").value }));
  $("download").addEventListener("click", () => save("server.toml", toml));
  $("report").addEventListener("click", () => { location.href = `api/job/${job}/report`; });
  $("link").addEventListener("click", async () => {
    const place = $("said");
    try { await navigator.clipboard.writeText(location.href); place.textContent = "Link copied."; }
    catch { place.textContent = "Copy the address of this page: it holds the design."; }
  });
  $("add").addEventListener("click", () => {
    const list = kept.compared;
    if (list.length >= 4) { $("said").textContent = "Four designs are there already."; return; }
    kept.compared = [...list, toml];
    $("said").textContent = `Added; ${list.length + 1} to compare.`;
  });
  $("load").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    try { await send({ toml: await readToml(file) }); } catch (error) { problem(error.message); }
    event.target.value = "";
  });
  const use = sessionStorage.getItem("use");
  sessionStorage.removeItem("use");
  send({ toml: linked() || kept.design, ...(use ? { set: { "drives.profile": use } } : {}) });
  window.addEventListener("hashchange", () => { const text = linked(); if (text && text !== toml) send({ toml: text }); });
};

// Drive ---------------------------------------------------------------------------------------------
pages.drive = () => {
  const MOST = 64 * 1024 * 1024;
  const files = [];
  let profile = "";

  async function take(list) {
    problem("");
    const bad = [];
    for (const file of list) {
      if (file.size > MOST) { bad.push(`${file.name} is larger than 64 MiB; calibrate it with nvmesim calibrate`); continue; }
      busy(true, `reading ${file.name}`);
      try {
        const found = await ask(`api/upload?name=${encodeURIComponent(file.name)}`, file);
        files.push(found.id);
        const line = document.createElement("li");
        line.textContent = `${found.name}: ${found.format}`;
        $("dropped").append(line);
      } catch (error) { bad.push(error.message); }
    }
    busy(false);
    problem(bad.join(" · "));
  }

  dropped($("way-files"), take);
  $("files").addEventListener("change", async (event) => { await take([...event.target.files]); event.target.value = ""; });
  $("example").addEventListener("click", () => { $("points").value = $("points").placeholder; });
  const way = () => document.querySelector("[name=way]:checked").value;
  const turn = () => {
    document.querySelectorAll(".way").forEach((box) => { box.hidden = box.id !== `way-${way()}`; });
    $("host-box").hidden = way() === "sheet";
  };
  document.querySelectorAll("[name=way]").forEach((radio) => radio.addEventListener("change", turn));
  turn(); // a reload may keep what was chosen
  const filled = () => Object.fromEntries([...document.querySelectorAll("#way-sheet input")]
    .map((input) => [input.dataset.key, input.value.trim()]).filter(([, text]) => text));
  $("fit").addEventListener("submit", (event) => {
    event.preventDefault();
    const what = { files: { files }, sheet: { sheet: filled() }, points: { points: $("points").value } }[way()];
    const host = way() === "sheet" ? "" : $("host").value;
    $("outcome").hidden = true;
    start("api/calibrate", { ...what, name: $("name").value, captured_on: host }, (state) => {
      const done = state.state === "done";
      $("outcome").hidden = !done;
      if (done) { profile = state.data.toml; sessionStorage.setItem("fitted", state.data.name); }
    });
  });
  $("profile").addEventListener("click", () => save("drive.toml", profile));
  $("report").addEventListener("click", () => { location.href = `api/job/${current}/report`; });
  $("use").addEventListener("click", () => sessionStorage.setItem("use", sessionStorage.getItem("fitted")));
};

// Compare -------------------------------------------------------------------------------------------
pages.compare = () => {
  const lines = (text) => text.split("\n").filter((line) => line.includes("="));
  function list() {
    const place = $("designs");
    place.textContent = "";
    kept.compared.forEach((text, number) => {
      const item = document.createElement("li");
      const head = document.createElement("strong");
      head.textContent = (/^name = "(.*)"$/m.exec(text) || [0, `design ${number + 1}`])[1];
      const own = document.createElement("span");
      own.className = "soft";
      own.textContent = lines(text).filter((line) => kept.compared.some((other) => !lines(other).includes(line))).join(" · ");
      const remove = document.createElement("button");
      remove.textContent = "Remove";
      remove.setAttribute("aria-label", `Remove design ${number + 1}`);
      remove.addEventListener("click", () => { kept.compared = kept.compared.filter((_, n) => n !== number); list(); });
      const body = document.createElement("pre");
      body.textContent = text;
      body.tabIndex = 0;
      body.setAttribute("role", "region");
      body.setAttribute("aria-label", `TOML of design ${number + 1}`);
      const folded = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = "TOML";
      folded.append(summary, body);
      item.append(head, " ", own, " ", remove, folded);
      place.append(item);
    });
    $("none").hidden = kept.compared.length > 0;
    $("go").disabled = kept.compared.length < 2;
    $("clear").disabled = !kept.compared.length;
  }
  $("go").addEventListener("click", () => start("api/compare", { designs: kept.compared }));
  $("clear").addEventListener("click", () => { kept.compared = []; list(); });
  $("load").addEventListener("change", async (event) => {
    try {
      for (const file of event.target.files) kept.compared = [...kept.compared, await readToml(file)].slice(0, 4);
    } catch (error) { problem(error.message); }
    event.target.value = "";
    list();
  });
  list();
};

// Choose --------------------------------------------------------------------------------------------
pages.choose = () => {
  const design = async () => kept.design || (await ask("api/design", {})).toml;
  $("best").addEventListener("submit", async (event) => {
    event.preventDefault();
    const levels = [...document.querySelectorAll("[name=level]:checked")].map((box) => box.value);
    const asked = { levels, p99: $("p99").value.trim(), cpu: $("cpu").value.trim(), iops: $("iops").value.trim() };
    start("api/best", { ...asked, toml: await design() });
  });
  let last = Promise.resolve();
  let goal = $("goal").value;
  function priced(parts) {
    const place = $("parts");
    const keys = parts.map((part) => part.key).join();
    place.hidden = !parts.length;
    if (place.dataset.keys !== keys) {
      place.dataset.keys = keys;
      place.querySelectorAll(".control").forEach((box) => box.remove());
      parts.forEach((part) => {
        const box = document.createElement("div");
        Object.assign(box, { className: "control" });
        Object.assign(box.dataset, { key: part.key, form: "text" });
        const label = document.createElement("label");
        label.htmlFor = `c-${part.key}`;
        label.textContent = part.label;
        const input = document.createElement("input");
        Object.assign(input, { id: `c-${part.key}`, type: "text", inputMode: "decimal" });
        box.append(label, input);
        place.append(box);
        onField(box, moved);
      });
    }
    fillFields(Object.fromEntries(parts.map((part) => [part.key, part.value])));
  }
  async function shape(body) {
    try {
      const found = await ask("api/goal", { goal, toml: await design(), ...body });
      goal = found.goal;
      $("goal").value = goal;
      sessionStorage.setItem("goal", goal);
      fillFields(found.controls);
      priced(found.parts);
      problem(found.error);
    } catch (error) { problem(error.message); }
  }
  // One after the other: each change is made to what the one before it left.
  const moved = (key, value) => { last = last.then(() => shape({ set: { [key]: value } })); };
  onFields(moved);
  $("goal").addEventListener("change", () => { last = last.then(() => shape({ goal: $("goal").value })); });
  $("download").addEventListener("click", () => save("goal.toml", goal));
  $("choose").addEventListener("submit", async (event) => {
    event.preventDefault();
    await last;
    start("api/choose", { goal: $("goal").value, toml: await design() });
  });
  last = shape({ goal: sessionStorage.getItem("goal") || goal });
};

// Server --------------------------------------------------------------------------------------------
pages.server = () => {
  const added = (name) => {
    const number = document.querySelectorAll(".dump").length + 1;
    const label = document.createElement("label");
    label.htmlFor = `dump-${number}`;
    label.textContent = name ? `Output ${number}: ${name}` : `Output ${number}`;
    const box = document.createElement("textarea");
    Object.assign(box, { id: `dump-${number}`, className: "dump", rows: 8, spellcheck: false });
    $("dumps").append(label, box);
    return box;
  };
  $("more").addEventListener("click", () => added("").focus());
  const MOST = 1024 * 1024;
  const take = async (list) => {
    const bad = [];
    for (const file of list) {
      if (file.size > MOST) { bad.push(`${file.name} is larger than 1 MiB; describe it with nvmesim describe`); continue; }
      const empty = [...document.querySelectorAll(".dump")].find((box) => !box.value.trim());
      (empty || added(file.name)).value = await file.text();
    }
    problem(bad.join(" · "));
  };
  dropped($("dumps"), take);
  $("files").addEventListener("change", async (event) => { await take([...event.target.files]); event.target.value = ""; });
  $("describe").addEventListener("submit", async (event) => {
    event.preventDefault();
    problem("");
    const dumps = [...document.querySelectorAll(".dump")].map((d) => d.value).filter((d) => d.trim());
    try {
      const found = await ask("api/describe", { dumps });
      const place = $("answer");
      place.textContent = "";
      [["Read", found.read], ["Ignored", found.ignored], ["Missing", found.missing], ["Assumed; check each", found.assumed]].forEach(([title, lines]) => {
        if (!lines.length) return;
        const head = document.createElement("h2");
        head.className = "part";
        head.textContent = title;
        const body = document.createElement("ul");
        lines.forEach((line) => { const item = document.createElement("li"); item.textContent = line; body.append(item); });
        place.append(head, body);
      });
      $("toml").value = found.toml;
      $("found").hidden = false;
      place.scrollIntoView({ block: "start" });
    } catch (error) { problem(error.message); }
  });
  $("open").addEventListener("click", () => { kept.design = $("toml").value; location.href = "design"; });
};

pages[document.body.dataset.page]();
