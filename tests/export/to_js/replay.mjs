// SPDX-License-Identifier: Apache-2.0
// Decisions of tests/helpers/export/js_cases.py made again: each whole, and sensor by sensor beside another session.

/** The number of decisions; an Error for one that differs. `Policy`: of hardcase.js, `lines`: of the file. */
export function replay(Policy, kernel, lines) {
  let n = 0;
  for (const line of lines) {
    const { image, types, cases } = JSON.parse(line);
    const policy = new Policy(kernel, Uint8Array.from(atob(image), (c) => c.charCodeAt(0)));
    same(policy.sensors, types);
    for (const { options, readings, reply, request, expected } of cases) {
      if (options.budget !== null) options.budget = BigInt(options.budget);
      const answer = reply && [BigInt(reply[0]), reply[1]];
      same(plain(policy.decide(readings, { ...options, reply: answer })), expected);
      same(plain(stepped(policy, readings, options, answer, request)), expected);
      n++;
    }
  }
  return n;
}

/** The same by hand: sensors in reverse, another session begun before each step. */
function stepped(policy, readings, options, reply, request) {
  const session = policy.session(options);
  for (;;) {
    policy.session(options).next();
    const action = session.next();
    if (action.need === "sensors") {
      refused(() => session.reply(0, 0));
      for (const k of action.sensors.toReversed()) session.feed(k, readings[k]);
      refused(() => session.feed(action.sensors[0], null));
    } else if (action.need === "reply") {
      same(Array.from(action.request, (x) => x.toString(16).padStart(2, "0")).join(""), request);
      reply ? session.reply(...reply) : session.noReply();
    } else {
      refused(() => session.noReply());
      return action;
    }
  }
}

function plain({ exact, need, ...decision }) {
  return { ...decision, result: String(exact.result), cost: String(exact.cost) };
}

function refused(call) {
  try {
    call();
  } catch (error) {
    if (error.message === "this call does not answer what next() asked for") return;
    throw error;
  }
  throw new Error("it was not refused");
}

function same(found, expected) {
  const sorted = (x) => JSON.stringify(x, x && !Array.isArray(x) && typeof x === "object" ? Object.keys(x).sort() : null);
  if (sorted(found) !== sorted(expected)) throw new Error(`${sorted(found)} is not ${sorted(expected)}`);
}

if (typeof process === "object" && process.argv[1]?.endsWith("replay.mjs")) {
  const [, , folder, file] = process.argv;
  const { createInterface } = await import("node:readline");
  const { createReadStream, readFileSync } = await import("node:fs");
  const { Policy } = await import(`file://${folder}/hardcase.js`);
  const kernel = await WebAssembly.compile(readFileSync(`${folder}/hardcase.wasm`));
  const lines = createInterface({ input: createReadStream(file) });
  let n = 0;
  for await (const line of lines) n += replay(Policy, kernel, [line]);
  console.log(n);
}
