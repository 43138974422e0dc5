// How people read numbers and moments.

export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
}

export function count(number) {
  if (number == null) return "–";
  if (number < 10_000) return String(number);
  if (number < 1_000_000) return `${(number / 1000).toFixed(number < 100_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const MINUTES = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

const isToday = (date) => date.toDateString() === new Date().toDateString();

export function clock(at) {
  const date = new Date(at);
  return isToday(date) ? CLOCK.format(date) : `${DAY.format(date)} ${MINUTES.format(date)}`;
}

export function minutes(at) {
  const date = new Date(at);
  return isToday(date) ? MINUTES.format(date) : `${DAY.format(date)} ${MINUTES.format(date)}`;
}

export const whole = (at) => WHOLE.format(new Date(at));

export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
