// The picture of a table's partitions: a calendar, or a treemap of its keys.
import { calendar } from "./calendar.js";
import { count, moment, size } from "./numbers.js";
import { post } from "./run.js";
import "./picture.css";
import { treemap } from "./treemap.js";

/** What a day or a group is coloured by: title, value of a cell, and how it is shown. */
export const MEASURES = {
  rows: { title: "rows", of: (cell) => cell.rows, show: count },
  bytes: { title: "data", of: (cell) => cell.bytes, show: size },
  partitions: { title: "partitions", of: (cell) => cell.partitions, show: count },
  files: { title: "files", of: (cell) => cell.files, show: count },
  age: { title: "newest partition", of: (cell) => cell.newest, show: moment },
  quality: { title: "quality", of: () => 0, show: () => "" },
};

/** Return a cell from the list that the server sends. */
function cellOf([key, partitions, missing, quarantined, failed, rows, bytes, files, newest]) {
  return { key, partitions, missing, quarantined, failed, rows, bytes, files, newest };
}

async function show(element) {
  const select = document.getElementById("colour");
  const answer = await fetch(element.dataset.source, { headers: { "hx-request": "true" } });
  if (!answer.ok) {
    element.innerHTML = await answer.text();
    return;
  }
  const data = await answer.json();
  const cells = (data.days ?? data.groups).map(cellOf);
  element.replaceChildren();
  if (!cells.length) {
    element.append(make("p", { className: "empty", textContent: element.dataset.where ? "No partition matches." : "There are no partitions yet." }));
    return;
  }
  const paint = (data.kind === "calendar" ? calendar : treemap)(element, data, cells);
  select.addEventListener("change", () => paint(MEASURES[select.value], select.value));
  paint(MEASURES[select.value], select.value);
}

/** Return a new element with some properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Return an address with further fields of its query. */
export function withQuery(address, fields) {
  const [path, query = ""] = address.split("?");
  const all = new URLSearchParams(query);
  for (const [name, value] of Object.entries(fields)) if (value) all.set(name, value);
  return `${path}?${all}`;
}

document.addEventListener("DOMContentLoaded", () => {
  const element = document.getElementById("picture");
  if (element) {
    show(element).catch(() =>
      element.replaceChildren(make("p", { className: "problem", textContent: "Airflow's server does not answer; load the page again." })),
    );
  }
});

// Backfills are Airflow's own; its API checks the user's access.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-backfill]");
  if (!button) return;
  const request = JSON.parse(button.dataset.backfill);
  const problem = button.closest("section").querySelector(".problem");
  button.disabled = true;
  problem.hidden = true;
  try {
    await post("/backfills", request);
    const page = `${document.body.dataset.airflow}/dags/${encodeURIComponent(request.dag_id)}`;
    const link = make("a", { href: page, textContent: "its runs are in Airflow" });
    // Inside Airflow's frame, its own pages replace the whole window.
    link.addEventListener("click", (click) => {
      if (window.parent === window) return;
      click.preventDefault();
      window.parent.location.href = page;
    });
    button.replaceWith(make("p", { className: "good" }, "The backfill has begun: ", link, "."));
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    button.disabled = false;
  }
});
