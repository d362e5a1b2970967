// What all pages need; the modules of single pages are imported at the end.
import htmx from "htmx.org";
import "./calve.css";
import "./explain.js";
import "./operations.js";
import "./migrations.js";
import "./quality.js";
import "./table_quality.css";
import "./picture.js";
import "./run.js";
import "./studio.js";
import { followTheme } from "./theme.js";

htmx.config.allowEval = false;
htmx.config.includeIndicatorStyles = false;
htmx.config.selfRequestsOnly = true;
window.htmx = htmx;

const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    element.title = element.dateTime;
    element.textContent = zone.format(at);
  }
}

followTheme();
document.addEventListener("DOMContentLoaded", () => {
  showTimes(document);
  htmx.onLoad((element) => showTimes(element));
});

// Errors come as small pieces of text, which are shown where the answer would be.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400) {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  }
});
document.addEventListener("htmx:sendError", () => say("Airflow's server does not answer; the page shows what it last said."));

/** Show a message at the bottom of the page for a while. */
export function say(text) {
  const box = document.getElementById("messages");
  box.textContent = text;
  window.clearTimeout(box.timer);
  box.timer = window.setTimeout(() => (box.textContent = ""), 8000);
}
