// Publishing: frames are numbered, sent again under the same number until they are answered, and so stored once.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { errorOf, GRPC_MESSAGE_BYTES_MAX, keepConnected, MessageCenterError, proto } from "./connection.mjs";

const { path, requestSerialize: encode, responseDeserialize: decode } = proto.Publisher.service.PublishStream;
const FRAMES_MAX = 16; // unanswered; a broker reads no more of a stream meanwhile
const FRAME_MESSAGES_MAX = 1_000;
const FRAME_BYTES = 256 * 1024; // worth a frame; a single message may be larger
const PART_BYTES_MAX = GRPC_MESSAGE_BYTES_MAX - 64;
const UNANSWERED_MAX = 10_000;
const SILENCE_MS = 10_000;
const PAUSE_MS = 50;

export class Publisher {
  #settings;
  #id = randomBytes(16); // M7: random, and kept while this lives, across reconnects
  #nextSequence = 1;
  #waiting = []; // messages in no frame yet
  #frames = []; // unanswered ones, in the order of their numbers
  #call = null;
  #isStalled = false; // a frame failed: nothing more is sent until all that is under way is answered
  #isHeld = false; // the broker drains
  #isClosed = false;
  #running = null;
  #broken = null;
  resent = 0; // frames that were sent more than once

  constructor({ addresses, namespace = "default", publisherGroup = "" }) {
    this.#settings = { addresses, namespace, publisherGroup };
  }

  /** Publish {topic, eventCode, body, headers, key, orderingKey}; resolves to the receipt once it is committed. */
  publish(message) {
    if (this.#broken) return Promise.reject(this.#broken);
    const unanswered = this.#frames.reduce((count, frame) => count + frame.waiters.length, this.#waiting.length);
    if (unanswered >= UNANSWERED_MAX) return Promise.reject(bufferFull(unanswered)); // S2
    // An encoded frame of one message: frames of many are these put together, as protobuf allows.
    const encoded = encode({ messages: [{ bornAtUs: Date.now() * 1_000, ...message }] });
    this.#running ??= this.#run();
    return new Promise((resolve, reject) => {
      this.#waiting.push({ encoded, resolve, reject });
      // What is published in one turn goes in one frame.
      if (this.#waiting.length === 1) setImmediate(() => this.#pump());
    });
  }

  async close() {
    this.#isClosed = true;
    this.#call?.cancel();
    this.#break(new MessageCenterError({ reason: "CENTER_CLOSED", status: "FAILED_PRECONDITION", message: "closed" }));
    await this.#running;
  }

  #run() {
    const { addresses } = this.#settings;
    return keepConnected(proto.Publisher, addresses, this.#serve, () => this.#isClosed).catch(this.#break);
  }

  #serve = (stub, address) =>
    new Promise((resolve, reject) => {
      const call = stub.makeBidiStreamRequest(path, (bytes) => bytes, decode);
      const leave = (act) => {
        clearTimeout(silence);
        if (this.#call === call) this.#call = null;
        act();
      };
      // A broker that has frames to answer, and answers nothing, is left for the next one. (S3)
      const silence = setTimeout(() => (this.#isUnderWay() ? call.cancel() : silence.refresh()), SILENCE_MS);
      call.on("drain", () => this.#pump());
      call.on("error", (error) => leave(() => reject(errorOf(error, address))));
      call.on("end", () => leave(() => resolve()));
      call.on("data", (result) => {
        silence.refresh();
        if (this.#call !== call) return; // what is said to a former id
        this.#take(result);
        if (this.#isHeld && !this.#isUnderWay() && !call.writableEnded) call.end(); // M10
      });
      const { namespace, publisherGroup } = this.#settings;
      call.write(encode({ hello: { publisherId: this.#id, namespace, publisherGroup, bornHost: hostname() } }));
      // All that is unanswered goes again, from the oldest, under the same numbers. (M8)
      for (const frame of this.#frames) frame.isUnderWay = false;
      [this.#call, this.#isStalled, this.#isHeld] = [call, false, false];
      this.#pump();
    });

  #isUnderWay = () => this.#frames.some((frame) => frame.isUnderWay);

  #pump() {
    while (this.#call && !this.#isStalled && !this.#isHeld) {
      const frame = this.#frames.find((each) => !each.isUnderWay) ?? this.#seal();
      if (!frame) return;
      frame.isUnderWay = true;
      this.resent += frame.sent++ ? 1 : 0;
      let hasRoom = true;
      for (const part of partsOf(frame)) hasRoom = this.#call.write(part);
      if (!hasRoom) return; // M9: "drain" goes on
    }
  }

  #seal() {
    if (this.#frames.length >= FRAMES_MAX || !this.#waiting.length) return null;
    let count = 0;
    for (let bytes = 0; count < Math.min(this.#waiting.length, FRAME_MESSAGES_MAX); count++) {
      bytes += this.#waiting[count].encoded.length;
      if (count && bytes > FRAME_BYTES) break;
    }
    const waiters = this.#waiting.splice(0, count);
    const frame = { sequence: this.#nextSequence++, waiters, isUnderWay: false, sent: 0 };
    this.#frames.push(frame);
    return frame;
  }

  #take(result) {
    this.#isHeld ||= result.draining;
    const frame = this.#frames.find((each) => each.sequence === Number(result.sequence));
    if (frame) {
      frame.isUnderWay = false;
      if (result.failure) this.#failed(frame, new MessageCenterError(result.failure));
      else this.#stored(frame, result);
    }
    if (this.#isStalled && !this.#isUnderWay()) {
      const pauseMs = Number(result.failure?.facts.retry_after_seconds ?? 0) * 1_000 || PAUSE_MS;
      setTimeout(() => ((this.#isStalled = false), this.#pump()), pauseMs);
    }
    this.#pump();
  }

  #stored(frame, result) {
    this.#frames.splice(this.#frames.indexOf(frame), 1);
    const refusals = new Map(result.refusals.map(({ index, refusal }) => [index, refusal]));
    const ahead = new Map(result.ahead.map(({ queueId, storedAtUs }) => [queueId, storedAtUs]));
    const firstId = BigInt(`0x${result.firstMessageId.toString("hex")}`);
    frame.waiters.forEach(({ resolve, reject }, index) => {
      if (refusals.has(index)) return reject(new MessageCenterError(refusals.get(index))); // M11: of this message alone
      const [queueId, queueOffset] = [result.queueIds[index], result.queueOffsets[index]];
      const messageId = (firstId + BigInt(index)).toString(16).padStart(32, "0");
      const storedAtUs = ahead.get(queueId) ?? result.storedAtUs;
      resolve({ messageId, queueId, queueOffset, storedAtUs, duplicate: result.duplicate });
    });
  }

  /** A frame as a whole was not stored. (M8) */
  #failed(frame, error) {
    const [oldest] = this.#frames;
    if (error.reason === "FRAME_FORGOTTEN") return this.#giveUp(frame, error); // stored, and nobody knows where
    this.#isStalled = true;
    const hasLost = error.reason === "SEQUENCE_GAP" && Number(error.facts.expected) < oldest.sequence;
    if (!error.retryable && frame === oldest) this.#giveUp(frame, error);
    else if (!hasLost) return;
    // No broker would pass the hole that is left: what is unanswered goes on under a new id, from 1, on a new stream.
    this.#id = randomBytes(16);
    this.#frames.forEach((each, index) => (each.sequence = index + 1));
    this.#nextSequence = this.#frames.length + 1;
    this.#call.cancel();
    this.#call = null;
  }

  #giveUp(frame, error) {
    this.#frames.splice(this.#frames.indexOf(frame), 1);
    for (const { reject } of frame.waiters) reject(error);
  }

  #break = (error) => {
    this.#broken = error;
    for (const frame of [...this.#frames]) this.#giveUp(frame, error);
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  };
}

/** Return a frame as the gRPC messages it goes in: itself, or parts where it is larger than a broker takes. (M12) */
function* partsOf({ sequence, waiters }) {
  const bytes = Buffer.concat([encode({ sequence }), ...waiters.map((waiter) => waiter.encoded)]);
  if (bytes.length <= GRPC_MESSAGE_BYTES_MAX) return yield bytes;
  for (let at = 0; at < bytes.length; at += PART_BYTES_MAX) {
    const part = bytes.subarray(at, at + PART_BYTES_MAX);
    yield encode(at ? { part } : { frameBytes: bytes.length, part });
  }
}

function bufferFull(count) {
  const [reason, status] = ["CLIENT_BUFFER_FULL", "RESOURCE_EXHAUSTED"];
  return new MessageCenterError({ reason, status, message: `${count} messages are unanswered`, retryable: true });
}
