// Tokens and latency over time: small bars for the eye, a table for everybody else.

import { el, show, svg } from "./dom.js";
import { clock, count, duration, minutes, plural } from "./format.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
// How long a bar may stand for.
const SHORT = [
  MINUTE / 12,
  MINUTE / 6,
  MINUTE / 2,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
];
const LONG = [HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY];
const WIDTHS = [...SHORT, ...LONG];
const MOST_BINS = 40;
const SHORTEST = 2 * MINUTE;

const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);

function median(numbers) {
  if (!numbers.length) return null;
  const sorted = [...numbers].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const CHARTS = [
  { title: "Tokens in", of: "input", fold: sum, format: count, word: "total" },
  { title: "Tokens out", of: "output", fold: sum, format: count, word: "total" },
  { title: "First token", of: "first", fold: median, format: duration, word: "median" },
  { title: "Duration", of: "duration", fold: median, format: duration, word: "median" },
];

export function showCharts(place, records) {
  const done = records.filter((record) => record.outcome !== "running");
  const bins = binned(done, Date.now());
  const isOpen = place.querySelector("details")?.open ?? false;
  show(
    place,
    CHARTS.map((chart) => figure(chart, bins)),
    done.length > 0 && table(bins, isOpen),
  );
}

/** Equal stretches of time from the oldest request until now. */
function binned(records, now) {
  const oldest = Math.min(now - SHORTEST, ...records.map((record) => Date.parse(record.at)));
  const width = WIDTHS.find((each) => (now - oldest) / each < MOST_BINS) ?? WIDTHS.at(-1);
  const start = Math.floor(oldest / width) * width;
  const bins = [];
  for (let at = start; at <= now; at += width)
    bins.push({ at, requests: 0, input: [], output: [], first: [], duration: [] });
  for (const record of records) {
    const bin = bins[Math.floor((Date.parse(record.at) - start) / width)] ?? bins.at(-1);
    bin.requests += 1;
    bin.duration.push(record.duration_ms);
    if (record.first_token_ms != null) bin.first.push(record.first_token_ms);
    bin.input.push(record.tokens?.input ?? 0);
    bin.output.push(record.tokens?.output ?? 0);
  }
  return bins;
}

function figure(chart, bins) {
  const values = bins.map((bin) => chart.fold(bin[chart.of]));
  const highest = Math.max(...values);
  const whole = chart.fold(bins.flatMap((bin) => bin[chart.of]));
  const top = highest ? `highest ${chart.format(highest)}` : "";
  const [shown, word] = whole ? [chart.format(whole), chart.word] : ["–", ""];
  return el(
    "figure",
    el("figcaption", el("span", chart.title), el("b", shown), el("span.quiet", word)),
    drawn(chart, bins, values, highest),
    el("p.axis", el("span", minutes(bins[0].at)), el("span", top), el("span", "now")),
  );
}

function drawn(chart, bins, values, highest) {
  const step = 100 / bins.length;
  const bars = values.map((value, at) => {
    if (!value) return null;
    const height = Math.max((value / highest) * 40, 1);
    const words = `${clock(bins[at].at)}: ${chart.format(value)}`;
    const place = { x: (at + 0.1) * step, width: 0.8 * step, y: 40 - height, height };
    return svg("rect", place, svg("title", words));
  });
  const since = `${plural(bins.length, "bar")} since ${minutes(bins[0].at)}`;
  const said = highest ? `${since}, the highest ${chart.format(highest)}` : "nothing yet";
  const label = { role: "img", "aria-label": `${chart.title}: ${said}.` };
  return svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", ...label }, bars);
}

function table(bins, open) {
  const names = ["From", "Requests", ...CHARTS.map((chart) => chart.title)];
  const head = names.map((name) => el("th", { scope: "col" }, name));
  const rows = bins
    .filter((bin) => bin.requests)
    .reverse()
    .map(row);
  const figures = el("table", el("thead", el("tr", head)), el("tbody", rows));
  return el("details.figures", { open }, el("summary", "These figures as a table"), figures);
}

function row(bin) {
  const values = CHARTS.map((chart) => chart.format(chart.fold(bin[chart.of])));
  const cells = [bin.requests, ...values].map((value) => el("td.number", value));
  return el("tr", el("th", { scope: "row" }, clock(bin.at)), cells);
}
