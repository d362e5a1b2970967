// Numbers as the pages show them (calve_airflow.pages.rendering).
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (value) => (value === null ? "—" : plain.format(value));

export function size(value) {
  if (value === null) return "—";
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? plain.format(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Return a duration in its two largest units. */
export function seconds(value) {
  if (value < 10) return `${value.toFixed(1)} s`;
  const all = Math.round(value);
  const hours = Math.floor(all / 3600);
  const minutes = Math.floor((all % 3600) / 60);
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
}

export const counted = (value, name) => `${count(value)} ${name}${value === 1 ? "" : "s"}`;

export const moment = (value) => (value === null ? "—" : new Date(value).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));

/** Return the place of a value on a scale of colours, from 0 to 1: by its root, so that one large value leaves the others apart. */
export function shareOf(value, low, high) {
  return value === null || high <= low ? 0.5 : Math.sqrt((value - low) / (high - low));
}
