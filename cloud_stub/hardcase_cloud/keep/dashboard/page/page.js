// SPDX-License-Identifier: Apache-2.0
// The dashboard: what the server sends becomes text, bars and lines. Everything is written as text, never as markup.
"use strict";
const SURE_MS = 10000; // for which a button that ends something waits for the second press
const LIST_MS = 10000; // at least, between two looks at the list while states change
const SILENCE_MS = 60000; // the server says something every 15 s
function rows(table, lines, none) {
  const body = $(table).tBodies[0];
  if (!lines.length) lines = [[element("td", none, { colspan: $(table).tHead.rows[0].cells.length })]];
  body.replaceChildren(...lines.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((c, k) => (c instanceof Element ? c : element(k ? "td" : "th", String(c), k ? {} : { scope: "row" }))));
    return row;
  }));
}

function bar(tag, share, name) {
  const cell = element(tag, "", { class: name, "aria-hidden": "true" });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const width = share > 0 ? Math.max(0.7, 100 * share) : 0; // one of ten thousand can be seen, too
  for (const [key, value] of [["width", width + "%"], ["height", "100%"]]) rect.setAttribute(key, value);
  svg.append(rect);
  cell.append(svg);
  return cell;
}

const plots = {}; // by id: the chart, and how it was made
function times(chart, ticks) {
  const size = { hour: "2-digit", minute: "2-digit", ...(ticks.length > 1 && ticks[1] - ticks[0] < 60 ? { second: "2-digit" } : {}) };
  return ticks.map((t) => new Date(1000 * t).toLocaleTimeString(undefined, size));
}

// A line has a label, the scale that it is on ("y", or "z" with an axis at the right), how its numbers are written, and its range.
function plot(id, columns, lines) {
  const names = JSON.stringify(lines.map((line) => line.label));
  if (plots[id] && plots[id].names === names) {
    plots[id].columns = columns;
    plots[id].chart.setData(columns);
    return;
  }
  forget(id);
  const ink = getComputedStyle(document.body).color;
  const blue = getComputedStyle(document.documentElement).getPropertyValue("--bar");
  const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,0.3)", width: 1 }, ticks: { show: false } };
  const scales = {}, axes = [{ ...axis, size: 30, values: times }];
  for (const { scale, range, text } of lines) {
    if (scales[scale]) continue;
    scales[scale] = { range };
    axes.push({ ...axis, scale, size: 62, side: scale === "y" ? 3 : 1, values: (chart, ticks) => ticks.map(text), ...(scale === "y" ? {} : { grid: { show: false } }) });
  }
  const series = lines.map(({ label, scale }, k) => ({ label, scale, stroke: k ? ink : blue, width: 2, dash: k ? [6, 4] : [], points: { show: !k && columns[0].length < 80, size: 4 }, spanGaps: false }));
  const chart = new uPlot({ ...sizeOf(id), legend: { show: false }, cursor: { show: false }, scales, axes, series: [{}, ...series] }, columns, $(id));
  plots[id] = { chart, names, columns, lines };
}

function sizeOf(id) {
  return { width: Math.max(240, $(id).clientWidth), height: 190 };
}

function forget(id) {
  if (plots[id]) plots[id].chart.destroy();
  delete plots[id];
}

addEventListener("resize", () => { for (const id of Object.keys(plots)) plots[id].chart.setSize(sizeOf(id)); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { // its colours are those of the page
  for (const [id, { columns, lines }] of Object.entries(plots)) {
    forget(id);
    plot(id, columns, lines);
  }
});

function lastOf(values) {
  for (let k = values.length - 1; k >= 0; k--) if (values[k] !== null) return values[k];
  return null;
}

const short = (v) => Number(v.toPrecision(3)).toString();
const upFromZero = (least) => (chart, low, high) => [0, 1.1 * (Math.max(high || 0, least) || 1)];
const share = (v) => Number((100 * v).toFixed(1)) + " %";

function show(figures) {
  const { fleet, minutes, errors, agreement, promises, budgets, drift, rollouts, store } = figures;
  say("trouble", store.trouble ? "Since " + clock(store.since) + " the store cannot be read: " + store.trouble + " The figures are those of before." : "");
  if (!fleet) return;
  showStates(fleet);
  showErrors(errors);
  rows("agreement", agreement.map((a) => [a.bundle, percent(a.agreed / a.n, 2), percent(a.low, 2) + " to " + percent(a.high, 2), number(a.n)]), "No audit of the last day has a label; hardcase cloud label has f0 answer them.");
  $("promises").textContent = promiseText(promises);
  $("budgets").textContent = budgets.map(budgetText).join(" ");
  $("drift").textContent = drift.distance === null ? "Drift is known after two hours of decisions." : "Drift: " + percent(drift.distance) + " of the answers of the last full hour are not as on the day before (" + number(drift.recent) + " and " + number(drift.before) + " decisions).";
  showHour(minutes, rollouts);
  showRollouts(rollouts);
  showWorkers(figures.workers);
}

function showErrors({ all, by_f0, bundles }) { // by people, who are nearer to the truth than f0
  const part = (e) => percent(e.wrong / e.n, 1) + " (" + percent(e.low) + " to " + percent(e.high) + ", " + number(e.n) + " labels)";
  $("errors").textContent = all.n ? percent(all.wrong / all.n, 1) : "No labels by people yet.";
  $("errors-text").textContent = (all.n ? "of the devices' own answers are wrong: " + number(all.wrong) + " of " + number(all.n) + " that people have labelled, 95 % interval " + percent(all.low) + " to " + percent(all.high) + ". " : "") + (by_f0.n ? "Of f0's answers to forwarded cases " + part(by_f0) + " are wrong." : "");
  $("errors-table").hidden = bundles.length < 1;
  rows("errors-table", bundles.map(([name, e]) => [name, percent(e.wrong / e.n, 1), percent(e.low) + " to " + percent(e.high), number(e.n)]), "");
}

let states = "", listed = 0;
function showStates(fleet) {
  rows("states", fleet.states.map(([state, n]) => [state, number(n), bar("td", fleet.devices ? n / fleet.devices : 0, "bar")]), "No device has said anything to this store yet.");
  $("bundles").textContent = fleet.devices ? number(fleet.devices) + " devices, " + number(fleet.online) + " of them online; they run " + fleet.bundles.map(([b, n]) => b + " (" + number(n) + ")").join(", ") + "." : "";
  const text = JSON.stringify(fleet.states);
  const canWait = document.hidden || $("list").contains(document.activeElement); // nobody looks, or somebody works there
  if (states && (text === states || canWait || Date.now() - listed < LIST_MS)) return;
  if (states) search();
  states = text;
}

function showHour(minutes, rollouts) {
  const n = minutes.decisions.reduce((a, b) => a + b, 0);
  $("forward").hidden = $("cost").hidden = n === 0;
  if (n === 0) {
    $("forward-text").textContent = $("cost-text").textContent = "No decision has come within the last hour.";
    return;
  }
  $("forward-text").textContent = "Of the decisions of the last minute with any, " + percent(lastOf(minutes.forwarded)) + " were forwarded; " + number(n) + " decisions in an hour.";
  plot("forward", [minutes.time, minutes.forwarded], [{ label: "forward rate", scale: "y", text: share, range: (chart, low, high) => [0, Math.min(1, 1.25 * Math.max(high || 0, 0.04))] }]);
  const { budget } = rollouts.find((r) => r.is_open && r.budget !== null) || { budget: null };
  $("cost-text").textContent = lastOf(minutes.cost).toPrecision(4) + " in the last minute with decisions" + (budget === null ? "; no budget is set." : "; the budget is " + budget + " (dashed).");
  const cost = { label: "cost", scale: "y", text: short, range: upFromZero(budget || 0) };
  if (budget === null) plot("cost", [minutes.time, minutes.cost], [cost]);
  else plot("cost", [minutes.time, minutes.cost, minutes.time.map(() => budget)], [cost, { ...cost, label: "budget " + budget }]);
}

function showWorkers(workers) {
  $("workers").hidden = !workers;
  if (!workers) return;
  rows("workers-table", workers.map((w) => w.trouble
    ? [w.url, "away since " + clock(w.since) + ": " + w.trouble, "", ""]
    : [w.url, number(w.answers), w.rate === null ? "" : w.rate + " a second", Object.entries(w.not_answered).map(([what, n]) => number(n) + " " + what).join(", ") || "none"]), "None has been asked yet.");
}

function promiseText({ rows, broken, suspects, common, watch }) {
  const told = rows.filter((r) => r.promised !== null && (!r.label || r.state === "broken")).map((r) => (r.label ? "Class " + r.label + " of " : "Bundle ") + r.bundle + " promises " + percent(r.promised) + ": " + r.state + (r.since === null ? "" : " since " + clock(r.since)) + " (" + percent(r.low) + " to " + percent(r.high) + ", " + number(r.n) + " audits).");
  if (broken) told.push(number(broken) + " devices find their bundle's promise broken.");
  const on = ([s, n]) => s + " on " + (n === watch && n > 1 ? "all " + number(n) : number(n) + (common.includes(s) ? " of " + number(watch) : "")) + (n === 1 ? " device" : " devices");
  const one = suspects.filter(([s]) => common.includes(s)), others = suspects.filter(([s]) => !common.includes(s));
  if (one.length) told.push("Sensors that seem to fail slowly nearly everywhere: " + one.map(on).join(", ") + ": the world has changed, or the bundle; not " + number(one[0][1]) + " broken sensors.");
  if (others.length) told.push("Sensors that seem to fail slowly: " + others.map(on).join(", ") + ".");
  return told.join(" ");
}

function budgetText(b) {
  if (b.kind === "forwards") return number(b.devices) + " devices with bundle " + b.bundle + " have no plan of costs, but a limit of what they forward; " + number(b.held) + " decisions were not allowed to ask the cloud.";
  const price = b.price === null ? "" : " at price " + b.price.toPrecision(3);
  const late = b.stretched ? ", and the intervals of " + number(b.stretched) + " are stretched, by up to " + b.stretch.toPrecision(2) : "";
  return number(b.devices) + " devices with bundle " + b.bundle + " have a running budget of " + b.plan_per_hour.toPrecision(4) + " an hour together and decide" + price + "; they have spent " + b.spent.toPrecision(4) + " since they started" + late + ".";
}

let shown = "";
function showRollouts(rollouts) {
  const text = JSON.stringify(rollouts);
  if (text === shown) return; // buttons keep their focus
  shown = text;
  const focused = document.activeElement && document.activeElement.id;
  $("rollouts").replaceChildren(...(rollouts.length ? rollouts.map(rolloutPart) : [element("p", "There are none.")]));
  if (focused && $(focused)) $(focused).focus();
}

function rolloutPart(r) {
  const part = document.createElement("article");
  const total = r.devices.reduce((a, [, k]) => a + k, 0);
  const good = (r.devices.find(([s]) => s === "good") || ["", 0])[1];
  part.append(element("h3", "Roll-out " + r.id + ", bundle " + r.bundle + ", group " + r.group + ": " + r.state));
  part.append(bar("div", total ? good / total : 0, "progress"));
  part.append(element("p", "Began " + clock(r.began) + "; " + number(good) + " of " + number(total) + " devices run it for good. " + r.devices.filter(([, k]) => k).map(([s, k]) => number(k) + " " + s).join(", ") + "." + (r.reason ? " " + r.reason + "." : "") + (r.wish ? " Asked for: " + r.wish + "." : "")));
  if (r.is_open && !r.is_served) part.append(element("strong", "Nobody serves it now; hardcase cloud rollout serve " + r.id + " goes on with it."), document.createElement("br"));
  if (r.is_open) for (const wish of [r.state === "paused" ? "resume" : "pause", "stop"]) part.append(wishButton(r.id, wish), " ");
  return part;
}

const sure = {}; // buttons that were pressed once, also while figures change, and until when they wait for the second time
function wishButton(id, wish) {
  const name = wish + "-" + id;
  const button = element("button", "", { id: name });
  const label = () => {
    const isSure = sure[name] > Date.now();
    button.className = isSure ? "sure" : "";
    button.textContent = isSure ? "press again to stop roll-out " + id : wish + " roll-out " + id;
  };
  button.addEventListener("click", () => {
    say("refused", "");
    if (wish === "stop" && !(sure[name] > Date.now())) {
      sure[name] = Date.now() + SURE_MS;
      setTimeout(() => { if ($(name)) $(name).dispatchEvent(new Event("relabel")); }, SURE_MS + 50);
    } else {
      delete sure[name];
      ask(id, wish);
    }
    label();
  });
  button.addEventListener("relabel", label);
  label();
  return button;
}

async function ask(id, wish) {
  try {
    const answer = await fetch("rollouts/" + id + "/" + wish, { method: "POST", headers: { "X-Hardcase": "1" } });
    if (!answer.ok) say("refused", (await answer.json().catch(() => ({ error: "The server refused to " + wish + " roll-out " + id + " (" + answer.status + ")." }))).error);
  } catch {
    say("refused", "The dashboard's server does not answer: it was not asked to " + wish + " roll-out " + id + ".");
  }
}

let page = 0, searches = 0;
async function search() {
  const mine = ++searches;
  listed = Date.now();
  const answer = await fetch("devices?" + new URLSearchParams({ q: $("q").value, state: $("state").value, page })).catch(() => null);
  if (mine !== searches) return; // another one has begun meanwhile
  if (!answer || !answer.ok) {
    $("found").textContent = "The list cannot be had now" + (answer ? " (" + answer.status + ")." : ": the dashboard's server does not answer.");
    return;
  }
  const found = await answer.json();
  const first = found.n ? 50 * page + 1 : 0;
  $("found").textContent = found.n ? number(found.n) + " devices, those that need a look first; shown are " + first + " to " + (50 * page + found.rows.length) + " as of " + clock(Date.now() / 1000) + "." : "0 devices.";
  rows("devices", found.rows.map(([id, state, bundle, seen, asked, forwarded, why]) => {
    const head = element("th", "", { scope: "row" });
    const button = element("button", id, { class: "link" });
    button.addEventListener("click", () => one(id, button));
    head.append(button);
    return [head, state, clock(seen), asked ? percent(forwarded / asked) : "none", number(asked), bundle, element("td", why, { class: "why" })];
  }), "No device has such an id and state.");
  const isLast = 50 * (page + 1) >= found.n;
  if (page === 0 && document.activeElement === $("back")) $("next").focus(); // what is disabled loses the focus
  if (isLast && document.activeElement === $("next")) $("back").focus();
  $("back").disabled = page === 0;
  $("next").disabled = isLast;
}

let from = null; // the button by which the device was chosen
async function one(id, button) {
  const answer = await fetch("device?" + new URLSearchParams({ id })).catch(() => null);
  $("one").hidden = false;
  $("h-one").textContent = id + ", the last hour";
  from = button;
  forget("one-cost");
  const device = answer && answer.ok ? await answer.json() : null;
  $("one-cost").hidden = !device || !device.rows.length;
  $("one-facts").hidden = !device;
  if (!device) $("one-text").textContent = "Its decisions cannot be had now" + (answer ? " (" + answer.status + ")." : ": the dashboard's server does not answer.");
  else showOne(device);
  $("h-one").focus();
}

function showFacts(facts) {
  const counters = (pairs) => pairs.map(([what, n]) => number(n) + " " + what).join(", ");
  const ended = (it) => [it.state, "bundle " + [it.release, it.bundle].filter(Boolean).join(" "), it.of ? it.have + " of " + it.of + " parts" : "", it.reason].filter(Boolean).join("; ");
  const lines = [
    ["bundle", [facts.bundle, facts.slot && "slot " + facts.slot, facts.why].filter(Boolean).join("; ")],
    ["update under way", facts.update && ended(facts.update)],
    ["update that failed", facts.failed && ended(facts.failed)],
    ["sensors", facts.sensors && (counters(facts.sensors) || "no failures")],
    ["sensors that seem to fail slowly", facts.suspects && facts.suspects.join(", ")],
    ["outbox", facts.has_outbox && (counters(facts.outbox) || "empty")],
    ["certificate ends", facts.ends && new Date(1000 * facts.ends).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })],
    ["groups", facts.groups.join(", ")],
    ["hardcase-edge", facts.runtime],
  ];
  rows("one-facts", lines.filter(([, value]) => value), "It has said nothing of itself.");
}

function showOne(device) {
  showFacts(device.facts);
  const { rows, state, errors } = device;
  const routes = {};
  for (const [, route] of rows) routes[route] = (routes[route] || 0) + 1;
  const counted = number(rows.length) + " decisions that it has sent" + Object.entries(routes).map(([r, k]) => ", " + number(k) + " " + r).join("") + ". The lines are the cost of each (left), and its confidence (dashed, right).";
  const judged = errors.n ? " People have labelled " + number(errors.n) + " of its answers; " + number(errors.wrong) + " were wrong, " + percent(errors.wrong / errors.n) + " (" + percent(errors.low) + " to " + percent(errors.high) + ")." : " No labels by people yet.";
  $("one-text").textContent = (state || "unknown") + "; " + (rows.length ? counted : "it has sent no decision to this store.") + judged;
  if (!rows.length) return;
  const value = (x) => (typeof x === "number" ? x : null);
  plot("one-cost", [rows.map((r) => r[0]), rows.map((r) => value(r[2])), rows.map((r) => value(r[3]))], [{ label: "cost", scale: "y", text: short, range: upFromZero(0) }, { label: "confidence", scale: "z", text: share, range: [0, 1] }]);
}

$("close").addEventListener("click", () => {
  $("one").hidden = true;
  if (from && from.isConnected) from.focus();
  else $("q").focus();
});
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  page = 0;
  search();
});
for (const [id, step] of [["back", -1], ["next", 1]]) $(id).addEventListener("click", () => {
  page += step;
  search();
  $("h-devices").scrollIntoView();
});

let heard = Date.now();
function listen() {
  const stream = new EventSource("events");
  stream.onmessage = (event) => {
    heard = Date.now();
    say("lost", "");
    const figures = JSON.parse(event.data);
    show(figures);
    $("now").textContent = "As of " + clock(heard / 1000) + ", from " + figures.store.name.split("/").pop() + ".";
  };
  stream.addEventListener("beat", () => {
    heard = Date.now();
    say("lost", "");
  });
  stream.onerror = async () => {
    let why = "The dashboard's server does not answer; the figures are those of before.";
    if (stream.readyState === EventSource.CLOSED) { // it has answered, and does not let us in
      const answer = await fetch("file/page.css", { cache: "no-store" }).catch(() => null);
      if (answer) why = answer.status === 401 ? "The server asks for its token; open the address or the file that it named when it started." : "The server has no room for another page like this; the figures are those of before.";
      setTimeout(listen, 5000);
    }
    say("lost", why);
  };
}
setInterval(() => { if (Date.now() - heard > SILENCE_MS) say("lost", "Nothing has come since " + clock(heard / 1000) + "; the figures are those of then."); }, 5000);

const first = JSON.parse($("first").textContent);
if (first.store) show(first);
search();
listen();
for (const entry of performance.getEntriesByType("paint")) document.documentElement.dataset.paint = entry.startTime;
new PerformanceObserver((list) => { for (const entry of list.getEntries()) document.documentElement.dataset.paint = entry.startTime; }).observe({ type: "paint", buffered: true });
