// SPDX-License-Identifier: Apache-2.0
// A policy that one can touch: readings, broken sensors, budget and prices go in, and each change is a new decision.
// Every name from the bundle is put into the page as text. The kernel stands before this file in the same script.

const $ = (id) => document.getElementById(id);
const MICRO = 1e6;
const TICKS = 1000; // of a slider
const LEVEL = 65536; // positions from one level of the prices to the next
const REQUEST_COST = 64; // where an image has the cost of a request: words 16 and 17

const packed = Uint8Array.from(atob($("data").textContent), (c) => c.charCodeAt(0));
const inflated = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
const plain = new Uint8Array(await new Response(inflated).arrayBuffer());
const head = 4 + new DataView(plain.buffer).getUint32(0, true);
const data = JSON.parse(new TextDecoder().decode(plain.subarray(4, head)));
const blob = ([at, size]) => plain.subarray(head + at, head + at + size);
const joined = (split) => split.map((_, k) => split[(k >> 1) + (k & 1) * ((split.length + 1) >> 1)]);
const model = data.model;
const kernel = await WebAssembly.compile(blob(data.wasm));
let point, sound, policy; // one of data.points, its image, and that with the prices that are set
const state = { row: data.rows[0], readings: [...data.rows[0].readings], sensors: model.sensors.map(() => "works") };

const cost = (micro) => `${(micro / MICRO).toLocaleString("en", { maximumSignificantDigits: 4 })} ${model.unit}`;
const answer = (result) => {
  if (model.classes.length) return String(model.classes[result]);
  const value = model.value ? result / 2 ** model.value.steps : result;
  return `${value.toLocaleString("en", { maximumSignificantDigits: 5 })} ${model.value?.unit ?? ""}`.trim();
};
const bySensor = (readings) => model.reads.map((features) => features.map((f) => readings[f]));

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// ---------------------------------------------------------------- the golden cases

function goldenEqual(c) {
  const row = data.rows[c.row];
  const { failed, budget, itemSize, cloud, reply, expected } = row
    ? { failed: [], budget: null, itemSize: 1, cloud: true, reply: row.f0, expected: c.expected } : c;
  const readings = bySensor((row ?? c).readings).map((own, k) => (failed.includes(k) ? null : own));
  const options = { budget: budget === null ? null : BigInt(budget), itemSize, cloud };
  const made = policy.decide(readings, { ...options, reply: reply && [BigInt(reply[0]), reply[1]] });
  return JSON.stringify([String(made.exact.result), made.confidence, made.route, String(made.exact.cost), made.sensors, made.trace])
    === JSON.stringify(expected);
}

// ---------------------------------------------------------------- a decision

/** f0's answer to what is set: of the row, if nobody has changed its readings; silent; or one that was chosen. */
function reply() {
  const chosen = $("f0-says").value;
  if (chosen === "silent") return null;
  if (chosen !== "row") return [Number(chosen), 10000];
  const isRow = state.row.readings.every((x, k) => Object.is(x, state.readings[k]));
  return isRow && state.row.f0 ? [BigInt(state.row.f0[0]), state.row.f0[1]] : null;
}

function decide() {
  const ticks = Number($("budget").value);
  const budget = ticks < TICKS ? policy.startCost + Math.round((ticks / TICKS) * (point.worst - policy.startCost)) : null;
  $("budget-said").textContent = budget === null ? "no limit" : cost(budget);
  const dead = state.sensors.flatMap((word, k) => (word === "off" ? [k] : []));
  const session = policy.session({ budget, itemSize: Number($("item-size")?.value ?? 1), cloud: $("cloud").checked, dead });
  const readings = bySensor(state.readings);
  const steps = [];
  if (policy.startCost) steps.push(`wakes up: ${cost(policy.startCost)}`);
  let asked = false;
  for (let action = session.next(); action.need; action = session.next()) {
    const before = session.progress().spent;
    if (action.need === "sensors") {
      for (const k of action.sensors) {
        const was = session.progress().spent;
        session.feed(k, state.sensors[k] === "broken" ? null : readings[k]);
        const broken = session.progress().failed.includes(k) || state.sensors[k] === "broken" ? ", which fails" : "";
        steps.push(`buys ${model.sensors[k]}${broken}: ${cost(Number(session.progress().spent - was))}`);
      }
    } else {
      asked = true;
      const said = reply();
      steps.push(`asks f0: ${cost(requestCost())}`);
      if (said) session.reply(...said);
      else session.noReply();
    }
  }
  show(session.next(), session.progress(), steps, asked);
}

const WHY = {
  local: "the device answers alone",
  cloud: "f0 in the cloud answers",
  degraded: "f0 was wanted and is silent: the device answers without it",
};

function show(made, seen, steps, asked) {
  $("answer").textContent = answer(made.result);
  $("sure").textContent = `confidence ${(made.confidence / 100).toFixed(0)} %, ${WHY[made.route]}`;
  $("cost").textContent = cost(made.cost);
  $("spent").textContent = `of at most ${cost(point.worst)}; ${made.sensors.length} of ${model.sensors.length} sensors bought`;
  const { row } = state;
  $("f0").textContent = row.f0 ? answer(Number(row.f0[0])) : "not known";
  $("truth").textContent = row.truth === null ? "what f0 says to this case" : `what f0 says to this case; true is ${answer(row.truth)}`;
  $("steps").replaceChildren(...[...steps, `answers ${answer(made.result)}`].map((text) => element("li", text)));
  light(made.trace);
  model.sensors.forEach((_, k) => {
    const box = $(`sensor-${k}`);
    if (!box) return;
    const word = seen.unpaid.includes(k) ? "beyond the budget" : seen.failed.includes(k) ? "failed" : made.sensors.includes(k) ? "bought" : "";
    box.dataset.is = word;
    box.querySelector(".is").textContent = word;
  });
}

/** The boxes of the nodes that were visited, one after the other. */
function light(trace) {
  const svg = document.querySelector("svg.policy"), boxes = [...svg.querySelectorAll("g[data-nodes]")];
  const of = (node) => boxes.findIndex((box) => box.dataset.nodes.split(" ").includes(String(node)));
  const way = trace.map(of).filter((k) => k >= 0).filter((k, at, all) => k !== all[at - 1]);
  boxes.forEach((box, k) => {
    box.classList.toggle("lit", way.includes(k));
    box.style.transitionDelay = `${90 * Math.max(way.indexOf(k), 0)}ms`;
  });
  const steps = way.slice(1).map((to, k) => `${way[k]} ${to}`);
  for (const arrow of svg.querySelectorAll("path[data-way]")) arrow.classList.toggle("lit", steps.includes(arrow.dataset.way));
  const absent = trace.filter((node) => of(node) < 0).length;
  const note = absent ? `; ${absent} of them are not in the picture, because they are for failures` : "";
  $("way").textContent = `Nodes visited: ${trace.join(", ")}${note}.`;
}

// ---------------------------------------------------------------- prices

function requestCost() {
  return Math.round(model.request_cost * 10 ** ((Number($("request").value) - TICKS / 2) / (TICKS / 2)));
}

const hasPrices = () => model.prices && point === data.points[0];

/** The policy with the price of a request and with the thresholds of the level that are set. */
function priced() {
  const image = sound.slice();
  new DataView(image.buffer).setBigInt64(REQUEST_COST, BigInt(requestCost()), true);
  policy = new Policy(kernel, image);
  $("request-said").textContent = cost(requestCost());
  if (hasPrices()) {
    const { nodes, levels, costs, forwards } = model.prices, at = Number($("price").value);
    const level = Math.min(Math.floor(at / LEVEL), levels.length - 2), part = BigInt(at - level * LEVEL);
    nodes.forEach((node, k) => {
      const [a, b] = [BigInt(levels[level][k]), BigInt(levels[level + 1][k])];
      policy.move(node, b >= a ? a + (((b - a) * part) >> 16n) : a - (((a - b) * part) >> 16n));
    });
    const near = Math.round(at / LEVEL);
    $("price-said").textContent = `about ${cost(costs[near] * MICRO)} and ${(100 * forwards[near]).toFixed(1)} % forwarded, on the mean`;
  }
  decide();
}

// ---------------------------------------------------------------- controls

function control(f, k) {
  const type = policy.sensors[k][model.reads[k].indexOf(f)], name = model.features[f];
  const texts = new Map(Object.entries(model.categories ?? {})).get(name), [low, high] = data.ranges[f];
  const line = element("div", "", { class: "reading" }), label = element("label", name, { for: `reading-${f}` });
  const set = (x) => { state.readings[f] = x; decide(); };
  const others = [];
  if (texts) {
    const select = element("select", "", { id: `reading-${f}` });
    select.append(element("option", "missing", { value: "" }), ...texts.map((text, code) => element("option", text, { value: code })));
    select.addEventListener("input", () => set(select.value === "" ? null : Number(select.value)));
    line.append(label, select);
    others.push((x) => { select.value = x ?? ""; });
  } else {
    const step = type === "i32" ? 1 : (high - low) / TICKS || "any";
    const range = element("input", "", { id: `reading-${f}`, type: "range", min: low, max: high, step });
    const number = element("input", "", { type: "number", step: "any", "aria-label": `${name}, as a number; empty is missing` });
    range.addEventListener("input", () => { number.value = range.value; set(Number(range.value)); });
    number.addEventListener("input", () => { range.value = number.value; set(number.value === "" ? null : Number(number.value)); });
    line.append(label, range, number);
    others.push((x) => { number.value = x ?? ""; range.value = x ?? low; });
  }
  return [line, (x) => others.forEach((other) => other(x))];
}

const refresh = [];

function sensorBox(k) {
  const box = element("fieldset", "", { id: `sensor-${k}` }), legend = element("legend", model.sensors[k]);
  const line = element("div", "", { class: "reading" }), select = element("select", "", { id: `state-${k}` });
  for (const word of ["works", "broken", "off"]) select.append(element("option", word));
  select.addEventListener("input", () => { state.sensors[k] = select.value; decide(); });
  select.value = state.sensors[k];
  line.append(element("label", cost(model.costs[k]), { for: `state-${k}` }), select, element("span", "", { class: "is" }));
  box.append(legend, line);
  for (const f of point.shown[k]) {
    const [reading, put] = control(f, k);
    box.append(reading);
    refresh.push(() => put(state.readings[f]));
  }
  const hidden = model.reads[k].length - point.shown[k].length;
  if (hidden) box.append(element("p", `${hidden} more readings stay as they are in the case`, { class: "soft" }));
  return box;
}

function take(row) {
  state.row = row;
  state.readings = [...row.readings];
  for (const put of refresh) put();
  decide();
}

/** The policy of another point: its cases are checked, and its flow and its sensors take the place of the last one's. */
function use(number) {
  point = data.points[number];
  sound = joined(blob(point.image));
  policy = new Policy(kernel, sound);
  const equal = point.golden.filter(goldenEqual).length, all = point.golden.length;
  const cases = point.flow ? "cases decided as by Python" : "golden cases equal";
  $("checked").textContent = equal === all
    ? `${equal} of ${all} ${cases}: this page decides as the device does.` : `Only ${equal} of ${all} ${cases}: do not trust this page.`;
  const drawn = point.flow ? parsed(point.flow).querySelector("svg") : flows[0];
  document.querySelector("svg.policy").replaceWith(drawn);
  drawn.classList.add("playing");
  refresh.length = 0;
  $("sensors").replaceChildren(...point.bought.map(sensorBox));
  const never = model.sensors.length - point.bought.length;
  $("others").textContent = never ? `${never} sensors are bought on no way.` : "";
  $("request-part").hidden = !point.forwards;
  $("price-part").hidden = !hasPrices();
  for (const group of document.querySelectorAll("g[data-point]")) group.classList.toggle("here", Number(group.dataset.point) === point.number);
  for (const put of refresh) put();
  priced();
}

const parsed = (markup) => new DOMParser().parseFromString(markup, "text/html").body;
$("front")?.replaceWith(...parsed(data.front).childNodes);
const flows = [document.querySelector("svg.policy")];
const named = (row) => (row.truth === null ? "" : `: ${answer(row.truth)}`);
$("row").append(...data.rows.map((row, k) => element("option", `case ${k + 1}${named(row)}`, { value: k })));
$("f0-says").append(...model.classes.map((label, k) => element("option", String(label), { value: k })));
if ($("point")) {
  $("point").append(...data.points.map((p, k) => element("option", p.name, { value: k })));
  $("point").addEventListener("input", () => use(Number($("point").value)));
  data.points.forEach((p, k) => document.querySelector(`g[data-point="${Number(p.number ?? -1)}"]`)?.addEventListener("click", () => {
    $("point").value = k;
    use(k);
  }));
}
const largest = new Policy(kernel, joined(blob(data.points[0].image))).largestItem;
if (largest > 1) {
  const size = element("input", "", { id: "item-size", type: "number", min: 1, max: largest, value: 1 });
  $("size-part").append(element("label", "size of the item", { for: "item-size" }), size);
}
if (model.prices) {
  Object.assign($("price"), { max: (model.prices.levels.length - 1) * LEVEL, step: LEVEL / 16 });
  $("price").value = model.prices.shipped * LEVEL;
}
$("row").addEventListener("input", () => take(data.rows[Number($("row").value)]));
$("again").addEventListener("click", () => {
  state.sensors.fill("works");
  for (const select of document.querySelectorAll("fieldset select[id^=state]")) select.value = "works";
  take(state.row);
});
for (const id of ["budget", "cloud", "f0-says", "item-size"]) $(id)?.addEventListener("input", decide);
for (const id of ["request", "price"]) $(id).addEventListener("input", priced);
for (const wide of document.querySelectorAll(".wide")) wide.tabIndex = 0; // to scroll by keyboard
use(0);
document.documentElement.dataset.ready = String(Math.round(performance.now())); // ms since the navigation;
