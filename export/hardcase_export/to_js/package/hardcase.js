// SPDX-License-Identifier: Apache-2.0
// The kernel of hardcase in JavaScript: hardcase.wasm is hardcase.c itself, and decides bit for bit as a device does.
// A policy is an image (docs/SPEC-image-v1.md), which is proved harmless before it runs. What cannot be used is an
// Error of one line. hardcase.d.ts has the types and their meaning.

const NO_BUDGET = 2n ** 63n - 1n; // as HC_NO_BUDGET
const MOST_BYTES = 2 ** 26; // of an image and its session together
const ROUTES = ["local", "cloud", "degraded"];
const TYPES = ["i32", "f32", "f64"];
const MISSING = -(2 ** 31); // as i32
const NEEDS = [undefined, "sensors", "reply", null]; // by what hc_next says
// Words of an image's header, words of a sensor, bytes of a feature; bytes of the struct with which a session begins.
const H = { sensors: 4, nodes: 7, classes: 8, atFeatures: 10, atSensors: 11 };
const SENSOR_WORDS = 11, FEATURE_BYTES = 4, TYPE = 2; // a sensor's first words are its first feature, and how many
const AT = { result: 0, spent: 8, saved: 16, confidence: 24, steps: 26, route: 28 };
const ERRORS = {
  "-1": "this call does not answer what next() asked for",
  "-2": "the program has no such sensor, node, item size, result or confidence",
  "-3": "the budget is less than a decision costs at its start",
};
const AGAIN = "export the policy again";

/** The policy in an image; the kernel is hardcase.wasm beside this file, or bytes. */
export async function load(image, wasm = new URL("hardcase.wasm", import.meta.url)) {
  return new Policy(await WebAssembly.compile(wasm instanceof URL ? await fetched(wasm) : wasm), image);
}

async function fetched(url) {
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} cannot be had: status ${answer.status}`);
  return answer.arrayBuffer();
}

export class Policy {
  #inside; // where it lies in its kernel's memory, and whose session lies there

  constructor(module, image) {
    const n = image.length;
    if (!(n >= 128) || n % 8 || n > MOST_BYTES) throw new Error(`${n} bytes cannot be an image; ${AGAIN}`);
    const kernel = new WebAssembly.Instance(module).exports, { memory } = kernel;
    const base = kernel.__heap_base.value + 7 & ~7;
    grow(memory, base + n);
    const bytes = new Uint8Array(memory.buffer, base, n);
    bytes.set(image);
    if (!kernel.hc_check(base, n)) throw new Error(`the image is damaged or of another version; ${AGAIN}`);
    const words = new Uint32Array(bytes.buffer, base, n / 4);
    this.sensors = Object.freeze(Array.from({ length: words[H.sensors] }, (_, k) => {
      const [first, count] = words.subarray(words[H.atSensors] / 4 + SENSOR_WORDS * k);
      const at = words[H.atFeatures] + FEATURE_BYTES * first + TYPE;
      return Object.freeze(Array.from({ length: count }, (_, f) => TYPES[bytes[at + FEATURE_BYTES * f]]));
    }));
    this.nodes = words[H.nodes];
    this.classes = words[H.classes];
    this.largestItem = kernel.hc_largest_item(base);
    this.startCost = Number(kernel.hc_start_cost(base));
    const size = kernel.hc_session_bytes(base) >>> 0, session = base + n, readings = session + size;
    const widest = this.sensors.reduce((most, _, k) => Math.max(most, kernel.hc_readings_bytes(base, k)), 8);
    if (n + size + widest > MOST_BYTES) throw new Error(`a session of ${size} bytes is beyond a policy's; ${AGAIN}`);
    grow(memory, readings + widest);
    this.#inside = { kernel, view: new DataView(memory.buffer), sensors: this.sensors, base, session, size, readings };
  }

  session(options) {
    return new Session(this.#inside, options);
  }

  decide(readings, options = {}) {
    const session = this.session(options);
    for (;;) {
      const action = session.next();
      if (action.need === "sensors") for (const k of action.sensors) session.feed(k, readings[k]);
      else if (action.need !== "reply") return action;
      else if (options.reply) session.reply(...options.reply);
      else session.noReply();
    }
  }

  move(node, threshold) {
    const { kernel, base } = this.#inside;
    done(kernel.hc_move(base, whole(node), i64(threshold)));
  }
}

export class Session {
  #inside;
  #bytes = null; // while another session of the policy lies in the kernel's memory

  constructor(inside, { budget, itemSize = 1, cloud = true, dead = [] } = {}) {
    this.#inside = inside;
    this.#call("hc_start", inside.base, i64(budget ?? NO_BUDGET), whole(itemSize), cloud ? 1 : 0);
    for (const sensor of dead) this.#call("hc_dead", whole(sensor));
  }

  next() {
    const { kernel, session, view, readings } = this.#enter();
    const need = NEEDS[kernel.hc_next(session)];
    if (need === "sensors") {
      const sensors = [];
      view.setInt32(readings, 0, true); // where hc_wanted_next keeps how far it is
      for (let k; (k = kernel.hc_wanted_next(session, readings)) >= 0; ) sensors.push(k);
      return { need, sensors };
    }
    if (need === "reply") {
      const request = new Uint8Array(view.buffer, kernel.hc_request(session), kernel.hc_request_bytes(session));
      return { need, request: request.slice() };
    }
    const result = view.getBigInt64(session + AT.result, true);
    const confidence = view.getUint16(session + AT.confidence, true);
    const route = ROUTES[view.getUint8(session + AT.route)];
    const { spent, ...seen } = this.progress();
    const cost = spent - view.getBigInt64(session + AT.saved, true);
    return { need, result: Number(result), confidence, route, cost: Number(cost), exact: { result, cost }, ...seen };
  }

  feed(sensor, readings, cost = -1) {
    this.#call("hc_feed_at", whole(sensor), this.#pack(sensor, readings), i64(cost));
  }

  reply(result, confidence) {
    this.#call("hc_reply", i64(result), whole(confidence));
  }

  noReply() {
    this.#call("hc_no_reply");
  }

  resend() {
    return this.#call("hc_resend") === 1;
  }

  elapsed(amount) {
    this.#call("hc_elapsed", i64(amount));
  }

  progress() {
    const { kernel, session, view, sensors } = this.#enter();
    const which = (has) => sensors.map((_, k) => k).filter((k) => has(session, k));
    return {
      spent: view.getBigInt64(session + AT.spent, true),
      sensors: which(kernel.hc_was_bought),
      failed: which(kernel.hc_has_failed),
      unpaid: which(kernel.hc_was_unpaid),
      trace: Array.from({ length: view.getUint16(session + AT.steps, true) }, (_, k) => kernel.hc_visited(session, k)),
    };
  }

  #call(name, ...values) {
    const { kernel, session } = this.#enter();
    return done(kernel[name](session, ...values));
  }

  /** The policy's kernel, with this session in its memory. */
  #enter() {
    const inside = this.#inside;
    if (inside.current !== this) {
      const memory = new Uint8Array(inside.view.buffer, inside.session, inside.size);
      if (inside.current) inside.current.#bytes = memory.slice();
      if (this.#bytes) memory.set(this.#bytes);
      inside.current = this;
    }
    return inside;
  }

  /** The address of a sensor's readings as in a struct of C; 0, as for one that failed, if they are not its numbers. */
  #pack(sensor, values) {
    const { view, sensors, readings } = this.#inside;
    const types = sensors[sensor];
    if (!types || !values || values.length !== types.length) return 0;
    let at = readings;
    for (let k = 0; k < types.length; k++) {
      const x = values[k] ?? NaN, type = types[k], bytes = type === "f64" ? 8 : 4;
      if (typeof x !== "number") return 0;
      at = Math.ceil(at / bytes) * bytes;
      if (type === "i32") view.setInt32(at, whole(x, MISSING), true);
      else view[type === "f32" ? "setFloat32" : "setFloat64"](at, x, true);
      at += bytes;
    }
    return readings;
  }
}

function grow(memory, bytes) {
  memory.grow(Math.max(0, Math.ceil((bytes - memory.buffer.byteLength) / 65536)));
}

/** A number that C takes as an int; for any other -1, which it refuses, or `other`. */
function whole(x, other = -1) {
  return Number.isInteger(x) && Math.abs(x) < 2 ** 31 ? x : other;
}

function i64(x) {
  if ((typeof x === "bigint" || Number.isInteger(x)) && BigInt.asIntN(64, BigInt(x)) == x) return BigInt(x);
  throw new Error(`${String(x).slice(0, 40)} is not a whole number of 64 bits`);
}

function done(code) {
  if (code < 0) throw new Error(ERRORS[code]);
  return code;
}
