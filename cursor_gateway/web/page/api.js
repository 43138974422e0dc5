// The gateway's own routes, with the key where it wants one.

import { byId } from "./dom.js";

const KEPT = "cursor-gateway-key";

let key = sessionStorage.getItem(KEPT);

/** An error response of the gateway, in its own words. */
export class Refused extends Error {
  constructor({ message, code, status, request_id: requestId }) {
    super(message);
    this.code = code;
    this.status = status;
    this.requestId = requestId;
  }
}

export const START_IT = "If it was stopped, start it with `cursor-gateway serve`.";
const UNREACHED = { message: `The gateway does not answer. ${START_IT}` };
const BROKEN_OFF = { message: "The connection broke off.", code: "broken_off" };

/** In our own words: those of browsers differ and do not help people. */
function otherwise(what) {
  return () => {
    throw new Refused(what);
  };
}

export async function get(path, options) {
  const response = await ask(path, options);
  return response.json().catch(otherwise(BROKEN_OFF));
}

export function post(path, body, options) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { ...options, method: "POST", headers, body: JSON.stringify(body) });
}

/** A good response. Asks for the key until it is right. */
export async function ask(path, options = {}) {
  for (;;) {
    const tried = key;
    const headers = { ...options.headers, ...(tried && { Authorization: bearer(tried) }) };
    const response = await fetch(path, { ...options, headers }).catch(otherwise(UNREACHED));
    const refused = response.ok ? null : new Refused(await said(response));
    if (refused?.code !== "invalid_api_key") {
      if (tried) sessionStorage.setItem(KEPT, tried);
      if (refused) throw refused;
      return response;
    }
    await newKey(tried);
  }
}

/** A header is made of bytes, which `fetch` takes as characters up to U+00FF; the key is UTF-8. */
function bearer(words) {
  return `Bearer ${String.fromCharCode(...new TextEncoder().encode(words))}`;
}

async function said(response) {
  const other = { message: `The gateway answered ${response.status}.`, status: response.status };
  try {
    return (await response.json()).error ?? other;
  } catch {
    return other;
  }
}

let asking = null;

/** Several requests may find out at once that there is no key; people are asked once. */
async function newKey(wrong) {
  if (key !== wrong) return;
  sessionStorage.removeItem(KEPT);
  if (wrong) sayWrong();
  asking ??= enteredKey().finally(() => {
    asking = null;
  });
  key = await asking;
}

function enteredKey() {
  const dialog = byId("key");
  const input = byId("key-input");
  const open = () => {
    dialog.showModal();
    input.focus();
  };
  // Without the key there is nothing behind the dialog to go back to. Preventing `cancel` would not
  // do: browsers let a second Escape through.
  dialog.onclose = open;
  open();
  return new Promise((resolve) => {
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      const entered = input.value;
      input.value = "";
      if (!canBeSent(entered)) return sayWrong();
      dialog.onclose = null;
      dialog.close();
      resolve(entered);
    };
  });
}

const canBeSent = (words) => !/[\0-\x1f\x7f]/.test(words);

function sayWrong() {
  byId("key-why").textContent = "That was not the key. Try again.";
}

/** The frames of an event stream: `{event, data}`. Comments are signs of life and mean nothing. */
export async function* frames(response) {
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(otherwise(BROKEN_OFF));
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      yield* parts.map(frame).filter(({ data }) => data);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function frame(text) {
  const found = { event: "message", data: "" };
  for (const line of text.split("\n")) {
    const [, name, value] = /^(event|data): ?(.*)$/.exec(line) ?? [];
    if (name) found[name] = value;
  }
  return found;
}
