// SPDX-License-Identifier: Apache-2.0
// A node that decides by a policy, the folder that hardcase export --js has written. A message without topic begins a
// decision: its payload has the readings that are known, by sensor. For each other sensor that the policy wants, the
// second output has a message whose topic is that sensor, and for f0 one whose topic is "f0"; what comes back with the
// same topic and msg.decision is the answer, and null, or nothing in time, is a failure. The first output decides.

const { readFile } = require("node:fs/promises");
const { join, resolve } = require("node:path");
const { pathToFileURL } = require("node:url");

const MOST_OPEN = 100; // decisions that wait
const F0 = Symbol("f0"); // beside the names of sensors, because a sensor may be called f0, too

async function opened(folder) {
  const at = resolve(folder);
  const model = JSON.parse(await readFile(join(at, "model.json"), "utf-8"));
  const { load } = await import(pathToFileURL(join(at, "hardcase.js")));
  return { model, policy: await load(new Uint8Array(Buffer.from(model.image, "base64"))) };
}

module.exports = function (RED) {
  function Decide(config) {
    RED.nodes.createNode(this, config);
    const node = this, open = new Map(), ready = opened(config.folder);
    let last = 0;
    ready.catch((error) => node.status({ fill: "red", text: String(error.message) }));

    /** A sensor's readings as the policy has them: a number, a list, or an object by feature; texts are their codes. */
    function numbers(model, sensor, given) {
      const names = model.reads[sensor].map((f) => model.features[f]);
      const values = Array.isArray(given) ? given
        : given !== null && typeof given === "object" ? names.map((name) => new Map(Object.entries(given)).get(name) ?? null) : [given];
      const code = (x, k) => {
        const at = (new Map(Object.entries(model.categories ?? {})).get(names[k]) ?? []).indexOf(x);
        return at < 0 ? null : at;
      };
      return given == null ? null : values.map((x, k) => (typeof x === "string" ? code(x, k) : x));
    }

    function ended(id) {
      clearTimeout(open.get(id)?.timer);
      open.delete(id);
    }

    /** On with a decision: what it still needs goes out, one message for each sensor; or the decision. */
    function go(id, { model, policy }) {
      const { session, known, msg, send, asked } = open.get(id);
      for (;;) {
        const action = session.next();
        if (action.need === null) {
          ended(id);
          const payload = {
            result: policy.classes ? model.classes[action.result] : action.result / 2 ** (model.value?.steps ?? 0),
            confidence: action.confidence / 10000, route: action.route, cost: action.cost / 1e6, unit: model.unit,
            sensors: action.sensors.map((k) => model.sensors[k]), failed: action.failed.map((k) => model.sensors[k]),
          };
          return send([{ ...msg, payload }, null]);
        }
        const topics = action.need === "sensors" ? action.sensors.map((k) => model.sensors[k]) : [F0];
        const lacking = topics.filter((topic) => !known.has(topic));
        for (const topic of lacking.filter((topic) => !asked.has(topic))) {
          asked.add(topic);
          send([null, topic === F0 ? { topic: "f0", decision: id, payload: Buffer.from(action.request) } : { topic, decision: id, payload: topic }]);
        }
        if (lacking.length) return undefined;
        if (action.need === "sensors") for (const k of action.sensors) session.feed(k, numbers(model, k, known.get(model.sensors[k])));
        else if (known.get(F0)) session.reply(known.get(F0).result, known.get(F0).confidence);
        else session.noReply();
      }
    }

    function begin(msg, send, all) {
      if (open.size >= MOST_OPEN) throw new Error(`${MOST_OPEN} decisions wait for readings already`);
      const payload = msg.payload !== null && typeof msg.payload === "object" ? msg.payload : {};
      const options = { budget: msg.budget == null ? null : Math.round(msg.budget * 1e6), cloud: msg.cloud !== false };
      const id = String(++last), entry = { session: all.policy.session(options), msg, send, asked: new Set() };
      entry.known = new Map(Object.entries(payload));
      open.set(id, entry);
      const late = () => { // whatever has not come has failed
        entry.timer = setTimeout(late, Number(config.timeout) || 2000);
        for (const topic of entry.asked) if (!entry.known.has(topic)) entry.known.set(topic, null);
        go(id, all);
      };
      entry.timer = setTimeout(late, Number(config.timeout) || 2000);
      go(id, all);
    }

    node.on("input", async (msg, send, done) => {
      try {
        const all = await ready;
        if (!msg.topic) begin(msg, send, all);
        else if (open.has(msg.decision)) {
          const { known, asked } = open.get(msg.decision);
          const topic = msg.topic === "f0" && asked.has(F0) ? F0 : msg.topic;
          if (asked.has(topic) && !known.has(topic)) known.set(topic, msg.payload ?? null);
          go(msg.decision, all);
        }
        done();
      } catch (error) {
        ended(msg.decision);
        done(error);
      }
    });
    node.on("close", () => [...open.keys()].forEach(ended));
  }
  RED.nodes.registerType("hardcase", Decide);
};
