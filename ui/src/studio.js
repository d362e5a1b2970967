// The page on which partitions are split, merged, dropped and added. The server makes the plan; this keeps the list, the
// handles on the strip and the typed values together.
import htmx from "htmx.org";
import { count, size } from "./numbers.js";
import "./studio.css";

document.addEventListener("DOMContentLoaded", () => {
  const studio = document.querySelector(".studio");
  if (studio) new Studio(studio);
});

class Studio {
  constructor(root) {
    this.root = root;
    this.form = root.querySelector("#change");
    this.ids = root.querySelector("#partition_ids");
    this.shown = "";
    root.querySelector("#bars").addEventListener("change", (event) => this.tick(event.target));
    this.form.addEventListener("input", (event) => {
      if (event.target.name === "operation" || event.target === this.ids) this.follow();
    });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    document.body.addEventListener("htmx:load", (event) => this.loaded(event.target));
    this.follow();
  }

  get operation() {
    return this.form.elements.operation.value;
  }

  get chosen() {
    return this.ids.value.split(/[\s,]+/).filter(Boolean);
  }

  /** A partition was ticked in the list. A split takes one. */
  tick(box) {
    const id = box.closest("tr").dataset.id;
    const others = this.operation === "split" ? [] : this.chosen.filter((chosen) => chosen !== id);
    this.ids.value = (box.checked ? [...others, id] : others).join(", ");
    this.follow();
    this.plan();
  }

  /** Show the chosen partitions in the list, and the fields that the operation needs. */
  follow() {
    const chosen = new Set(this.chosen);
    for (const row of this.root.querySelectorAll("#bars tr[data-id]")) {
      const box = row.querySelector("input");
      if (box) box.checked = chosen.has(row.dataset.id);
      row.toggleAttribute("data-chosen", chosen.has(row.dataset.id) && this.takesIds);
    }
    for (const field of this.form.querySelectorAll("[data-for]")) {
      field.hidden = !field.dataset.for.split(" ").includes(this.operation);
    }
    const query = new URLSearchParams({ operation: this.operation, partition_ids: this.operation === "split" ? this.ids.value : "" });
    if (this.shown === `${query}`) return;
    this.shown = `${query}`;
    const points = this.root.querySelector("#points");
    htmx.ajax("GET", `${this.root.dataset.points}?${query}`, { target: points }).then(() => {
      // An operation without fields of its own loads nothing that could ask for the plan.
      if (!points.firstElementChild) this.plan();
    });
  }

  get takesIds() {
    return ["split", "merge", "drop"].includes(this.operation);
  }

  loaded(element) {
    if (element.closest("#bars")) this.follow();
    const part = element.closest("#points");
    if (!part) return;
    const splitting = part.querySelector(".splitting");
    if (splitting && !splitting.dataset.ready) {
      splitting.dataset.ready = "yes";
      new Splitting(splitting, () => this.plan());
    }
    this.plan();
  }

  plan() {
    htmx.trigger(this.form, "planned");
  }
}

/** The split points of a range, or bounds or groups to add: a handle on the strip for each typed value. */
class Splitting {
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
    this.points = JSON.parse(root.dataset.points);
    this.list = root.querySelector(".typed");
    this.handles = root.querySelector(".handles");
    this.total = Number(root.dataset.bytes);
    this.isNumber = this.points.length > 0 && this.points.every(([text]) => text.trim() !== "" && Number.isFinite(Number(text)));
    root.querySelector(".more").addEventListener("click", () => {
      this.add(this.widest());
      this.list.querySelector("li:last-child input").focus();
      this.show();
      this.changed();
    });
    this.draw();
    this.add(root.dataset.operation === "split" ? root.dataset.middle : "");
    this.show();
  }

  get title() {
    return { split: "Split point", add: "New upper bound", groups: "New group" }[this.root.dataset.operation];
  }

  draw() {
    const density = this.root.querySelector(".density");
    if (!density) return;
    const edges = [0, ...this.points.map(([, below]) => below), this.total];
    const sizes = edges.slice(1).map((edge, position) => Math.max(0, edge - edges[position]));
    const largest = Math.max(...sizes, 1);
    sizes.forEach((size, position) => {
      const bar = document.createElement("span");
      bar.style.height = `${(100 * size) / largest}%`;
      // A bar begins at the point before it.
      if (position > 0 && this.points[position - 1][2]) bar.dataset.free = "";
      density.append(bar);
    });
  }

  /** Return a value in the middle of the largest part. */
  widest() {
    if (!this.points.length) return "";
    const used = this.values.map((text) => this.position(text)).sort((one, two) => one - two);
    const edges = [0, ...used, this.points.length + 1];
    let best = 0;
    for (let number = 1; number < edges.length - 1; number += 1) {
      if (edges[number + 1] - edges[number] > edges[best + 1] - edges[best]) best = number;
    }
    const middle = Math.round((edges[best] + edges[best + 1]) / 2);
    return this.points[Math.min(Math.max(middle, 1), this.points.length) - 1][0];
  }

  get inputs() {
    return [...this.list.querySelectorAll("input")];
  }

  get values() {
    return this.inputs.map((input) => input.value.trim()).filter(Boolean);
  }

  add(text) {
    const number = this.list.children.length + 1;
    const item = document.createElement("li");
    const row = document.createElement("div");
    const input = document.createElement("input");
    Object.assign(input, { name: "items", value: text, autocomplete: "off", ariaLabel: `${this.title} ${number}` });
    input.addEventListener("input", () => this.show());
    const remove = document.createElement("button");
    Object.assign(remove, { type: "button", className: "plain", textContent: "Remove", ariaLabel: `Remove ${this.title.toLowerCase()} ${number}` });
    remove.addEventListener("click", () => {
      item.remove();
      item.handle?.remove();
      this.number();
      this.show();
      this.changed();
    });
    row.append(input, remove);
    item.append(row);
    this.list.append(item);
    if (!this.handles) return;
    const handle = document.createElement("input");
    Object.assign(handle, { type: "range", min: 0, max: this.points.length + 1, step: 1, ariaLabel: `${this.title} ${number}, on the strip` });
    handle.addEventListener("input", () => {
      handle.value = Math.min(Math.max(Number(handle.value), 1), this.points.length);
      input.value = this.points[Number(handle.value) - 1][0];
      this.show();
    });
    item.handle = handle;
    this.handles.append(handle);
  }

  number() {
    [...this.list.children].forEach((item, position) => {
      item.querySelector("input").ariaLabel = `${this.title} ${position + 1}`;
      item.querySelector("button").ariaLabel = `Remove ${this.title.toLowerCase()} ${position + 1}`;
      if (item.handle) item.handle.ariaLabel = `${this.title} ${position + 1}, on the strip`;
    });
  }

  compare(one, two) {
    if (this.isNumber) return Number(one) - Number(two);
    return one < two ? -1 : Number(one > two);
  }

  /** Return the number of the last point that is not above a value; 0 for a value below all. */
  position(text) {
    let low = 0;
    let high = this.points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.compare(this.points[middle][0], text) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  show() {
    for (const item of this.list.children) {
      const text = item.querySelector("input").value.trim();
      if (!item.handle) continue;
      item.handle.hidden = text === "";
      if (text !== "") item.handle.value = this.position(text);
      item.handle.ariaValueText = text;
    }
    const parts = this.root.querySelector(".parts");
    if (parts && this.root.dataset.operation === "split") parts.replaceChildren(...this.partsNow());
  }

  /** Return the parts that the values make, with about how much each has. */
  partsNow() {
    const values = [...new Set(this.values)].sort((one, two) => this.compare(one, two));
    const { lower, upper, column, rows } = this.root.dataset;
    const below = (text) => (this.position(text) ? this.points[this.position(text) - 1][1] : 0);
    const edges = [0, ...values.map(below), this.total];
    return [...values, upper].map((until, position) => {
      const from = position ? values[position - 1] : lower;
      const share = this.total ? Math.max(0, edges[position + 1] - edges[position]) / this.total : 0;
      const item = document.createElement("li");
      const about = this.points.length ? `: about ${size(share * this.total)}, ${count(share * Number(rows))} rows` : "";
      item.textContent = `${from ? `${from} <= ` : ""}${column}${until ? ` < ${until}` : ""}${about}`;
      return item;
    });
  }
}
