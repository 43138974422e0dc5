// The state of the gateway, from its `/health`.

import { START_IT } from "./api.js";
import { el, mark, prose, show } from "./dom.js";
import { plural } from "./format.js";

export function showState(list, servers, health) {
  const { agent, slots, warm, sessions, mcp } = health;
  show(
    list,
    fact("Agent", agent.kind ?? "none found", agent.version),
    fact("Sign-in", SIGN_IN[health.auth] ?? "signed out", health.account),
    fact("Slots", `${slots.busy} of ${slots.total}`, "busy"),
    fact("Queue", slots.waiting, "waiting"),
    fact("Warm agents", ...warmAgents(warm)),
    fact("Parked", plural(sessions.parked, "run"), chats(sessions)),
    health.agent_reads && fact("Agents can read", ...readable(health.agent_reads)),
    fact("MCP servers", ...bridged(mcp, health.mcp_servers)),
  );
  show(servers, health.mcp_servers.length > 0 && serverList(health.mcp_servers));
}

const SIGN_IN = { authenticated: "signed in", unknown: "being checked" };

function readable({ workspace, isolated }) {
  if (!workspace) return ["no files", "except images of the conversation"];
  return [workspace, isolated ? "isolated" : "and all that you can read; --isolate limits it to the workspace"];
}

function fact(name, value, more) {
  return el(
    "div",
    el("dt", name),
    el("dd", el("b", String(value)), " ", el("span.quiet", more ?? "")),
  );
}

function warmAgents(warm) {
  if (warm.state === "no_help") return ["none", warm.reason];
  return [`${warm.spares} of ${warm.most}`, `ready, ${warm.used} used`];
}

function chats(sessions) {
  return sessions.resume ? plural(sessions.chats, "chat") + " resumable" : "chats are not resumed";
}

function bridged(mcp, servers) {
  if (!mcp.enabled) return ["none", "configured"];
  return [`${mcp.servers} of ${servers.length}`, `connected, ${plural(mcp.tools, "tool")}`];
}

const KINDS = { connected: "good", connecting: "warn", failed: "bad" };

function serverList(servers) {
  return el(
    "ul.servers",
    { "aria-label": "MCP servers" },
    servers.map((server) =>
      el(
        "li",
        mark(KINDS[server.state] ?? "warn", server.state),
        " ",
        el("b", server.name),
        " ",
        el("span.quiet", server.error ?? plural(server.tools, "tool")),
      ),
    ),
  );
}

export function showNotices(place, health, failures) {
  if (failures) show(place, notice("bad", "The gateway does not answer.", UNREACHED));
  else
    show(
      place,
      health?.error && notice("bad", "No request can be served.", health.error.message),
      health?.agent.kind === "demo" && notice("warn", "Demo agent.", DEMO),
      health?.warnings.map((words) => notice("bad", "Warning.", words)),
    );
}

const UNREACHED = `This page tries again by itself. ${START_IT}`;
const DEMO =
  "No model answers here. For real answers install cursor-agent and sign in with " +
  "`cursor-gateway login`; then start `cursor-gateway serve`.";

function notice(kind, title, words) {
  return el("p", { class: `notice ${kind}` }, el("b", title), " ", prose(words));
}
