// SPDX-License-Identifier: Apache-2.0
// The kernel of hardcase in JavaScript: hardcase.wasm is hardcase.c itself, and decides bit for bit as a device does.
//
// A policy is an image (docs/SPEC-image-v1.md), which is proved harmless before it runs. Sensors, nodes and classes are
// numbers here, as in the program; costs and budgets are whole millionths of the user's unit. What cannot be used is an
// Error of one line. hardcase.d.ts has the types and their meaning.

const NO_BUDGET = 2n ** 63n - 1n; // as HC_NO_BUDGET
const MOST_BYTES = 2 ** 26; // of an image and its session together
const ROUTES = ["local", "cloud", "degraded"];
const TYPES = ["i32", "f32", "f64"];
const I32_MISSING = -(2 ** 31);
const NEED_SENSORS = 1; // what hc_next says
const NEED_REPLY = 2;
// Words of an image's header, words of a sensor, bytes of a feature; bytes of the struct with which a session begins.
const H = { sensors: 4, nodes: 7, classes: 8, atFeatures: 10, atSensors: 11 };
const SENSOR = { feature: 0, features: 1, words: 11 };
const FEATURE = { type: 2, bytes: 4 };
const AT = { result: 0, spent: 8, saved: 16, confidence: 24, steps: 26, route: 28 };
const ERRORS = {
  "-1": "this call does not answer what next() asked for",
  "-2": "the program has no such sensor, node, item size, result or confidence",
  "-3": "the budget is less than a decision costs at its start",
};
const AGAIN = "export the policy again";
const INSIDE = Symbol("inside"); // where a policy lies in its kernel's memory

/** The kernel, compiled once for any number of policies: from hardcase.wasm beside this file, or from bytes. */
export async function load(wasm = new URL("hardcase.wasm", import.meta.url)) {
  if (wasm instanceof URL) wasm = await fetched(wasm);
  return new Kernel(wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile(wasm));
}

async function fetched(url) {
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} cannot be had: status ${answer.status}`);
  return answer.arrayBuffer();
}

export class Kernel {
  #module;
  #policies = new WeakMap();

  constructor(module) {
    this.#module = module;
  }

  policy(image) {
    if (!(image instanceof Uint8Array)) throw new Error("an image is a Uint8Array");
    const known = this.#policies.get(image) ?? new Policy(this.#module, image);
    this.#policies.set(image, known);
    return known;
  }

  session(image, options) {
    return this.policy(image).session(options);
  }

  decide(image, readings, options) {
    return this.policy(image).decide(readings, options);
  }
}

export class Policy {
  constructor(module, image) {
    const n = image.length;
    if (n < 128 || n % 8 || n > MOST_BYTES) throw new Error(`${n} bytes cannot be an image; ${AGAIN}`);
    const kernel = new WebAssembly.Instance(module).exports;
    const base = aligned(kernel.__heap_base.value);
    grow(kernel.memory, base + n);
    new Uint8Array(kernel.memory.buffer, base, n).set(image);
    if (!kernel.hc_check(base, n)) throw new Error(`the image is damaged or of another version; ${AGAIN}`);
    const bytes = new DataView(kernel.memory.buffer, base, n);
    const word = (k) => bytes.getUint32(4 * k, true);
    this.sensors = Object.freeze(Array.from({ length: word(H.sensors) }, (_, k) => {
      const record = word(H.atSensors) / 4 + SENSOR.words * k;
      const first = word(H.atFeatures) + FEATURE.bytes * word(record + SENSOR.feature) + FEATURE.type;
      const types = Array.from({ length: word(record + SENSOR.features) }, (_, f) => first + FEATURE.bytes * f);
      return Object.freeze(types.map((at) => TYPES[bytes.getUint8(at)]));
    }));
    this.nodes = word(H.nodes);
    this.classes = word(H.classes);
    this.largestItem = kernel.hc_largest_item(base);
    this.startCost = Number(kernel.hc_start_cost(base));
    const size = kernel.hc_session_bytes(base) >>> 0;
    const widest = this.sensors.reduce((most, _, k) => Math.max(most, kernel.hc_readings_bytes(base, k)), 8);
    if (n + size + widest > MOST_BYTES) throw new Error(`a session of ${size} bytes is beyond a policy's; ${AGAIN}`);
    grow(kernel.memory, base + n + size + widest);
    const view = new DataView(kernel.memory.buffer);
    this[INSIDE] = { kernel, view, image: base, session: base + n, size, readings: base + n + size, current: null };
  }

  session(options) {
    return new Session(this, options);
  }

  decide(readings, options = {}) {
    const session = new Session(this, options);
    for (;;) {
      const action = session.next();
      if (action.need === "sensors") for (const k of action.sensors) session.feed(k, readings[k]);
      else if (action.need !== "reply") return action;
      else if (options.reply) session.reply(...options.reply);
      else session.noReply();
    }
  }

  move(node, threshold) {
    const { kernel, image } = this[INSIDE];
    done(kernel.hc_move(image, whole(node), i64(threshold)));
  }
}

export class Session {
  #policy;
  #bytes = null; // while another session of the policy lies in the kernel's memory
  #decision = null;

  constructor(policy, { budget = null, itemSize = 1, cloud = true, dead = [] } = {}) {
    this.#policy = policy;
    const { kernel, session, image } = this.#enter();
    done(kernel.hc_start(session, image, budget === null ? NO_BUDGET : i64(budget), whole(itemSize), cloud ? 1 : 0));
    for (const sensor of dead) done(kernel.hc_dead(session, whole(sensor)));
  }

  next() {
    if (this.#decision) return this.#decision;
    const { kernel, session, view, readings } = this.#enter();
    const what = kernel.hc_next(session);
    if (what === NEED_SENSORS) {
      const sensors = [];
      view.setInt32(readings, 0, true); // where hc_wanted_next keeps how far it is
      for (let k; (k = kernel.hc_wanted_next(session, readings)) >= 0; ) sensors.push(k);
      return { need: "sensors", sensors };
    }
    if (what === NEED_REPLY) {
      const request = new Uint8Array(view.buffer, kernel.hc_request(session), kernel.hc_request_bytes(session));
      return { need: "reply", request: request.slice() };
    }
    const result = view.getBigInt64(session + AT.result, true);
    const { spent, ...seen } = this.progress();
    const cost = spent - view.getBigInt64(session + AT.saved, true);
    const route = ROUTES[view.getUint8(session + AT.route)];
    const confidence = view.getUint16(session + AT.confidence, true);
    this.#decision = { need: null, result: Number(result), confidence, route, cost: Number(cost), ...seen };
    this.#decision.exact = { result, cost };
    return this.#decision;
  }

  feed(sensor, readings, cost = -1) {
    const { kernel, session } = this.#enter();
    done(kernel.hc_feed_at(session, whole(sensor), this.#pack(sensor, readings), i64(cost)));
  }

  reply(result, confidence) {
    const { kernel, session } = this.#enter();
    done(kernel.hc_reply(session, i64(result), whole(confidence)));
  }

  noReply() {
    const { kernel, session } = this.#enter();
    done(kernel.hc_no_reply(session));
  }

  resend() {
    const { kernel, session } = this.#enter();
    return done(kernel.hc_resend(session)) === 1;
  }

  elapsed(amount) {
    const { kernel, session } = this.#enter();
    done(kernel.hc_elapsed(session, i64(amount)));
  }

  progress() {
    const { kernel, session, view } = this.#enter();
    const which = (has) => this.#policy.sensors.map((_, k) => k).filter((k) => has(session, k));
    return {
      spent: view.getBigInt64(session + AT.spent, true),
      sensors: which(kernel.hc_was_bought),
      failed: which(kernel.hc_has_failed),
      unpaid: which(kernel.hc_was_unpaid),
      trace: Array.from({ length: view.getUint16(session + AT.steps, true) }, (_, k) => kernel.hc_visited(session, k)),
    };
  }

  /** The policy's kernel, with this session in its memory. */
  #enter() {
    const inside = this.#policy[INSIDE];
    if (inside.current !== this) {
      const memory = new Uint8Array(inside.view.buffer, inside.session, inside.size);
      if (inside.current) inside.current.#bytes = memory.slice();
      if (this.#bytes) memory.set(this.#bytes);
      inside.current = this;
    }
    return inside;
  }

  /** The address of a sensor's readings as in a struct of C; 0, as for one that failed, if they are not its numbers. */
  #pack(sensor, readings) {
    const { view, readings: from } = this.#policy[INSIDE];
    const types = this.#policy.sensors[sensor];
    if (!types || !readings || readings.length !== types.length) return 0;
    let at = from;
    for (let k = 0; k < types.length; k++) {
      const x = readings[k] ?? NaN;
      if (typeof x !== "number") return 0;
      if (types[k] === "f64") at = aligned(at);
      if (types[k] === "i32") view.setInt32(at, Number.isInteger(x) && Math.abs(x) < 2 ** 31 ? x : I32_MISSING, true);
      else if (types[k] === "f32") view.setFloat32(at, x, true);
      else view.setFloat64(at, x, true);
      at += types[k] === "f64" ? 8 : 4;
    }
    return from;
  }
}

function aligned(at) {
  return at + 7 & ~7;
}

function grow(memory, bytes) {
  const more = Math.ceil((bytes - memory.buffer.byteLength) / 65536);
  if (more > 0) memory.grow(more);
}

/** A number that C takes as an int; -1, which it refuses, for any other. */
function whole(x) {
  return Number.isInteger(x) && Math.abs(x) < 2 ** 31 ? x : -1;
}

function i64(x) {
  const big = typeof x === "bigint" || Number.isInteger(x) ? BigInt(x) : null;
  if (big !== null && big === BigInt.asIntN(64, big)) return big;
  throw new Error(`${String(x).slice(0, 40)} is not a whole number of 64 bits`);
}

function done(code) {
  if (code < 0) throw new Error(ERRORS[code]);
  return code;
}
