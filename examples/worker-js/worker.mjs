// SPDX-License-Identifier: Apache-2.0
// A worker in JavaScript: it answers hard cases over MQTT, by docs/SPEC-wire-v1.md alone.
//
//     npm install mqtt && node worker.mjs mqtt://localhost:1883 policy ./answer.mjs
//
// policy is the folder of hardcase export --js, which says what a request carries and which f0 it names. The module's
// default export takes an object of readings by feature (null: missing) and returns { result, confidence }: a class
// index (of a policy of values the value times 2^steps) and basis points, or a promise of them. An audit is answered alike.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import mqtt from "mqtt";

const [CASE, REPLY, AUDIT] = [1, 2, 6];
const [OK, REFUSED, OTHER_HPC] = [0, 1, 3];
const HEAD = 56;
const MOST_BYTES = 65536;
const MOST_DEADLINE_MS = 3600000;
const MOST_KEPT = 10000; // replies to requests that come again
const DEVICE = /^hardcase\/v1\/([A-Za-z0-9][A-Za-z0-9._-]{0,63})\/request$/;
const READ = {
  i32: [4, (view, at) => view.getInt32(at, true), (x) => x === -(2 ** 31)],
  f32: [4, (view, at) => view.getFloat32(at, true), (x) => !Number.isFinite(x)],
  f64: [8, (view, at) => view.getFloat64(at, true), (x) => !Number.isFinite(x)],
};

/** The parts of a request; or the reason to drop it. */
export function unpack(payload, { uplink, types, features, hpc }) {
  if (payload.length > MOST_BYTES) return { reason: "oversized" };
  if (payload.length < HEAD) return { reason: "malformed" };
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
  const [kind, n, deadline] = [view.getUint8(1), view.getUint16(2, true), view.getUint32(4, true)];
  const id = payload.subarray(8, 24), named = payload.subarray(24, HEAD).toString("hex");
  if (view.getUint8(0) !== 1 || (kind !== CASE && kind !== AUDIT)) return { reason: "malformed" };
  if (named !== hpc) return { reason: "other_hpc", id };
  const size = uplink.reduce((sum, f) => sum + READ[types[f]][0], HEAD);
  if (n !== uplink.length || payload.length !== size) return { reason: "malformed" };
  if (deadline < 1 || deadline > MOST_DEADLINE_MS) return { reason: "malformed" };
  const readings = Object.create(null); // a name may be __proto__, too
  let at = HEAD;
  for (const f of uplink) {
    const [bytes, read, isMissing] = READ[types[f]], x = read(view, at);
    readings[features[f]] = isMissing(x) ? null : x;
    at += bytes;
  }
  return { id, readings, deadline };
}

/** The 64 bytes of a reply. */
export function pack(id, hpc, status, result = 0, confidence = 0) {
  const bytes = Buffer.alloc(64);
  bytes.writeUInt8(1, 0);
  bytes.writeUInt8(REPLY, 1);
  bytes.writeUInt8(status, 2);
  bytes.writeUInt16LE(confidence, 4);
  bytes.writeBigInt64LE(BigInt(result), 8);
  bytes.set(id, 16);
  bytes.write(hpc, 32, "hex");
  return bytes;
}

function isAnswer(said, classes) {
  const { result, confidence } = said ?? {};
  const fits = Number.isInteger(result) && Math.abs(result) < 2 ** 31 && (!classes.length || (result >= 0 && result < classes.length));
  return fits && Number.isInteger(confidence) && confidence >= 0 && confidence <= 10000;
}

async function main([url, folder, module]) {
  const model = JSON.parse(await readFile(join(folder, "model.json"), "utf-8"));
  const answer = (await import(pathToFileURL(module))).default;
  const kept = new Map(); // by device and id: the request's bytes and its reply, so that one that comes again is the same
  const told = new Map(); // by device: when it was told that another f0 answers here
  const counts = {};
  const count = (what) => { counts[what] = (counts[what] ?? 0) + 1; };
  const client = mqtt.connect(url, { protocolVersion: 5, clean: true });

  client.on("connect", () => client.subscribe(`$share/${model.hpc.slice(0, 16)}/hardcase/v1/+/request`, { qos: 1 }, (error) => {
    console.log(JSON.stringify(error ? { event: "refused", why: error.message } : { event: "ready", hpc: model.hpc }));
  }));
  client.on("error", (error) => console.error(error.message));
  client.on("message", async (topic, payload, packet) => {
    const arrived = performance.now(), device = DEVICE.exec(topic)?.[1];
    if (!device) return count("malformed");
    const correlationData = packet.properties?.correlationData;
    if (correlationData?.length > 256) return count("malformed");
    const send = (bytes) => client.publish(`hardcase/v1/${device}/reply`, bytes, { qos: 0, properties: correlationData ? { correlationData } : {} });
    const request = unpack(payload, model);
    if (request.reason === "other_hpc" && arrived - (told.get(device) ?? -Infinity) >= 1000) {
      told.delete(device);
      told.set(device, arrived);
      if (told.size > MOST_KEPT) told.delete(told.keys().next().value);
      send(pack(request.id, model.hpc, OTHER_HPC));
    }
    if (request.reason) return count(request.reason);
    const key = `${device} ${request.id.toString("hex")}`, same = payload.subarray(8), before = kept.get(key);
    if (before && !before.same.equals(same)) return count("malformed");
    const entry = before ?? { same: Buffer.from(same), reply: replied(request) };
    kept.set(key, entry);
    if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
    const bytes = await entry.reply;
    if (performance.now() - arrived > request.deadline) return count("late");
    send(bytes);
    return count(before ? "repeated" : "served");
  });

  async function replied({ id, readings }) {
    const own = Buffer.from(id);
    try {
      const said = await answer(readings);
      if (isAnswer(said, model.classes)) return pack(own, model.hpc, OK, said.result, said.confidence);
    } catch (error) {
      console.error(String(error.message));
    }
    count("refused");
    return pack(own, model.hpc, REFUSED);
  }

  process.on("SIGTERM", () => {
    console.log(JSON.stringify({ event: "stopped", ...counts }));
    client.end(false, () => process.exit(0));
  });
}

if (process.argv[1]?.endsWith("worker.mjs")) await main(process.argv.slice(2));
