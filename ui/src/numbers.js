// Numbers as the templates show them (`rendering.py`).
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Return a number with separators of thousands. */
export function whole(value) {
  return Math.round(value).toLocaleString("en");
}

/** Return a number of bytes in binary units. */
export function bytes(value) {
  let number = value;
  let unit = 0;
  while (Math.abs(number) >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? whole(number) : number.toFixed(1)} ${UNITS[unit]}`;
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
