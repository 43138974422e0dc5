// The page as a whole: which view is shown, and the stream that keeps it true.

import { ask, frames } from "./api.js";
import { byId, copyButton, mark } from "./dom.js";
import { showCharts } from "./charts.js";
import { openClients, recoverClients } from "./clients.js";
import { closeDetail, loseDetail, openDetail, recoverDetail, refreshDetail } from "./detail.js";
import { openPlayground } from "./playground.js";
import { RequestTable } from "./requests.js";
import { showNotices, showState } from "./state.js";

const VIEWS = { requests: () => {}, playground: openPlayground, clients: openClients };
const RECOVERIES = { ...VIEWS, clients: recoverClients };
const MOST_RECORDS = 500;
// Between attempts to reach a gateway that does not answer.
const PAUSES_MS = [500, 1000, 2000, 5000];

const records = new Map();
const table = new RequestTable(byId("request-table"), byId("filter"), byId("count"));
const baseUrl = new URL("v1", location.href).href;

let health = null;
let failures = 0;
// Whether the gateway is reachable and has sent what it remembers.
let isHeard = false;
let view = "requests";

// Views

function route() {
  const [wanted, id] = location.hash.slice(1).split("/");
  if (wanted === "main") return;
  view = wanted in VIEWS ? wanted : "requests";
  for (const name of Object.keys(VIEWS)) {
    byId(`view-${name}`).hidden = name !== view;
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${byId(`${view}-title`).textContent} – cursor-gateway`;
  VIEWS[view]({ baseUrl });
  if (view === "requests" && id) openDetail(id, health);
  else closeDetail();
}

// The stream

async function follow() {
  for (;;) {
    try {
      await listen();
    } catch {
      // Handled below, like a stream that ends without an error.
    }
    failures += 1;
    isHeard = false;
    loseTheRunning();
    showStatus();
    const pause = PAUSES_MS[failures - 1] ?? PAUSES_MS.at(-1);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function listen() {
  const response = await ask("v1/events");
  for await (const { event, data } of frames(response)) {
    if (event === "health") takeHealth(JSON.parse(data));
    if (!isHeard) recover();
    if (event === "requests") takeRecords(JSON.parse(data));
    showStatus();
  }
}

/** The stream begins with all that the gateway remembers, which replaces what the page has. */
function recover() {
  isHeard = true;
  records.clear();
  takeRecords([]);
  recoverDetail(health);
  if (failures) RECOVERIES[view]({ baseUrl });
  failures = 0;
}

/** A gateway that is gone finishes nothing; when it is back, it sends how requests ended. */
function loseTheRunning() {
  for (const [key, record] of records)
    if (record.outcome === "running") records.set(key, { ...record, outcome: "not_known" });
  takeRecords([]);
  loseDetail(health);
}

function takeHealth(fresh) {
  health = fresh;
  byId("version").textContent = health.version;
  showState(byId("state"), byId("servers"), health);
}

function takeRecords(fresh) {
  for (const record of fresh) records.set(keyOf(record), { ...record, seen: Date.now() });
  const tooMany = Math.max(0, records.size - MOST_RECORDS);
  for (const key of [...records.keys()].slice(0, tooMany)) records.delete(key);
  table.show([...records.values()], { isKnown: isHeard });
  drawCharts();
  fresh.forEach((record) => refreshDetail(record, health));
}

// Clients choose ids, and may choose one twice.
const keyOf = (record) => `${record.id} ${record.at}`;

const drawCharts = () => showCharts(byId("charts"), [...records.values()]);

function condition() {
  if (failures) return ["bad", "not reachable"];
  if (health?.status === "draining") return ["warn", "shutting down"];
  if (health?.status === "starting") return ["warn", "starting"];
  return health?.status === "ok" ? ["good", "ready"] : ["warn", "not ready"];
}

function showStatus() {
  const [kind, words] = condition();
  const status = byId("status");
  if (status.textContent !== words) {
    status.replaceWith(Object.assign(mark(kind, words), { id: "status", role: "status" }));
  }
  showNotices(byId("notices"), health, failures);
}

byId("base-url").textContent = baseUrl;
byId("copy-base-url").append(copyButton("the base URL", () => baseUrl));
window.addEventListener("hashchange", route);
setInterval(() => table.tick(), 1000);
setInterval(drawCharts, 5000);
takeRecords([]);
route();
follow();
