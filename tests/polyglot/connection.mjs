// What both sides of the client need: the proto files as they are, errors, and a way to some broker that is kept open.
//
// This directory is an example for whoever writes an SDK in another language. It has all of the protocol and little
// comfort; M1, S1 and so on are the lines of the checklist in docs/protocol.md that a place follows.

import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { credentials, loadPackageDefinition, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const PROTO = fileURLToPath(new URL("../../msgbroker/proto", import.meta.url));
const FILES = ["publisher", "subscriber", "directory"].map((name) => `msgbroker/v1/${name}.proto`);
// 64-bit numbers as text: a double would lose the low bits of queue ids, offsets and times. (M2)
const LOADED = loadSync(FILES, { includeDirs: [PROTO], longs: String, enums: String, defaults: true, oneofs: true });
export const { v1: proto } = loadPackageDefinition(LOADED).msgbroker;

export const GRPC_MESSAGE_BYTES_MAX = 524_288; // what a broker takes in at once
const CONNECT_MS = 3_000;
const BACKOFF_MS = { first: 50, most: 2_000 };
const SENT_ON_MAX = 3;
const OPTIONS = {
  "grpc.max_receive_message_length": 4_210_688, // M1: 4 MiB by default, and a single message may be larger
  "grpc.keepalive_time_ms": 10_000, // M3: who vanished without a word is noticed
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.keepalive_permit_without_calls": 1,
  "grpc.use_local_subchannel_pool": 1, // S1: each stream has a connection of its own
  "grpc.enable_retries": 0, // frames are sent again by their numbers, and nothing else is
};
// gRPC's own words for a broker that is gone
const LOST = ["CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE"];
const RETRYABLE = ["UNAVAILABLE", "RESOURCE_EXHAUSTED"];

/** Whatever the message center refuses: of a call, a stream, a frame or a message. `reason` is stable. (M4) */
export class MessageCenterError extends Error {
  constructor({ reason, status, message, facts = {}, retryable = false }) {
    super(message);
    Object.assign(this, { name: "MessageCenterError", reason, status, facts: { ...facts }, retryable });
  }

  /** How long the broker asks to wait, in milliseconds. */
  get retryAfterMs() {
    return 1_000 * (Number(this.facts.retry_after_seconds) || 0);
  }
}

/** Return what a call or stream ended with. Without a reason it is gRPC's own word. (M4) */
export function errorOf(error, address) {
  if (error instanceof MessageCenterError) return error;
  const told = (name) => error.metadata?.get(name)[0];
  const name = status[error.code] ?? "UNKNOWN";
  const reason = told("msgcenter-reason");
  if (reason === undefined) {
    const message = `broker ${address}: ${error.details ?? error.message}`;
    const isLost = LOST.includes(name);
    return new MessageCenterError({
      reason: isLost ? "BROKER_UNAVAILABLE" : name,
      status: isLost ? "UNAVAILABLE" : name,
      message,
      facts: { address },
      retryable: isLost,
    });
  }
  const facts = JSON.parse(told("msgcenter-facts-bin") ?? "{}");
  const retryable = RETRYABLE.includes(name);
  return new MessageCenterError({ reason, status: name, message: error.details, facts, retryable });
}

/** The brokers known: those given, and those that brokers told of; tried in turn. (M5) */
class Addresses {
  constructor(given) {
    this.given = given;
    this.known = given;
    this.preferred = [];
  }

  next() {
    if (this.preferred.length) return this.preferred.shift();
    this.known = [...this.known.slice(1), this.known[0]];
    return this.known.at(-1);
  }

  async learn(address) {
    const directory = new proto.Directory(address, credentials.createInsecure(), OPTIONS);
    directory.listBrokers({}, { deadline: Date.now() + CONNECT_MS }, (error, answer) => {
      directory.close();
      if (error) return; // the addresses that are known go on serving
      const learnt = answer.brokers.filter((broker) => !broker.draining).map((broker) => broker.address);
      const known = [...new Set([...this.given, ...learnt])];
      const isNew = (one) => !this.known.includes(one);
      this.known = [...this.known.filter((one) => known.includes(one)), ...known.filter(isNew)];
    });
  }
}

/**
 * Keep a stream open: `serve(stub, address)` opens one and returns once it has ended; with addresses, where the broker
 * sent it to others. Ends when `isOver()`, and raises what every other broker would say as well.
 */
export async function keepConnected(Stub, given, serve, isOver) {
  const addresses = new Addresses(given);
  let backoffMs = BACKOFF_MS.first;
  let sentOn = 0;
  while (!isOver()) {
    const address = addresses.next();
    const stub = new Stub(address, credentials.createInsecure(), OPTIONS);
    const beganAt = Date.now();
    // That a broker took the stream proves nothing; that it lasted does.
    const forget = () => Date.now() - beganAt > BACKOFF_MS.most && ([backoffMs, sentOn] = [BACKOFF_MS.first, 0]);
    let hintMs = 0;
    try {
      await ready(stub, address);
      addresses.learn(address);
      addresses.preferred = (await serve(stub, address).finally(forget)) ?? [];
      // Sent elsewhere: at once, unless the brokers send it round in circles. (M10)
      if (++sentOn <= SENT_ON_MAX) continue;
      sentOn = 0;
    } catch (error) {
      const cause = errorOf(error, address);
      if (!cause.retryable) throw cause; // every broker would say so (M6)
      hintMs = cause.retryAfterMs;
    } finally {
      stub.close();
    }
    // With jitter, so that a thousand clients do not come back in step. (M6)
    if (!isOver()) await sleep(Math.max(hintMs, backoffMs * (0.5 + Math.random() / 2)));
    backoffMs = Math.min(2 * backoffMs, BACKOFF_MS.most);
  }
}

function ready(stub, address) {
  return new Promise((resolve, reject) => {
    stub.waitForReady(Date.now() + CONNECT_MS, (error) => {
      if (!error) return resolve();
      const message = `broker ${address} did not answer within ${CONNECT_MS} ms`;
      reject(new MessageCenterError({ reason: "BROKER_UNAVAILABLE", status: "UNAVAILABLE", message, retryable: true }));
    });
  });
}
