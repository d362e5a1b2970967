// Airflow's UI says by a class of its document whether it is light or dark; the pages are frames inside it.
const listeners = new Set();

function frame() {
  try {
    return window.parent === window ? null : window.parent.document.documentElement;
  } catch {
    return null;
  }
}

function isDark() {
  const outer = frame();
  if (outer) return outer.classList.contains("dark");
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function apply() {
  document.documentElement.classList.toggle("dark", isDark());
  for (const listener of listeners) listener();
}

/** Follow the theme of Airflow's UI, or the system's outside of it. */
export function followTheme() {
  apply();
  const outer = frame();
  if (outer) new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class"] });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
}

/** Call a function whenever the theme changes. */
export function onTheme(listener) {
  listeners.add(listener);
}

/** Return the value of a CSS variable, such as `--accent`. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
