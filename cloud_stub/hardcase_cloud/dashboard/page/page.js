// SPDX-License-Identifier: Apache-2.0
// The dashboard: what the server sends becomes text, bars and lines. Everything is written as text, never as markup.
"use strict";
const $ = (id) => document.getElementById(id);
const percent = (x, digits = 1) => (x === null || x === undefined ? "unknown" : (100 * x).toFixed(digits) + " %");
const clock = (s) => new Date(1000 * s).toLocaleTimeString();
const number = (n) => n.toLocaleString("en");

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function rows(table, lines) {
  const body = $(table).tBodies[0];
  body.replaceChildren(...lines.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((c, k) => (c instanceof Element ? c : element(k ? "td" : "th", String(c), k ? {} : { scope: "row" }))));
    return row;
  }));
}

function bar(share) {
  const cell = element("td", "", { class: "bar", "aria-hidden": "true" });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of [["width", 100 * share + "%"], ["height", "100%"]]) rect.setAttribute(key, value);
  svg.append(rect);
  cell.append(svg);
  return cell;
}

const plots = {};
function plot(id, columns, series, y) {
  const ink = getComputedStyle(document.body).color;
  const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,0.3)", width: 1 }, ticks: { show: false } };
  const width = Math.max(240, $(id).clientWidth);
  if (plots[id] && plots[id].series.length === columns.length) {
    plots[id].setData(columns);
    return;
  }
  if (plots[id]) plots[id].destroy();
  const lines = series.map((s, k) => ({ label: s, stroke: k ? ink : getComputedStyle(document.documentElement).getPropertyValue("--bar"), width: 2, dash: k ? [6, 4] : [], points: { show: columns[0].length < 80, size: 4 }, spanGaps: false }));
  plots[id] = new uPlot({ width, height: 190, legend: { show: series.length > 1, live: false }, cursor: { show: false }, scales: { y }, axes: [axis, { ...axis, size: 62 }], series: [{}, ...lines] }, columns, $(id));
}

function lastOf(values) {
  for (let k = values.length - 1; k >= 0; k--) if (values[k] !== null) return values[k];
  return null;
}

function show(figures) {
  const { fleet, minutes, agreement, promises, budgets, drift, rollouts, store } = figures;
  $("trouble").textContent = store.trouble ? "Since " + clock(store.since) + " the store cannot be read: " + store.trouble + " The figures are those of before." : "";
  if (!fleet) return;
  rows("states", fleet.states.map(([state, n]) => [state, number(n), bar(fleet.devices ? n / fleet.devices : 0)]));
  $("bundles").textContent = number(fleet.devices) + " devices; they run " + (fleet.bundles.map(([b, n]) => b + " (" + number(n) + ")").join(", ") || "nothing yet") + ".";
  rows("agreement", agreement.map((a) => [a.bundle, percent(a.agreed / a.n, 2), percent(a.low, 2) + " to " + percent(a.high, 2), number(a.n)]));
  $("promises").textContent = promiseText(promises);
  $("budgets").textContent = budgets.map(budgetText).join(" ");
  $("drift").textContent = drift.distance === null ? "Drift is known after two hours of decisions." : "Drift: " + percent(drift.distance) + " of the answers of the last full hour are not as on the day before (" + number(drift.recent) + " and " + number(drift.before) + " decisions).";
  const n = minutes.decisions.reduce((a, b) => a + b, 0);
  const forwarded = lastOf(minutes.forwarded);
  $("forward-text").textContent = "Of the decisions of the last minute with any, " + percent(forwarded) + " were forwarded; " + number(n) + " decisions in an hour.";
  plot("forward", [minutes.time, minutes.forwarded], ["forward rate"], { range: [0, 1] });
  const budget = (rollouts.find((r) => r.is_open && r.budget !== null) || { budget: null }).budget;
  const cost = lastOf(minutes.cost);
  $("cost-text").textContent = (cost === null ? "No decisions yet" : cost.toPrecision(4) + " in the last minute with decisions") + (budget === null ? "; no budget is set." : "; the budget is " + budget + " (dashed).");
  const columns = [minutes.time, minutes.cost];
  plot("cost", budget === null ? columns : [...columns, minutes.time.map(() => budget)], ["cost", "budget"].slice(0, budget === null ? 1 : 2), { range: (u, low, high) => [0, 1.1 * Math.max(high || 1, budget || 0)] });
  showRollouts(rollouts);
  showWorkers(figures.workers);
}

function showWorkers(workers) {
  $("workers").hidden = !workers;
  if (!workers) return;
  rows("workers-table", workers.map((w) => w.trouble
    ? [w.url, "away since " + clock(w.since) + ": " + w.trouble, "", ""]
    : [w.url, number(w.answers), w.rate === null ? "" : w.rate + " a second", Object.entries(w.not_answered).map(([what, n]) => number(n) + " " + what).join(", ") || "none"]));
}

function promiseText({ rows, broken, suspects }) {
  const told = rows.filter((r) => r.promised !== null && (!r.label || r.state === "broken")).map((r) => (r.label ? "Class " + r.label + " of " : "Bundle ") + r.bundle + " promises " + percent(r.promised) + ": " + r.state + (r.since === null ? "" : " since " + new Date(1000 * r.since).toLocaleString()) + " (" + percent(r.low) + " to " + percent(r.high) + ", " + number(r.n) + " audits).");
  if (broken) told.push(number(broken) + " devices find their bundle's promise broken.");
  if (suspects.length) told.push("Sensors that seem to fail slowly: " + suspects.map(([s, n]) => s + " on " + number(n) + " devices").join(", ") + ".");
  return told.join(" ");
}

function budgetText(b) {
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
  $("rollouts").replaceChildren(...(rollouts.length ? rollouts : [null]).map((r) => {
    const part = document.createElement("article");
    if (r === null) {
      part.append(element("p", "There are none."));
      return part;
    }
    const total = r.devices.reduce((a, [, k]) => a + k, 0);
    const good = (r.devices.find(([s]) => s === "good") || ["", 0])[1];
    part.append(element("h3", "Roll-out " + r.id + ", bundle " + r.bundle + ", group " + r.group + ": " + r.state));
    part.append(element("p", number(good) + " of " + number(total) + " devices run it for good. " + r.devices.filter(([, k]) => k).map(([s, k]) => number(k) + " " + s).join(", ") + "." + (r.reason ? " " + r.reason + "." : "") + (r.is_open && !r.is_served ? " Nobody serves it now." : "") + (r.wish ? " Asked for: " + r.wish + "." : "")));
    if (r.is_open) for (const wish of [r.state === "paused" ? "resume" : "pause", "stop"]) part.append(wishButton(r.id, wish), " ");
    return part;
  }));
  if (focused && $(focused)) $(focused).focus();
}

function wishButton(id, wish) {
  const button = element("button", wish + " roll-out " + id, { id: wish + "-" + id });
  button.addEventListener("click", async () => {
    if (wish === "stop" && button.className !== "sure") {
      button.className = "sure";
      button.textContent = "press again to stop roll-out " + id;
      return;
    }
    const answer = await fetch("/rollouts/" + id + "/" + wish, { method: "POST", headers: { "X-Hardcase": "1" } });
    if (!answer.ok) $("trouble").textContent = (await answer.json().catch(() => ({ error: "The server refused it." }))).error;
  });
  return button;
}

let page = 0;
async function search() {
  const query = new URLSearchParams({ q: $("q").value, state: $("state").value, page });
  const answer = await fetch("/devices?" + query);
  if (!answer.ok) return;
  const found = await answer.json();
  const first = found.n ? 50 * page + 1 : 0;
  $("found").textContent = number(found.n) + " devices, those that need a look first; shown are " + first + " to " + (50 * page + found.rows.length) + ".";
  rows("devices", found.rows.map(([id, state, bundle, seen, asked, forwarded]) => {
    const head = element("th", "", { scope: "row" });
    const button = element("button", id, { class: "link" });
    button.addEventListener("click", () => one(id));
    head.append(button);
    return [head, state, bundle, clock(seen), number(asked), asked ? percent(forwarded / asked) : "none"];
  }));
  $("back").disabled = page === 0;
  $("next").disabled = 50 * (page + 1) >= found.n;
}

async function one(id) {
  const answer = await fetch("/device?" + new URLSearchParams({ id }));
  if (!answer.ok) return;
  const device = await answer.json();
  $("one").hidden = false;
  $("h-one").textContent = device.device + ", the last hour";
  const routes = {};
  for (const [, route] of device.rows) routes[route] = (routes[route] || 0) + 1;
  $("one-text").textContent = (device.state || "unknown") + "; " + number(device.rows.length) + " decisions that it has sent" + Object.entries(routes).map(([r, k]) => ", " + number(k) + " " + r).join("") + ". The lines are the cost of each, and its confidence (dashed).";
  if (plots["one-cost"]) {
    plots["one-cost"].destroy();
    delete plots["one-cost"];
  }
  const value = (x) => (typeof x === "number" ? x : null);
  plot("one-cost", [device.rows.map((r) => r[0]), device.rows.map((r) => value(r[2])), device.rows.map((r) => value(r[3]))], ["cost", "confidence"], {});
  $("h-one").focus();
}

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  page = 0;
  search();
});
$("back").addEventListener("click", () => { page -= 1; search(); });
$("next").addEventListener("click", () => { page += 1; search(); });
const first = JSON.parse($("first").textContent);
if (first.store) show(first);
search();
const stream = new EventSource("/events");
stream.onmessage = (event) => {
  show(JSON.parse(event.data));
  $("now").textContent = "As of " + clock(Date.now() / 1000) + ".";
};
stream.onerror = () => { $("now").textContent = "The dashboard's server does not answer; the figures are those of before."; };
for (const entry of performance.getEntriesByType("paint")) document.documentElement.dataset.paint = entry.startTime;
new PerformanceObserver((list) => { for (const entry of list.getEntries()) document.documentElement.dataset.paint = entry.startTime; }).observe({ type: "paint", buffered: true });
