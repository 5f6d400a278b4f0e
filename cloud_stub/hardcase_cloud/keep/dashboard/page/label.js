// SPDX-License-Identifier: Apache-2.0
// The page to label: one case at a time, by keys or buttons. It says that a label is kept when the store has it on its disk.
"use strict";
const KEYS = 9; // classes that have a key
const LISTED = 60; // of more classes, as many as match what is searched for
const MOST_PASSED = 200, MOST_UNDONE = 100;
let current = null, after = null, isBusy = false;
let passed = []; // devices and times of cases that were passed over, for the pause between two that look alike
const given = []; // labels of this page that can be taken back: key and label

async function ask(what, fields) {
  say("trouble", "");
  const answer = await fetch("label/" + what, { method: "POST", headers: { "X-Hardcase": "1", "Content-Type": "application/json" }, body: JSON.stringify(fields) }).catch(() => null);
  const told = answer && (answer.ok || answer.status === 409) ? await answer.json().catch(() => null) : null;
  if (told && !told.error) return told;
  let why = "The dashboard's server does not answer; nothing was kept.";
  if (told) why = told.error;
  else if (answer) why = answer.status === 401 ? "The server asks for its token; open the address or the file that it named when it started." : "The server answers " + answer.status + "; nothing was kept.";
  say("trouble", why);
  return null;
}

async function alone(act) { // one question at a time: a second press of a key is not a second label
  if (isBusy) return;
  isBusy = true;
  try { await act(); } finally { isBusy = false; }
}

async function next() {
  const percents = Number($("at-most").value);
  const fields = { after, kind: $("kind").value, apart_s: Number($("apart").value) || 0, passed, at_most: percents > 0 ? percents / 100 : null };
  let told = await ask("next", fields);
  while (told && told.go_on) told = await ask("next", { ...fields, after: told.go_on });
  if (told) show(told);
}

function show({ case: one, progress }) {
  current = one;
  showNeeded(progress);
  $("answers-text").textContent = "";
  $("answers").setAttribute("aria-pressed", "false");
  for (const id of ["skip", "answers"]) $(id).disabled = !one;
  $("undo").disabled = !given.length;
  $("choose").hidden = $("readings").hidden = !one;
  $("evidence").replaceChildren();
  $("h-case").textContent = one ? (one.kind === "audit" ? "Which class is this?" : "Which class is this forwarded case?") : "No case waits.";
  if (!one) {
    $("case-text").textContent = "Audits and forwarded cases come with hardcase-edge run --audit and hardcase cloud worker --cases.";
    return;
  }
  after = one.place;
  $("case-text").textContent = one.key[0] + ", " + clock(one.time) + (one.bundle ? "; bundle " + one.bundle : "") + "." + (one.has_names ? "" : " The names of readings are not known; start the dashboard with --bundle FILE.");
  $("evidence").replaceChildren(...one.evidence.map(([name, kind], n) => {
    const [device, boot, sequence] = one.key;
    const src = "evidence?" + new URLSearchParams({ device, boot, sequence, n });
    return kind === "audio/wav" ? element("audio", "", { src, controls: "", "aria-label": name }) : element("img", "", { src, alt: name });
  }));
  $("find").value = "";
  $("find-line").hidden = one.classes.length <= KEYS;
  showClasses();
  const body = $("readings").tBodies[0];
  body.replaceChildren(...one.readings.map(([name, value, low, high]) => {
    const row = document.createElement("tr");
    row.append(element("th", name, { scope: "row" }), element("td", value === null ? "missing" : String(value)), element("td", low === null ? "" : low + " to " + high));
    return row;
  }));
}

function showNeeded(p) {
  const share = (100 * p.at_most).toPrecision(2).replace(/\.0+$/, "") + " %";
  const judged = "People have labelled " + number(p.n) + " answers of " + (p.bundle ? "bundle " + p.bundle : "devices") + ", and " + number(p.wrong) + " were wrong. ";
  const goal = "show, with 95 % confidence and however often you look, that devices are wrong in at most " + share + (p.is_promise ? " of their answers, the share in which the bundle promises to differ from f0 at most" : " of their answers") + ".";
  $("needed").textContent = judged + (p.needed === null ? "So many are wrong that no number of labels will " : p.needed ? number(p.needed) + " more labels, all of them right, " : "They ") + goal;
}

function matching() {
  const part = $("find").value.toLowerCase();
  return current.classes.filter((name) => name.toLowerCase().includes(part)).slice(0, current.classes.length > KEYS ? LISTED : KEYS);
}

function showClasses() {
  const hasKeys = current.classes.length <= KEYS;
  $("classes").replaceChildren(...matching().map((name, k) => {
    const button = element("button", (hasKeys ? k + 1 + " " : "") + name, { class: "class" });
    button.addEventListener("click", () => alone(() => give(name)));
    return button;
  }));
}

async function give(label) {
  if (!current) return;
  const { key } = current;
  if (!(await ask("give", { key, label }))) return;
  given.push({ key, label });
  if (given.length > MOST_UNDONE) given.shift();
  say("said", "Kept: " + key[0] + " is " + label + ".");
  await next();
}

async function undo() {
  const last = given[given.length - 1];
  if (!last) return;
  const told = await ask("undo", last);
  if (!told) return;
  given.pop();
  say("said", "Taken back: " + last.key[0] + " was " + last.label + ".");
  show(told);
}

async function skip() {
  if (!current) return;
  passed.push([current.key[0], current.time]);
  passed = passed.slice(-MOST_PASSED);
  say("said", "Skipped; it comes again when you begin with the newest.");
  await next();
}

function toggleAnswers() {
  if (!current) return;
  const isShown = $("answers").getAttribute("aria-pressed") === "true";
  $("answers").setAttribute("aria-pressed", String(!isShown));
  const { own, f0, kind } = current;
  $("answers-text").textContent = isShown ? "" : (kind === "audit" ? "The device answered " + own + "; " : "The device forwarded it; ") + (f0 === null ? "f0's answer is not known." : "f0 answered " + f0 + ".");
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target instanceof Element && event.target.closest("input, select")) {
    if (event.key === "Enter" && event.target === $("find") && matching().length === 1) alone(() => give(matching()[0]));
    return;
  }
  const acts = { a: toggleAnswers, u: () => alone(undo), s: () => alone(skip) };
  if (acts[event.key]) acts[event.key]();
  else if (current && /^[1-9]$/.test(event.key) && event.key <= current.classes.length && current.classes.length <= KEYS) alone(() => give(current.classes[event.key - 1]));
});
$("find").addEventListener("input", showClasses);
$("undo").addEventListener("click", () => alone(undo));
$("skip").addEventListener("click", () => alone(skip));
$("answers").addEventListener("click", toggleAnswers);
$("which").addEventListener("submit", (event) => {
  event.preventDefault();
  after = null;
  passed = [];
  alone(next);
});
alone(next);
