// Tokens and latency over time: small bars for the eye, a table for everybody else.

import { el, show, svg } from "./dom.js";
import { count, duration, minutes, plural } from "./format.js";

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const WIDTHS = [10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE,
  HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY];
const MOST_BINS = 40;
const SHORTEST = 5 * MINUTE;

const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);

function median(numbers) {
  if (!numbers.length) return null;
  const sorted = [...numbers].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const CHARTS = [
  { title: "Tokens in", format: count, value: (bin) => sum(bin.input), whole: sum, of: "input", word: "in all" },
  { title: "Tokens out", format: count, value: (bin) => sum(bin.output), whole: sum, of: "output", word: "in all" },
  { title: "First token", format: duration, value: (bin) => median(bin.first), whole: median, of: "first", word: "median" },
  { title: "Duration", format: duration, value: (bin) => median(bin.duration), whole: median, of: "duration", word: "median" },
];

export function showCharts(place, records) {
  const done = records.filter((record) => record.outcome !== "running");
  const bins = binned(done, Date.now());
  const isOpen = place.querySelector("details")?.open ?? false;
  show(place, CHARTS.map((chart) => figure(chart, bins)), done.length > 0 && table(bins, isOpen));
}

/** Equal stretches of time from the oldest request until now. */
function binned(records, now) {
  const oldest = Math.min(now - SHORTEST, ...records.map((record) => Date.parse(record.at)));
  const width = WIDTHS.find((each) => (now - oldest) / each < MOST_BINS) ?? WIDTHS.at(-1);
  const start = Math.floor(oldest / width) * width;
  const bins = [];
  for (let at = start; at <= now; at += width) bins.push({ at, requests: 0, input: [], output: [], first: [], duration: [] });
  for (const record of records) {
    const bin = bins[Math.floor((Date.parse(record.at) - start) / width)] ?? bins.at(-1);
    bin.requests += 1;
    bin.duration.push(record.duration_ms);
    if (record.tokens) bin.input.push(record.tokens.input), bin.output.push(record.tokens.output);
    if (record.first_token_ms != null) bin.first.push(record.first_token_ms);
  }
  return bins;
}

function figure(chart, bins) {
  const values = bins.map(chart.value);
  const highest = Math.max(...values.map((value) => value ?? 0));
  const whole = chart.whole(bins.flatMap((bin) => bin[chart.of]));
  const shown = whole ? chart.format(whole) : "–";
  return el("figure", {},
    el("figcaption", {}, el("span", {}, chart.title), el("b", {}, shown), el("span", { class: "quiet" }, whole ? chart.word : "")),
    drawn(chart, bins, values, highest),
    el("p", { class: "axis" }, el("span", {}, minutes(bins[0].at)), el("span", {}, highest ? `highest ${chart.format(highest)}` : ""), el("span", {}, "now")));
}

function drawn(chart, bins, values, highest) {
  const step = 100 / bins.length;
  const summary = highest
    ? `${chart.title}: ${plural(bins.length, "bar")} since ${minutes(bins[0].at)}, highest ${chart.format(highest)}.`
    : `${chart.title}: nothing yet.`;
  const bars = values.map((value, at) => {
    if (!value) return null;
    const height = Math.max((value / highest) * 40, 1);
    return svg("rect", { x: at * step + step * 0.1, width: step * 0.8, y: 40 - height, height },
      svg("title", {}, `${minutes(bins[at].at)}: ${chart.format(value)}`));
  });
  return svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": summary }, bars);
}

function table(bins, open) {
  const head = ["From", "Requests", ...CHARTS.map((chart) => chart.title)];
  const rows = bins.filter((bin) => bin.requests).reverse().map((bin) => el("tr", {},
    el("th", { scope: "row" }, minutes(bin.at)),
    el("td", { class: "number" }, bin.requests),
    CHARTS.map((chart) => el("td", { class: "number" }, chart.format(chart.value(bin))))));
  return el("details", { class: "figures", open },
    el("summary", {}, "These figures as a table"),
    el("table", {}, el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows)));
}
