// One request: what it was, where its time went, and how to repeat it.

import { get } from "./api.js";
import { byId, el, show, snippet, svg } from "./dom.js";
import { count, duration, whole } from "./format.js";
import { meant, outcome } from "./requests.js";

const MOMENTS = {
  queued: "Asks for a slot",
  started: "Has a slot",
  agent_started: "Agent has the prompt",
  first_event: "Agent writes its first line",
  first_token: "Client gets the first token",
  calls: "Client gets tool calls",
  end: "End",
};

const dialog = byId("detail");
let openId = null;

dialog.addEventListener("close", () => {
  if (openId) location.hash = "requests";
});
// A click beside the panel closes it, as people expect.
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

export async function openDetail(id, health) {
  openId = id;
  fill(el("p", { class: "quiet" }, "Loading…"));
  if (!dialog.open) dialog.showModal();
  await load(id, health);
}

export function closeDetail() {
  openId = null;
  dialog.close();
}

/** What happens to the request that is shown is shown. */
export function refreshDetail(record, health) {
  if (record.id === openId) load(record.id, health);
}

async function load(id, health) {
  try {
    const record = await get(`v1/requests/${encodeURIComponent(id)}`);
    if (id === openId) fill(facts(record), timeline(record), agents(record), words(record, health), replay(record, health));
  } catch (error) {
    if (id === openId) fill(el("p", { class: "notice bad" }, error.message));
  }
}

function fill(...parts) {
  const close = el("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
  show(dialog, el("div", { class: "panel" },
    el("div", { class: "panel-head" }, el("h2", { id: "detail-title" }, "Request ", el("code", {}, openId)), close), parts));
  dialog.querySelector(".close").onclick = () => dialog.close();
}

function facts(record) {
  const asked = record.model && record.model !== record.resolved ? `asked for ${record.model}` : "";
  const { input, output, cached, estimated } = record.tokens ?? {};
  return el("dl", { class: "facts" },
    fact("Outcome", outcome(record), record.status && ` status ${record.status}`),
    fact("When", whole(record.at)),
    fact("Client", record.client || "–"),
    fact("Model", meant(record), asked && el("span", { class: "quiet" }, ` ${asked}`)),
    fact("Dialect", record.dialect, record.stream ? ", streamed" : ", whole"),
    fact("Channel of tools", record.channel ?? "not known yet"),
    fact("Tokens", record.tokens ? `${count(input)} in, ${count(cached)} of them cached, ${count(output)} out${estimated ? " (estimated)" : ""}` : "–"),
    record.calls.length > 0 && fact("Tool calls", record.calls.join(", ")),
    record.loop && fact("Loop guard", JSON.stringify(record.loop)),
    record.chat && fact("Chat", el("code", {}, record.chat)),
  );
}

const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

function timeline(record) {
  const moments = Object.entries(record.timeline).sort(([, one], [, other]) => one - other);
  const whole = Math.max(record.duration_ms, 1);
  let before = 0;
  const rows = moments.map(([name, at]) => {
    const row = el("tr", {},
      el("th", { scope: "row" }, MOMENTS[name] ?? name),
      el("td", { class: "number" }, duration(at)),
      el("td", { class: "number quiet" }, `+${duration(at - before)}`),
      el("td", { class: "span" }, bar(before / whole, at / whole)));
    before = at;
    return row;
  });
  return section("Timeline", el("table", { class: "timeline" },
    el("thead", {}, el("tr", {}, ["Moment", "After", "Step"].map((name) => el("th", { scope: "col" }, name)), el("td", {}))),
    el("tbody", {}, rows)));
}

function bar(from, to) {
  const x = from * 100;
  const width = Math.max((to - from) * 100, 0.6);
  return svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { x: Math.min(x, 100 - width), width, y: 0, height: 8 }));
}

function agents(record) {
  return record.agents.length > 0 && section("Agent", el("ul", { class: "plain" }, record.agents.map((agent) =>
    el("li", {}, agent.how, agent.spare && ", a spare", `, process ${agent.pid}`,
      agent.exit == null ? ", still there" : `, exit code ${agent.exit}`))));
}

function words(record, health) {
  if (record.request == null) {
    const why = health?.record_prompts
      ? "What was asked is kept for the last 50 requests only."
      : ["What was asked and answered is not recorded. Start the gateway with ", el("code", {}, "--record-prompts"), " to keep it."];
    return section("Words", el("p", { class: "quiet" }, why));
  }
  const { text, thinking, calls } = record.answer;
  return section("Words",
    fold("Request", record.request),
    thinking && fold("Thinking", thinking),
    text && fold("Answer", text, true),
    calls.map((call) => fold(`Call of ${call.name}`, call.arguments, true)));
}

const fold = (title, text, open = false) => el("details", { open },
  el("summary", {}, title), el("pre", { class: "words", tabindex: "0", "aria-label": title }, text));

function replay(record, health) {
  return section("Replay",
    record.request == null && el("p", { class: "quiet" }, "Same route and model, with a small prompt in place of the real one."),
    snippet("the curl command", record.curl, { label: "curl command" }));
}

const section = (title, ...parts) => el("section", {}, el("h3", {}, title), parts);
