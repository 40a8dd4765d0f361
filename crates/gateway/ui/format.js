// Numbers, sizes and times for people.

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Formats a size: `1.5 MiB`. */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  let at = 0;
  while (size >= 1024 && at < units.length - 1) { size /= 1024; at += 1; }
  return `${at === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[at]}`;
}

/** Formats a duration in seconds by its two largest parts: `3 h 20 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return pair(seconds, 3600, "h", 60, "min");
  return pair(seconds, 86400, "d", 3600, "h");
}

function pair(seconds, large, name, small, part) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${name}${rest > 0 ? ` ${rest} ${part}` : ""}`;
}

/** Formats a duration in microseconds: `340 µs`, `12 ms`, `1.2 s`. */
export function micros(time) {
  if (time === null || time === undefined) return "–";
  if (time < 1000) return `${time} µs`;
  if (time < 10000) return `${(time / 1000).toFixed(1)} ms`;
  if (time < 1e6) return `${Math.round(time / 1000)} ms`;
  return time < 6e7 ? `${(time / 1e6).toFixed(1)} s` : duration(time / 1e6);
}

/** Formats the time of day of an RFC 3339 time in the zone of the reader. */
export function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** Seconds until an RFC 3339 time; null without one. */
export function until(at) {
  return at === null || at === undefined ? null : Math.max(0, (Date.parse(at) - Date.now()) / 1000);
}

/** Formats a count: `1,234`. */
export function count(number) {
  return number.toLocaleString("en");
}

/** Formats a rate: `0.4`, `12`. */
export function rate(number) {
  return number === 0 ? "0" : number < 10 ? number.toFixed(1) : count(Math.round(number));
}

/** First part of an id, which is enough to tell sessions apart by eye. */
export function short(id) {
  return `${id.slice(0, 8)}…${id.slice(-4)}`;
}

/** Name of a session without its source, and a word for sessions without a name. */
export function sessionName(session) {
  if (session.key === null) return "unnamed";
  return session.key.startsWith(`${session.source}:`) ? session.key.slice(session.source.length + 1) : session.key;
}
