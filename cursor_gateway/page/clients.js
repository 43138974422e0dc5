// How each client is set up, from the gateway's own table of clients.

import { get } from "./api.js";
import { byId, el, mark, show, snippet } from "./dom.js";

const POINTS = {
  here: ["good", "points here"],
  elsewhere: ["warn", "points elsewhere"],
  nowhere: ["none", "not set up"],
  unreadable: ["bad", "file cannot be read"],
};

let isOpen = false;

export async function openClients({ baseUrl }) {
  if (isOpen) return;
  isOpen = true;
  const place = byId("client-list");
  try {
    const { data } = await get("v1/clients");
    const installedFirst = [...data].sort((one, other) => other.installed - one.installed);
    show(place, introduction(baseUrl), installedFirst.map(client));
  } catch (error) {
    isOpen = false;
    show(place, el("p", { class: "notice bad" }, error.message));
  }
}

function introduction(baseUrl) {
  return el("section", { class: "any-client" },
    el("h2", {}, "Any client"),
    el("p", {}, "Whatever speaks OpenAI's or Anthropic's API needs this base URL. The key is the gateway's own; while it has none, any word will do."),
    snippet("the base URL", baseUrl));
}

function client(each, at) {
  const [kind, words] = POINTS[each.points];
  return el("details", { class: "client-card", name: "client", open: at === 0 },
    el("summary", {}, el("h2", {}, each.title), mark(kind, words), !each.installed && el("span", { class: "quiet" }, "not installed here")),
    el("div", { class: "client-body" },
      el("h3", {}, "By command"),
      el("p", {}, "Writes its file and keeps the old one; ", el("code", {}, "--undo"), " gives that back."),
      command(each, "--write"),
      each.can_launch && [el("p", {}, "Or start it once, without a change to any file:"), command(each, "--launch")],
      el("h3", {}, "By hand"),
      el("p", {}, "In ", el("code", { class: "path" }, each.file)),
      snippet(`the configuration of ${each.title}`, each.content),
      el("p", {}, "Then try:"),
      snippet(`an example for ${each.title}`, each.example)));
}

const command = (each, option) => snippet(`the command of ${each.title} with ${option}`, `cursor-gateway setup ${each.name} ${option}`);
