// The example client behind lines of JSON: what tests/polyglot/node_center.py says comes in, what it is told goes out.

import { createInterface } from "node:readline";
import { Publisher } from "./publisher.mjs";
import { Subscriber, Verdict } from "./subscriber.mjs";

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const settings = JSON.parse(process.argv[2]);
const publisher = new Publisher(settings);
const subscribers = [];
const handling = new Map(); // messages that a handler beyond the bridge is at, by number
let number = 0;

/** Give a message to its handler, and wait for what that says of it. */
function handle(index, message) {
  const { body, messageId, ...rest } = message;
  const handled = { ...rest, body: body.toString("base64"), messageId: messageId.toString("hex") };
  const own = ++number;
  say({ handler: index, number: own, message: handled });
  return new Promise((resolve, reject) => {
    handling.set(own, { message, resolve, reject });
    message.signal.addEventListener("abort", () => {
      if (handling.delete(own)) reject(message.signal.reason);
      say({ gone: own });
    });
  });
}

const commands = {
  publish: ({ message }) => publisher.publish({ ...message, body: Buffer.from(message.body, "base64") }),
  subscribe: ({ group, handlers }) => {
    const warn = (warning) => say({ warning });
    const handled = handlers.map(({ index, ...type }) => ({ ...type, handle: (message) => handle(index, message) }));
    const subscriber = new Subscriber({ ...settings, group, handled, warn });
    subscribers.push(subscriber);
    return subscriber.start();
  },
  settle: ({ number, verdict }) => {
    const said = handling.get(number);
    if (!handling.delete(number)) return; // others have it by now
    if (verdict) said.reject(new Verdict(verdict.kind, verdict.text, verdict));
    else said.resolve();
  },
  extend: ({ number, ms }) => handling.get(number)?.message.extend(ms),
  resent: () => publisher.resent,
  close: () => Promise.all([...subscribers, publisher].map((each) => each.close())),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, command, ...said } = JSON.parse(line);
  // Not awaited: a publish does not wait for the one before.
  Promise.resolve()
    .then(() => commands[command](said))
    .then((answer) => say({ id, answer: answer ?? null }))
    .catch(({ reason, status, message, facts }) => say({ id, error: { reason, status, message, facts } }));
}
