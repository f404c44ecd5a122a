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

// What is being typed, and what was moved since the question that *values* answer, stays.
function fillFields(values, moving = {}) {
  Object.entries(values).forEach(([key, value]) => {
    const box = document.querySelector(`.control[data-key="${CSS.escape(key)}"]`);
    if (!box || key in moving) return;
    box.hidden = value === null;
    if (value === null) return;
    if (box.dataset.form === "part") { box.picked(String(value)); return; }
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

// A part picker: type a maker, a model or a size; arrows and Enter, or a click. -----------------------
function pick(box, list, chosen) {
  const input = box.querySelector("input");
  const place = box.querySelector(".list");
  let name = "";
  let at = -1;
  const found = () => {
    const words = input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const text = (part) => `${part.name} ${part.label} ${part.group} ${part.says}`.toLowerCase();
    return list.filter((part) => words.every((word) => text(part).includes(word)));
  };
  const label = () => (list.find((part) => part.name === name) || { label: name }).label;
  const close = () => {
    place.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (value) => { name = value; input.value = label(); close(); chosen(value); };
  function open(all) {
    place.textContent = "";
    let group = null;
    (all ? list : found()).forEach((part, number) => {
      if (!group || group.getAttribute("aria-label") !== part.group) {
        group = document.createElement("div");
        group.setAttribute("role", "group");
        group.setAttribute("aria-label", part.group);
        place.append(group);
      }
      const item = document.createElement("div");
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(part.name === name));
      item.id = `${place.id}-${number}`;
      item.dataset.name = part.name;
      const says = document.createElement("small");
      says.textContent = part.says;
      item.append(part.label, says);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(part.name); });
      group.append(item);
    });
    if (!place.childElementCount) {
      const none = document.createElement("div");
      none.setAttribute("role", "option");
      none.setAttribute("aria-disabled", "true");
      none.textContent = "The catalog has none; a drive of your own comes from the Drive page.";
      place.append(none);
    }
    place.hidden = false;
    at = -1;
    input.setAttribute("aria-expanded", "true");
    const now = place.querySelector("[aria-selected=true]");
    if (now) now.scrollIntoView({ block: "nearest" });
  }
  function step(by) {
    if (place.hidden) { open(true); return; }
    const items = [...place.querySelectorAll("[data-name]")];
    if (!items.length) return;
    at = (at + by + items.length) % items.length;
    items.forEach((item, number) => item.classList.toggle("at", number === at));
    items[at].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", items[at].id);
  }
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => open(true));
  input.addEventListener("input", () => open(false));
  input.addEventListener("blur", () => {
    if (!input.value.trim() && name && input.placeholder) take("");
    else { input.value = label(); close(); }
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); step(event.key === "ArrowDown" ? 1 : -1); }
    else if (event.key === "Escape") { input.value = label(); close(); }
    else if (event.key === "Enter" && !place.hidden) {
      event.preventDefault();
      const items = [...place.querySelectorAll("[data-name]")];
      const item = items[at] || (items.length ? items[0] : null);
      if (!input.value.trim() && input.placeholder && at < 0) take("");
      else if (item) take(item.dataset.name);
    }
  });
  box.picked = (value) => {
    if (input === document.activeElement && !place.hidden) return;
    name = value;
    input.value = label();
  };
  box.offer = (part) => { if (!list.some((other) => other.name === part.name)) list.unshift(part); };
}

function onField(box, moved) {
  const { key, form } = box.dataset;
  if (form === "part") {
    pick(box, JSON.parse($(`parts-${inputs(box)[0].dataset.kind}`).textContent), (value) => moved(key, value));
    return;
  }
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
  let typed = false; // TOML that was changed by hand and not yet applied
  let pushed = 0;
  let closed = {};

  // Back and Forward are designs; what follows within a second is one step.
  function remember(text, isNew) {
    const address = `#s=${pack(text)}`;
    if (address === location.hash) return;
    const merge = !isNew || !location.hash || Date.now() - pushed < 1000;
    history[merge ? "replaceState" : "pushState"]({ step: (history.state ? history.state.step : 0) + (merge ? 0 : 1) }, "", address);
    if (!merge) pushed = Date.now();
    $("undo").disabled = !(history.state && history.state.step);
  }

  function fill(found) {
    const picker = document.querySelector('[data-key="drives.profile"]');
    found.own.forEach((name) => picker.offer({ name, label: name, group: "Your own", says: "calibrated here" }));
    fillFields(found.controls, waiting && waiting.set ? waiting.set : {});
    document.querySelectorAll("#controls .control").forEach((box) => {
      const place = box.querySelector(".remark");
      const text = (found.remarks || {})[box.dataset.key] || "";
      place.textContent = text;
      place.hidden = !text;
    });
    ["workload.0.threads", "workload.0.outstanding"].forEach((key) => {
      if (found.controls[key] !== null) closed[key] = found.controls[key];
    });
  }

  async function send(body, isNew = true) {
    // One request at a time; of those that wait only the last one counts.
    if (asking) {
      // Controls that move are one change, on top of a file that waits; another file ends all that.
      const before = body.toml === undefined ? waiting : null;
      waiting = { ...before, ...body, set: { ...(before && before.set), ...body.set } };
      if (!Object.keys(waiting.set).length) delete waiting.set;
      return;
    }
    asking = true;
    if (body.set || body.apply) broken = "";
    $("answer-what").textContent = "";
    try {
      const found = await ask("api/design", { toml, job, ...body });
      toml = found.toml;
      if (body.toml !== undefined) typed = false;
      if (!typed) $("toml").value = toml;
      kept.design = toml;
      remember(toml, isNew);
      fill(found);
      problem(found.error || broken);
      $("answer").classList.add("old");
      job = found.job || null;
      $("report").disabled = $("pdf").disabled = true;
      if (job) {
        const mine = job;
        follow(job, (state) => { if (mine === job) $("report").disabled = $("pdf").disabled = state.state !== "done"; });
      } else { following.answer = (following.answer || 0) + 1; busy(false); giveUp($("answer")); }
    } catch (error) { problem(error.message); $("answer").classList.add("old"); }
    asking = false;
    if (waiting) { const next = waiting; waiting = null; send(next); }
  }

  onFields((key, value) => {
    // Without a rate the load is what it was before there was one.
    const before = key === "workload.0.rate" && value === "" ? closed : {};
    send({ set: { [key]: value, ...before } });
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("keys").addEventListener("change", () => document.body.classList.toggle("keys", $("keys").checked));
  $("toml").addEventListener("input", () => { typed = true; });
  $("apply").addEventListener("click", () => send({ toml: $("toml").value }));
  $("undo").addEventListener("click", () => history.back());
  $("answer").addEventListener("click", (event) => {
    const button = event.target.closest("button.apply");
    if (button) send({ apply: JSON.parse(button.dataset.set) });
  });
  // What does not fit this design is offered with what would make it fit.
  ["volume.raid", "volume.engine", "server.stack"].forEach((key) => {
    const select = $(`c-${key}`);
    select.addEventListener("focus", async () => {
      const { unfit } = await ask("api/fits", { toml });
      [...select.options].forEach((option) => {
        const why = (unfit[key] || {})[option.value];
        option.textContent = option.textContent.replace(/ \(does not fit: .*$/, "") + (why ? ` (does not fit: ${why})` : "");
      });
    });
  });
  $("download").addEventListener("click", () => save("server.toml", toml));
  offerFiles(() => job);
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
  send({ toml: linked() || kept.design, ...(use ? { set: { "drives.profile": use } } : {}) }, false);
  window.addEventListener("popstate", () => {
    const text = linked();
    $("undo").disabled = !(history.state && history.state.step);
    if (text && text !== toml) send({ toml: text }, false);
  });
};

// Captures that are dropped or chosen; returns the list of their names at the app. --------------------
function captures() {
  const MOST = 64 * 1024 * 1024;
  const files = [];

  async function take(list) {
    problem("");
    const bad = [];
    for (const file of list) {
      if (file.size > MOST) { bad.push(`${file.name} is larger than 64 MiB; give it to nvmesim on the command line`); continue; }
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
  $("report").addEventListener("click", () => { location.href = `api/job/${current.answer}/report`; });
  return files;
}

// Drive ---------------------------------------------------------------------------------------------
pages.drive = () => {
  const files = captures();
  let profile = "";

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
    const what = { files: { files }, sheet: {}, points: { points: $("points").value } }[way()];
    const sheet = way() === "sheet" || Object.keys(filled()).length ? { sheet: filled() } : {};
    const host = way() === "sheet" ? "" : $("host").value;
    $("outcome").hidden = true;
    start("api/calibrate", { ...what, ...sheet, name: $("name").value, captured_on: host }, (state) => {
      const done = state.state === "done";
      $("outcome").hidden = !done;
      if (done) { profile = state.data.toml; sessionStorage.setItem("fitted", state.data.name); $("use").hidden = !state.data.usable; }
    });
  });
  $("profile").addEventListener("click", () => save("drive.toml", profile));
  $("use").addEventListener("click", () => sessionStorage.setItem("use", sessionStorage.getItem("fitted")));
};

// Compare -------------------------------------------------------------------------------------------
pages.compare = () => {
  const prices = {};
  const lines = (text) => text.split("\n").filter((line) => line.includes("=") && !line.startsWith("name ="));
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
      const label = document.createElement("label");
      label.className = "inline";
      label.append("Price, EUR ");
      const price = document.createElement("input");
      Object.assign(price, { type: "text", inputMode: "decimal", value: prices[text] || "", placeholder: "not known" });
      price.addEventListener("change", () => { prices[text] = price.value.trim(); });
      label.append(price);
      item.append(head, " ", own, " ", label, " ", remove, folded);
      place.append(item);
    });
    $("none").hidden = kept.compared.length > 0;
    $("go").disabled = kept.compared.length < 2;
    $("clear").disabled = !kept.compared.length;
  }
  $("go").addEventListener("click", () => {
    $("outcome").hidden = true;
    const designs = kept.compared;
    start("api/compare", { designs, prices: designs.map((text) => prices[text] || "") }, (state) => {
      $("outcome").hidden = state.state !== "done";
    });
  });
  offerFiles(() => current.answer);
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
  const design = kept.design || JSON.parse($("start").textContent);
  $("best").addEventListener("submit", async (event) => {
    event.preventDefault();
    const levels = [...document.querySelectorAll("[name=level]:checked")].map((box) => box.value);
    const asked = { levels, p99: $("p99").value.trim(), cpu: $("cpu").value.trim(), iops: $("iops").value.trim() };
    start("api/best", { ...asked, toml: design }, undefined, "best-answer");
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
      const found = await ask("api/goal", { goal, toml: design, ...body });
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
    start("api/choose", { goal: $("goal").value, toml: design });
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

// Check ---------------------------------------------------------------------------------------------
pages.check = () => {
  const files = captures();
  $("check").addEventListener("submit", (event) => {
    event.preventDefault();
    $("outcome").hidden = true;
    const what = $("points").value.trim() ? { points: $("points").value } : { files };
    start("api/check", { ...what, toml: $("toml").value }, (state) => { $("outcome").hidden = state.state !== "done"; });
  });
  if (kept.design) $("toml").value = kept.design;
};

pages[document.body.dataset.page]();
