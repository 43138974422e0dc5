// One request: what it was, where its time went, and how to repeat it.

import { get } from "./api.js";
import { byId, el, prose, show, snippet, svg } from "./dom.js";
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
let shown = null;

dialog.addEventListener("close", () => {
  if (openId) location.hash = "requests";
});
// A click beside the panel closes it, as people expect.
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

export async function openDetail(id, health) {
  openId = id;
  shown = null;
  fill(el("p.quiet", "Loading…"));
  if (!dialog.open) dialog.showModal();
  await load(id, health);
}

export function closeDetail() {
  openId = null;
  dialog.close();
}

/** A gateway that is unreachable finishes nothing, and the page cannot ask it. */
export function loseDetail(health) {
  if (openId && shown?.outcome === "running") fillWith({ ...shown, outcome: "not_known" }, health);
}

/** After the gateway was unreachable: it may know more about the request, or nothing. */
export function recoverDetail(health) {
  if (openId) load(openId, health);
}

/** Shows what happens to the open request. */
export function refreshDetail(record, health) {
  if (record.id === openId) load(record.id, health);
}

function fillWith(record, health) {
  shown = record;
  fill(facts(record), timeline(record), agents(record), words(record, health), curl(record));
}

async function load(id, health) {
  try {
    const record = await get(`v1/requests/${encodeURIComponent(id)}`);
    if (id === openId) fillWith(record, health);
  } catch (error) {
    if (id === openId) fill(el("p.notice.bad", prose(error.message)));
  }
}

function fill(...parts) {
  const close = el("button.close", { type: "button", "aria-label": "Close" }, "×");
  show(
    dialog,
    el(
      "div.panel",
      el("div.panel-head", el("h2", { id: "detail-title" }, "Request ", el("code", openId)), close),
      parts,
    ),
  );
  dialog.querySelector(".close").onclick = () => dialog.close();
}

function facts(record) {
  const isAnother = record.resolved && record.model && record.model !== record.resolved;
  return el(
    "dl.facts",
    fact("Outcome", outcome(record), record.status && ` status ${record.status}`),
    record.error && fact("Why", record.error),
    fact("When", whole(record.at)),
    fact("Client", record.client || "–"),
    fact("Model", meant(record), isAnother && el("span.quiet", ` asked for ${record.model}`)),
    fact("Dialect", record.dialect, record.stream ? ", streamed" : ", whole"),
    record.agent_kind && fact("Agent", record.agent_kind),
    fact("Tool channel", record.channel ?? "not known yet"),
    fact("Tokens", record.tokens ? tokens(record.tokens) : "–"),
    record.calls.length > 0 && fact("Tool calls", record.calls.join(", ")),
    record.loop && fact("Loop guard", JSON.stringify(record.loop)),
    record.chat && fact("Chat", el("code", record.chat)),
  );
}

function tokens({ input, output, cached, estimated }) {
  const counted = `${count(input)} in, ${count(cached)} of them cached, ${count(output)} out`;
  return estimated ? `${counted} (estimated)` : counted;
}

const fact = (name, ...value) => el("div", el("dt", name), el("dd", value));

function timeline(record) {
  const moments = Object.entries(record.timeline).sort(([, one], [, other]) => one - other);
  const whole = Math.max(record.duration_ms, 1);
  let before = 0;
  const rows = moments.map(([name, at]) => {
    const row = el(
      "tr",
      el("th", { scope: "row" }, MOMENTS[name] ?? name),
      el("td.number", duration(at)),
      el("td.number.quiet", `+${duration(at - before)}`),
      el("td.span", bar(before / whole, at / whole)),
    );
    before = at;
    return row;
  });
  const names = ["Moment", "After", "Step"].map((name) => el("th", { scope: "col" }, name));
  const head = el("thead", el("tr", names, el("td")));
  return section("Timeline", el("table.timeline", head, el("tbody", rows)));
}

function bar(from, to) {
  const x = from * 100;
  const width = Math.max((to - from) * 100, 0.6);
  return svg(
    "svg",
    { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { x: Math.min(x, 100 - width), width, y: 0, height: 8 }),
  );
}

function agents(record) {
  const lines = record.agents.map(({ how, spare, pid, exit }) => {
    const end = exit == null ? "still running" : `exit code ${exit}`;
    // Not each agent has a process for each run.
    const process = pid == null ? [] : [`process ${pid}`, end];
    return el("li", [how, spare && "warm", ...process].filter(Boolean).join(", "));
  });
  return lines.length > 0 && section("Agent", el("ul.plain", lines));
}

const NOT_RECORDED =
  "The gateway does not record prompts and answers. Start it with `--record-prompts` to " +
  "record them.";
const NO_LONGER_STORED = "The gateway stores prompts and answers of the last 50 requests only.";

function words(record, health) {
  if (record.request == null) {
    const why = health?.record_prompts ? NO_LONGER_STORED : NOT_RECORDED;
    return section("Request and answer", el("p.quiet", prose(why)));
  }
  const { text, thinking, calls } = record.answer;
  return section(
    "Request and answer",
    fold("Request", record.request),
    thinking && fold("Thinking", thinking),
    text && fold("Answer", text, true),
    calls.map((call) => fold(`Call of ${call.name}`, call.arguments, true)),
  );
}

const fold = (title, text, open = false) =>
  el(
    "details",
    { open },
    el("summary", title),
    el("pre.words", { tabindex: "0", "aria-label": title }, text),
  );

function curl(record) {
  return section("Repeat with curl", snippet("the curl command", record.curl, { label: "curl command" }));
}

const section = (title, ...parts) => el("section", el("h3", title), parts);
