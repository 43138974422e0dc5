// How each client is set up, from the gateway's own table of clients.

import { get } from "./api.js";
import { byId, el, mark, prose, show, snippet } from "./dom.js";

const POINTS = {
  here: ["good", "points here"],
  elsewhere: ["warn", "points elsewhere"],
  nowhere: ["none", "not set up"],
  unreadable: ["bad", "file cannot be read"],
};

const KEY = "The key is the gateway's own; while it has none, any word will do.";

export async function openClients({ baseUrl }) {
  const place = byId("client-list");
  try {
    const { data } = await get("v1/clients");
    const installedFirst = [...data].sort((one, other) => other.installed - one.installed);
    show(place, introduction(baseUrl), installedFirst.map(client));
  } catch (error) {
    show(place, el("p.notice.bad", prose(error.message)));
  }
}

function introduction(baseUrl) {
  return el(
    "section.any-client",
    el("h2", "Any client"),
    el("p", "Whatever speaks OpenAI's or Anthropic's API needs this base URL. ", KEY),
    snippet("the base URL", baseUrl),
  );
}

function client(each, at) {
  const [kind, words] = POINTS[each.points];
  return el(
    "details.client-card",
    { name: "client", open: at === 0 },
    el(
      "summary",
      el("h2", each.title),
      mark(kind, words),
      !each.installed && el("span.quiet", "not installed here"),
    ),
    el(
      "div.client-body",
      el("h3", "By command"),
      el("p", prose("Writes its file and keeps the old one; `--undo` gives that back.")),
      command(each, "--write"),
      each.can_launch && [
        el("p", "Or start it once, without a change to any file:"),
        command(each, "--launch"),
      ],
      el("h3", "By hand"),
      el("p", "In ", el("code.path", each.file)),
      snippet(`the configuration of ${each.title}`, each.content),
      el("p", "Then try:"),
      snippet(`an example for ${each.title}`, each.example),
    ),
  );
}

function command({ name, title }, option) {
  return snippet(`the ${option} command of ${title}`, `cursor-gateway setup ${name} ${option}`);
}
