// Subscribing: deliveries come as far as credit goes, and each is answered with a verdict, on the stream it came by.

import { randomBytes, randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { errorOf, keepConnected, MessageCenterError, proto } from "./connection.mjs";

const BEGUN_MS = 25; // a handler that is done sooner never needs to say that it has begun
const TURN_MS = 250; // so long a suspect message holds up the next one
const START_SHARE = 0.8; // of the time to answer: what is not started by then may be another's before it is done
const ERROR_CHARS_MAX = 1_000;
const SETTLEMENTS_MAX = 100; // in one request, each with an error text: a request has 524,288 bytes at most
const WHY_MISSING = {
  TOPIC_NOT_FOUND: "the topic is not registered",
  EVENT_CODE_NOT_FOUND: "the event code is not registered",
  SUBSCRIPTION_NOT_FOUND: "the group is not subscribed to it",
  NOT_UNDERSTOOD: "this broker does not understand how it is configured",
};

/** Thrown by a handler: an answer of its own. Whatever else it throws is a failed attempt. */
export class Verdict extends Error {
  constructor(kind, text = "", { delayMs, unreadable = false } = {}) {
    super(text);
    Object.assign(this, { kind, delayMs, unreadable });
  }
}

const UNHANDLED = new Verdict("RELEASE", "no handler here", { delayMs: 5_000 });

/** Keeps one group attached; `handled` is a list of {topic, eventCode, handle}, where "*" takes what no other names. */
export class Subscriber {
  #settings;
  #processId = randomBytes(16); // M13: of this process, whatever its instance id is
  #session = null;
  #isClosed = false;
  #running;

  constructor({ addresses, group, handled, ...settings }) {
    const instanceId = randomUUID();
    // The credit is what quick handlers get through in half a second; a client for all follows their speed. (S5)
    const defaults = { namespace: "default", instanceId, concurrency: 64, credit: 500, warn: console.warn };
    this.#settings = { ...defaults, ...settings, addresses, group, handled };
  }

  /** Resolves once a broker has attached the group; rejects where no broker would. */
  start() {
    const { addresses, group, warn } = this.#settings;
    return new Promise((resolve, reject) => {
      const serve = (stub, address) => {
        this.#session = new Session(stub.subscribe(), this.#hello(), this.#settings, resolve);
        return this.#session.ended(address);
      };
      this.#running = keepConnected(proto.Subscriber, addresses, serve, () => this.#isClosed).catch((error) => {
        warn(`group ${group} is not served any more: ${error.reason}: ${error.message}`);
        reject(error); // before it was ever attached; later perhaps nobody waits who could be told
      });
    });
  }

  /** Finish what runs, give back the rest, and leave. (M14) */
  async close() {
    this.#isClosed = true;
    this.#session?.leave();
    await this.#running;
  }

  #hello() {
    const { namespace, group, instanceId } = this.#settings;
    const handled = this.#settings.handled.map(({ topic, eventCode }) => ({ topic, eventCode }));
    return { namespace, group, instanceId, host: hostname(), handled, processId: this.#processId, saysBegun: true };
  }
}

/** One stream. What was not started when it ends is dropped, and a verdict on what was goes nowhere. (M15) */
class Session {
  #call;
  #settings;
  #waiting = [];
  #running = new Set();
  #settlements = new Map(); // what was said of offsets, by lane, attempt and verdict
  #begun = [];
  #extensions = [];
  #confirms = []; // those who wait until the broker has heard what was said
  #confirmNumber = 0;
  #carefulUntil = 0;
  #turn = null;
  #answerMs = Infinity; // the time to answer
  #keepMsMax = 0;
  #leaving = null;
  #isFlushing = false;
  #isOver = false;

  constructor(call, hello, settings, onAttached) {
    [this.#call, this.#settings] = [call, settings];
    call.on("drain", () => this.#flush());
    call.on("data", (response) => this.#take(response, onAttached));
    call.write({ hello, credit: settings.credit });
  }

  /** Resolves to the addresses that the broker sends this instance to; rejects where something failed. */
  ended(address) {
    return new Promise((resolve, reject) => {
      this.#call.on("end", resolve);
      this.#call.on("error", (error) => (this.#leaving ? resolve() : reject(errorOf(error, address))));
    })
      .finally(() => this.#end())
      .then(() => this.#leaving?.addresses);
  }

  #end() {
    this.#isOver = true;
    this.#drop(() => true);
    for (const { resolve } of this.#confirms.splice(0)) resolve();
  }

  /** Take nothing more, give back what was not started, and end once nothing runs. (M10, M14) */
  leave(addresses = []) {
    this.#leaving ??= { addresses, isSaid: false };
    for (const message of this.#waiting.splice(0)) this.#settle(message, settlementOf(new Verdict("RELEASE")));
    this.#flushSoon();
  }

  #take(response, onAttached) {
    if (response.attached) this.#attached(response.attached, onAttached);
    // Others have these now: what was not started is dropped, and a verdict would be too late. (M15)
    for (const { queueId, epoch } of response.revoked) {
      this.#drop(({ place }) => place.queueId === queueId && place.epoch === epoch);
    }
    for (const taken of response.takenBack) this.#drop((message) => isAmong(message, taken));
    for (const { queueId, epoch, suspect, deliveries } of response.batches) {
      const startBefore = Date.now() + this.#answerMs * START_SHARE;
      const batch = { queueId, epoch, suspect, startBefore };
      const messages = deliveries.map((delivery) => new Message(this, batch, delivery));
      this.#waiting = suspect ? [...messages, ...this.#waiting] : [...this.#waiting, ...messages];
    }
    while (this.#confirms[0]?.number <= Number(response.confirmed)) this.#confirms.shift().resolve();
    if (response.draining || response.relocation) this.leave(response.relocation?.addresses);
    if (this.#leaving) this.leave();
    this.#startMore();
  }

  #attached({ ackTimeoutMs, handleMsMax, missing, carefulMs, brokerId }, onAttached) {
    [this.#answerMs, this.#keepMsMax] = [Number(ackTimeoutMs), Number(handleMsMax)];
    if (!brokerId) return; // again: the time to answer has changed
    this.#carefulUntil = Date.now() + Number(carefulMs);
    for (const { topic, eventCode, reason } of missing) {
      const { group, warn } = this.#settings; // S4
      warn(`group ${group} gets nothing of topic ${topic}, event code ${eventCode}: ${WHY_MISSING[reason] ?? reason}`);
    }
    onAttached();
  }

  #startMore() {
    while (this.#waiting.length && this.#running.size < this.#settings.concurrency) {
      const isCareful = this.#waiting[0].suspect || Date.now() < this.#carefulUntil;
      if (isCareful && this.#turn) return;
      const message = this.#waiting.shift();
      if (Date.now() > message.startBefore) continue; // the broker takes it back (M15)
      this.#running.add(message);
      (isCareful ? this.#runInTurn(message) : this.#run(message)).finally(() => {
        this.#running.delete(message);
        this.#startMore();
        this.#flushSoon();
      });
    }
  }

  /** One message may have ended another instance: it is known to be begun before it is. (M16) */
  async #runInTurn(message) {
    this.#turn = message;
    const turnOver = () => {
      if (this.#turn !== message) return;
      this.#turn = null;
      this.#startMore();
    };
    this.#sayBegun(message);
    await new Promise((resolve) => {
      this.#confirms.push({ number: ++this.#confirmNumber, resolve });
      this.#flush();
    });
    const timer = setTimeout(turnOver, TURN_MS);
    if (message.isLive) await this.#run(message);
    clearTimeout(timer);
    turnOver();
  }

  async #run(message) {
    const ofTopic = this.#settings.handled.filter(({ topic }) => topic === message.topic);
    const of = (code) => ofTopic.find(({ eventCode }) => eventCode === code);
    const found = of(message.eventCode) ?? of("*");
    if (!found) return this.#settle(message, settlementOf(UNHANDLED));
    const timer = setTimeout(() => this.#sayBegun(message), BEGUN_MS); // M17
    // It is kept as long as its handler takes, up to what the group allows. (S6)
    const renew = () => this.extend(message, this.#answerMs);
    const keeping = this.#keepMsMax ? setInterval(renew, this.#answerMs / 3) : undefined;
    try {
      await found.handle(message);
      this.#settle(message, { verdict: "VERDICT_ACK" });
    } catch (error) {
      this.#settle(message, settlementOf(error));
    } finally {
      clearTimeout(timer);
      clearInterval(keeping);
    }
  }

  #sayBegun(message) {
    if (message.isSaid) return;
    message.isSaid = true;
    this.#begun.push({ ...message.place, ranges: message.range });
    this.#flushSoon();
  }

  extend(message, extendMs) {
    if (message.isLive) this.#extensions.push({ ...message.place, ranges: message.range, extendMs });
    this.#flushSoon();
  }

  #settle(message, settlement) {
    if (!message.isLive) return;
    message.isLive = false;
    const key = JSON.stringify([message.place, settlement]);
    if (!this.#settlements.has(key)) this.#settlements.set(key, { place: message.place, settlement, offsets: [] });
    this.#settlements.get(key).offsets.push(BigInt(message.queueOffset));
    this.#flushSoon();
  }

  #drop(isMeant) {
    for (const message of [...this.#waiting, ...this.#running]) if (message.isLive && isMeant(message)) message.lose();
    this.#waiting = this.#waiting.filter((message) => message.isLive);
  }

  /** Say all that was decided in one turn in one request. */
  #flushSoon() {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setImmediate(() => this.#flush());
  }

  #flush() {
    this.#isFlushing = false;
    if (this.#isOver || this.#call.writableEnded || this.#call.writableNeedDrain) return; // M9: "drain" goes on
    const isLeaving = this.#leaving !== null;
    const begun = this.#begun.splice(0);
    const extensions = this.#extensions.splice(0);
    const said = [...this.#settlements].slice(0, SETTLEMENTS_MAX);
    const settlements = said.map(([key, { place, settlement, offsets }]) => {
      this.#settlements.delete(key);
      return { ...place, ...settlement, ranges: rangesOf(offsets) };
    });
    const isDone = isLeaving && !this.#running.size && !this.#settlements.size;
    const confirm = this.#confirms.length ? this.#confirms.at(-1).number : 0;
    const isNew = begun.length || extensions.length || settlements.length || (isLeaving && !this.#leaving.isSaid);
    if (isNew) this.#call.write({ begun, extensions, settlements, pause: isLeaving, confirm });
    if (isLeaving) this.#leaving.isSaid = true;
    if (this.#settlements.size) this.#flushSoon();
    // After a pause an end is on purpose: nothing of what this instance still held counts as an attempt. (M14)
    if (isDone) this.#call.end();
  }
}

/** A message as a handler gets it. */
class Message {
  isLive = true; // still this instance's, and not settled
  isSaid = false;
  #session;
  #lost = new AbortController();

  constructor(session, { queueId, epoch, suspect, startBefore }, { message, ...stored }) {
    this.#session = session;
    Object.assign(this, message, stored, { queueId, suspect, startBefore, attempt: stored.attempt || 1 });
    this.place = { queueId, epoch, attempt: this.attempt };
    this.range = [this.queueOffset, this.queueOffset];
  }

  /** Aborted when others have the message: its handler may stop. */
  get signal() {
    return this.#lost.signal;
  }

  /** Keep the message for so long from now on: for a handler that will block this process for a while. */
  extend(ms) {
    this.#session.extend(this, ms);
  }

  lose() {
    this.isLive = false;
    this.#lost.abort();
  }
}

function settlementOf(thrown) {
  const said = thrown instanceof Verdict ? thrown : new Verdict("RETRY", String(thrown));
  const { kind, message, delayMs, unreadable } = said;
  // It is kept up to there, and half a surrogate pair would be no UTF-8.
  const error = message.slice(0, ERROR_CHARS_MAX).toWellFormed();
  // A delay of 0 is not the same as none: that is the group's schedule. (M18)
  const delay = { delayMs: Math.round(delayMs ?? 0), immediately: delayMs === 0 };
  return { verdict: `VERDICT_${kind}`, error, unreadable, ...delay };
}

/** Return offsets as pairs of first and last that ascend and do not touch what is not meant. (M18) */
function rangesOf(offsets) {
  const ranges = [];
  for (const offset of offsets.sort((a, b) => (a < b ? -1 : 1))) {
    if (ranges.length && offset === ranges.at(-1) + 1n) ranges[ranges.length - 1] = offset;
    else ranges.push(offset, offset);
  }
  return ranges.map(String);
}

function isAmong({ place, queueOffset }, { ranges, ...taken }) {
  if (place.queueId !== taken.queueId || place.epoch !== taken.epoch || place.attempt !== taken.attempt) return false;
  const offset = BigInt(queueOffset);
  return ranges.some((first, at) => at % 2 === 0 && BigInt(first) <= offset && offset <= BigInt(ranges[at + 1]));
}
