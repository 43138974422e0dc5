// How each client is set up, from the gateway's own table of clients.

import { get } from "./api.js";
import { byId, el, mark, prose, show, snippet } from "./dom.js";

const POINTS = {
  here: ["good", "points to this gateway"],
  elsewhere: ["warn", "points to another address"],
  nowhere: ["none", "not set up"],
  unreadable: ["bad", "file cannot be read"],
};

// Stands for the key while the gateway has none.
const NO_KEY = "-";
const ANY_KEY = "The gateway has no key. If a client wants one, any word works.";
const OWN_KEY = "The key is the gateway's own.";
const KEY_FOR_COMMANDS =
  "The command takes the key from `CURSOR_GATEWAY_API_KEY` in its environment, or from the " +
  "configuration file of the gateway.";

let isShown = false;

/** After the gateway was unreachable. What is on the screen stays, with the open card open. */
export function recoverClients(options) {
  if (!isShown) openClients(options);
}

export async function openClients({ baseUrl }) {
  const place = byId("client-list");
  isShown = false;
  try {
    const { data, key } = await get("v1/clients");
    const installedFirst = [...data].sort((one, other) => other.installed - one.installed);
    show(place, introduction(baseUrl, key), installedFirst.map(cardWith(key)));
    isShown = true;
  } catch (error) {
    show(place, el("p.notice.bad", prose(error.message)));
  }
}

function introduction(baseUrl, key) {
  return el(
    "section.any-client",
    el("h2", "Any client"),
    el("p", key === NO_KEY ? ANY_KEY : OWN_KEY),
    el("p", "Clients of OpenAI's API need this base URL:"),
    snippet("the base URL for OpenAI's API", baseUrl),
    el("p", prose("Clients of Anthropic's API add the `/v1` themselves and need this one:")),
    snippet("the base URL for Anthropic's API", baseUrl.replace(/\/v1$/, "")),
  );
}

const cardWith = (key) => (each, at) => {
  const hasKey = key !== NO_KEY;
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
      el("p", prose("Writes the client's file and stores the old one; `--undo` restores it.")),
      hasKey && el("p", prose(KEY_FOR_COMMANDS)),
      command(each, "--write"),
      each.can_launch && [
        el("p", "Or start the client once, without changing any file:"),
        command(each, "--launch"),
      ],
      el("h3", "By hand"),
      el("p", "In ", el("code.path", each.file)),
      snippet(`the configuration of ${each.title}`, each.content),
      each.second_file && [
        el("p", "And in ", el("code.path", each.second_file.file)),
        snippet(`the second file of ${each.title}`, each.second_file.content),
      ],
      hasKey && el("p", prose(`Put the gateway's key in place of \`${key}\`.`)),
      el("p", "Then try:"),
      snippet(`an example for ${each.title}`, each.example),
    ),
  );
};

function command({ name, title }, option) {
  return snippet(`the ${option} command of ${title}`, `cursor-gateway setup ${name} ${option}`);
}
