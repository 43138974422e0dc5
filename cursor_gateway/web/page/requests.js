// The table of requests, the newest first.

import { el, mark } from "./dom.js";
import { clock, count, duration } from "./format.js";

const COLUMNS = [
  ["time", "Time"],
  ["client", "Client"],
  ["model", "Model"],
  ["dialect", "Dialect"],
  ["channel", "Channel"],
  ["first", "First token"],
  ["duration", "Duration"],
  ["input", "Tokens in"],
  ["output", "out"],
  ["outcome", "Outcome"],
];

const OUTCOMES = { running: "busy", complete: "good", client_gone: "warn", not_known: "warn" };
const WORDS = { client_gone: "client left", not_known: "not known" };

const NOT_KNOWN = "The requests appear here when the gateway answers.";
const NONE_YET = "No requests yet. Ask something in the playground, or point a client here.";
const NONE_FITS = "No request matches the filter.";

export function outcome(record) {
  return mark(OUTCOMES[record.outcome] ?? "bad", WORDS[record.outcome] ?? record.outcome);
}

export const meant = (record) => record.resolved || record.model || "–";

export class RequestTable {
  #body = el("tbody", { role: "rowgroup" });
  #empty = el("p.empty");
  #rows = new Map();
  #isKnown = false;

  // Where a narrow screen stacks the cells, browsers forget the table; the roles remind them.
  constructor(place, filter, total) {
    const head = COLUMNS.map(([name, words]) =>
      el("th", { role: "columnheader", scope: "col", class: name }, words),
    );
    this.table = el(
      "table.requests",
      { role: "table", "aria-labelledby": "table-title" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
      this.#body,
    );
    this.filter = filter;
    this.total = total;
    place.append(this.table, this.#empty);
    filter.addEventListener("input", () => this.#arrange());
  }

  show(records, { isKnown }) {
    this.#isKnown = isKnown;
    const rows = new Map();
    for (const record of records) {
      const key = `${record.id} ${record.at}`;
      const known = this.#rows.get(key);
      rows.set(key, known?.record === record ? known : this.#row(record, known));
    }
    this.#rows = rows;
    this.#arrange();
  }

  /** Running requests grow older by themselves. */
  tick() {
    for (const { record, row } of this.#rows.values()) {
      if (record.outcome !== "running") continue;
      const age = record.duration_ms + Date.now() - record.seen;
      row.querySelector(".duration").textContent = duration(age);
    }
  }

  /** A new record in an old row keeps the row, and so the focus in it. */
  #row(record, known) {
    const row = known?.row ?? el("tr", { role: "row", onclick: open });
    const fresh = cells(record);
    if (known) fresh[0] = row.firstChild;
    row.replaceChildren(...fresh);
    const text = fresh.map((cell) => cell.textContent).join(" ");
    return { record, row, text: text.toLowerCase() };
  }

  #arrange() {
    const wanted = this.filter.value.trim().toLowerCase();
    const fitting = [...this.#rows.values()].filter(({ text }) => text.includes(wanted));
    const rows = fitting.map(({ row }) => row).reverse();
    const { children } = this.#body;
    rows.forEach((row, at) => {
      if (children[at] !== row) this.#body.insertBefore(row, children[at] ?? null);
    });
    while (children.length > rows.length) this.#body.lastChild.remove();
    this.#sayHowMany(rows.length, this.#rows.size);
  }

  #sayHowMany(shown, all) {
    this.table.hidden = !shown;
    this.#empty.hidden = shown > 0;
    this.#empty.textContent = all ? NONE_FITS : this.#isKnown ? NONE_YET : NOT_KNOWN;
    this.total.textContent = shown === all ? all || "" : `${shown} of ${all}`;
  }
}

function cells(record) {
  const tokens = record.tokens;
  const values = {
    time: el("a", { href: `#requests/${record.id}` }, clock(record.at)),
    client: record.client || "–",
    model: meant(record),
    dialect: record.dialect,
    channel: record.channel ?? "",
    first: duration(record.first_token_ms),
    duration: duration(record.duration_ms),
    input: count(tokens?.input),
    output: count(tokens?.output),
    outcome: outcome(record),
  };
  return COLUMNS.map(([name]) => el("td", { role: "cell", class: name }, values[name]));
}

/** A click anywhere in a row is one on its link; marking text is not a click. */
function open(event) {
  if (event.target.closest("a") || String(getSelection())) return;
  event.currentTarget.querySelector("a").click();
}
