// SPDX-License-Identifier: Apache-2.0
// Sensors, nodes and classes are numbers, as in the program. Costs and budgets are whole millionths of the user's unit.

/** A number, or null (as NaN, and as what the reading's type cannot hold) for a missing one. */
export type Reading = number | null;
export type Type = "i32" | "f32" | "f64";
export type Whole = number | bigint;

export interface Options {
  /** The most that declared costs may come to; null, or left out: no limit. */
  budget?: Whole | null;
  /** 1, or up to the policy's `largestItem`. */
  itemSize?: number;
  /** False: the cloud cannot be reached. */
  cloud?: boolean;
  /** Sensors that are known not to work: they are never asked for and never charged. */
  dead?: readonly number[];
}

export interface Seen {
  /** Sensors that were bought, failed ones included. */
  sensors: number[];
  /** Sensors that the decision wanted in vain, because they are dead or have failed. */
  failed: number[];
  /** Sensors that the decision wanted and the budget did not allow. */
  unpaid: number[];
  /** The nodes that were visited, in order. */
  trace: number[];
}

export interface Decision extends Seen {
  need: null;
  /** A class; of a policy of values, the value in steps. */
  result: number;
  /** In basis points, 0 to 10000. */
  confidence: number;
  route: "local" | "cloud" | "degraded";
  cost: number;
  /** The same beyond 2^53. */
  exact: { result: bigint; cost: bigint };
}

export interface NeedSensors {
  need: "sensors";
  sensors: number[];
}

export interface NeedReply {
  need: "reply";
  /** The readings to send, as docs/SPEC-wire-v1.md has them. */
  request: Uint8Array;
}

/** One decision. Whatever it is told, it ends, and keeps declared costs within the budget. */
export class Session {
  private constructor();
  /** What it needs now, or the decision; the same again until that is done. */
  next(): NeedSensors | NeedReply | Decision;
  /** A sensor's readings; null, or anything but its numbers: it has failed. `cost`: what it really cost, if less. */
  feed(sensor: number, readings: readonly Reading[] | null | undefined, cost?: Whole): void;
  /** The answer of f0. */
  reply(result: Whole, confidence: number): void;
  /** Time is up: the fallback answers, degraded. */
  noReply(): void;
  /** Charge one more transmission; false, and nothing charged, if the budget forbids it. */
  resend(): boolean;
  /** By the clock: what has really been spent until now, in place of declared costs. */
  elapsed(amount: Whole): void;
  /** What has happened so far, and what was spent. */
  progress(): Seen & { spent: bigint };
}

export class Policy {
  /** The policy in an image, proved harmless, by the kernel of hardcase.wasm. */
  constructor(kernel: WebAssembly.Module, image: Uint8Array);
  /** The types of each sensor's readings. */
  readonly sensors: readonly (readonly Type[])[];
  readonly nodes: number;
  /** 0: the answers are values. */
  readonly classes: number;
  readonly largestItem: number;
  /** What each decision costs before it buys anything. */
  readonly startCost: number;
  session(options?: Options): Session;
  /** A whole decision on readings known in advance, by sensor; `reply`: f0's answer, result and confidence. */
  decide(
    readings: readonly (readonly Reading[] | null | undefined)[],
    options?: Options & { reply?: readonly [Whole, number] | null },
  ): Decision;
  /** Set the threshold of a node, which moves the forward price of an image made with prices. */
  move(node: number, threshold: Whole): void;
}

/** The policy in an image; the kernel is hardcase.wasm beside hardcase.js, or from elsewhere. */
export function load(image: Uint8Array, wasm?: URL | BufferSource): Promise<Policy>;
