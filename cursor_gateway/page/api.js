// The gateway's own routes, with the key where it wants one.

import { byId } from "./dom.js";

const KEPT = "cursor-gateway-key";

/** What the gateway answers instead of what was asked for, as it says it. */
export class Refused extends Error {
  constructor({ message, code, status, request_id: requestId }) {
    super(message);
    this.code = code;
    this.status = status;
    this.requestId = requestId;
  }
}

export async function get(path, options) {
  return (await ask(path, options)).json();
}

export function post(path, body, options) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { ...options, method: "POST", headers, body: JSON.stringify(body) });
}

/** A response that is good. Asks for the key as long as it takes. */
export async function ask(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEPT);
    const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
    const response = await fetch(path, { ...options, headers });
    if (response.ok) return response;
    const refused = new Refused(await said(response));
    if (refused.code !== "invalid_api_key") throw refused;
    await newKey(key);
  }
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
  if (sessionStorage.getItem(KEPT) !== wrong) return;
  asking ??= askForKey(wrong).finally(() => {
    asking = null;
  });
  await asking;
}

function askForKey(wrong) {
  const dialog = byId("key");
  const input = byId("key-input");
  if (wrong) byId("key-why").textContent = "That was not the key. Try again.";
  dialog.addEventListener("cancel", stay);
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEPT, input.value);
      input.value = "";
      dialog.removeEventListener("cancel", stay);
      dialog.close();
      resolve();
    };
  });
}

// Without the key there is nothing behind the dialog to go back to.
const stay = (event) => event.preventDefault();

/** The frames of an event stream: `{event, data}`. Comments are signs of life and mean nothing. */
export async function* frames(response) {
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
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
