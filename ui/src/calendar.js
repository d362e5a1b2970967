// Partitions by day: a square for each, in weeks; a range is picked with the mouse, with the keys or by its dates.
import { count, counted, shareOf, size } from "./numbers.js";
import { make, withQuery } from "./picture.js";

const DAY = 24 * 60 * 60 * 1000;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS = ["", "Mon", "", "Wed", "", "Fri", "", "Sun"];
const LISTED = 200;

const number = (key) => Math.round(Date.parse(`${key}T00:00:00Z`) / DAY);
const key = (day) => new Date(day * DAY).toISOString().slice(0, 10);
const weekday = (day) => (new Date(day * DAY).getUTCDay() + 6) % 7;

/** Draw a calendar; return the function that colours it by a measure. */
export function calendar(element, data, cells) {
  const byDay = new Map(cells.map((cell) => [number(cell.key), cell]));
  const squares = new Map();
  const legend = make("div", { className: "legend" });
  const picked = make("section", { className: "picked" });
  const frame = make("div", { className: "calendar", role: "group", ariaLabel: "Days" });
  for (const [year, days] of years(byDay)) frame.append(drawYear(year, days, byDay, squares));
  element.append(summary(data, cells), legend, frame, picked, gaps(cells, (day) => selection.pick(day, day)));
  const selection = new Selection(element, frame, squares, byDay, picked);
  for (const box of frame.querySelectorAll(".weeks")) box.scrollLeft = box.scrollWidth;
  return (measure, name) => {
    const values = cells.filter((cell) => cell.partitions).map(measure.of).filter((value) => value !== null);
    const [least, most] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
    const low = name === "age" ? least : 0;
    for (const [day, square] of squares) {
      const cell = byDay.get(day);
      const value = measure.of(cell);
      const share = shareOf(value, low, most);
      square.style.setProperty("--share", `${Math.round(share * 100)}%`);
      square.dataset.by = name;
      square.title = `${text(cell)}${name === "age" ? `, newest ${measure.show(value)}` : ""}`;
    }
    legend.replaceChildren(...legendOf(measure, name, low, most, values));
  };
}

/** Return [year, its days] pairs, the newest year first. */
function years(byDay) {
  const found = new Map();
  for (const day of byDay.keys()) {
    const year = key(day).slice(0, 4);
    if (!found.has(year)) found.set(year, []);
    found.get(year).push(day);
  }
  return [...found].reverse();
}

function drawYear(year, days, byDay, squares) {
  const first = number(`${key(days[0]).slice(0, 7)}-01`);
  const start = first - weekday(first);
  const last = days.at(-1);
  const grid = make("div", { className: "days" });
  // Months are drawn whole. Days are compared as numbers: the one after 9999-12-31 begins with a sign.
  for (let day = first; day <= last || !key(day).endsWith("-01"); day += 1) {
    const week = Math.floor((day - start) / 7);
    if (key(day).endsWith("-01")) {
      const month = make("span", { className: "month", textContent: MONTHS[Number(key(day).slice(5, 7)) - 1] });
      month.style.gridColumn = `${week + 1} / span 4`;
      grid.append(month);
    }
    const cell = byDay.get(day);
    const square = cell ? make("button", { type: "button", className: "day", tabIndex: -1 }) : make("span", { className: "day none" });
    square.style.gridColumn = week + 1;
    square.style.gridRow = weekday(day) + 2;
    if (cell) {
      square.dataset.day = day;
      square.dataset.state = !cell.partitions ? "missing" : "there";
      square.toggleAttribute("data-lacking", Boolean(cell.partitions && cell.missing));
      square.toggleAttribute("data-bad", Boolean(cell.quarantined || cell.failed));
      square.setAttribute("aria-label", text(cell));
      square.setAttribute("aria-pressed", "false");
      squares.set(day, square);
    }
    grid.append(square);
  }
  const names = make("div", { className: "weekdays", ariaHidden: "true" }, ...WEEKDAYS.map((name) => make("span", { textContent: name })));
  return make("section", { className: "year" }, make("h3", { textContent: year }), make("div", { className: "weeks" }, names, grid));
}

function text(cell) {
  const parts = [cell.partitions ? `${counted(cell.partitions, "partition")}, ${counted(cell.rows, "row")}, ${size(cell.bytes)}` : "no partition"];
  if (cell.missing) parts.push(`${count(cell.missing)} missing`);
  if (cell.quarantined) parts.push(`${count(cell.quarantined)} quarantined`);
  if (cell.failed) parts.push(`${count(cell.failed)} failed`);
  return `${cell.key}: ${parts.join(", ")}`;
}

const lacks = (cell) => Boolean(cell.missing) || !cell.partitions;

function summary(data, cells) {
  const total = (name) => cells.reduce((sum, cell) => sum + (cell[name] ?? 0), 0);
  const there = cells.filter((cell) => cell.partitions);
  const missing = cells.filter(lacks);
  const parts = [`${counted(there.length, "day")} from ${cells[0].key} to ${cells.at(-1).key}`];
  if (data.series_keys.length) {
    const keys = data.series_keys.join(", ");
    parts.push(data.series === null ? `too many values of ${keys} to look for missing ones` : `${count(data.series)} × ${keys}`);
  }
  parts.push(missing.length ? `${counted(total("missing"), "partition")} missing on ${counted(missing.length, "day")}` : "none is missing");
  if (total("quarantined")) parts.push(`${count(total("quarantined"))} quarantined`);
  if (total("failed")) parts.push(`${count(total("failed"))} failed their latest check`);
  if (data.undated) parts.push(`${counted(data.undated, "partition")} without a day, such as null`);
  return make("p", { textContent: `${parts.join("; ")}.` });
}

function legendOf(measure, name, low, most, values) {
  const marks = [
    ["missing", "no partition"],
    ["lacking", "some missing"],
    ["bad", "quarantined or failed"],
  ].map(([state, title]) => {
    const square = make("span", { className: "day" });
    square.dataset.state = state === "missing" ? "missing" : "there";
    square.style.setProperty("--share", "40%");
    square.dataset.by = name;
    if (state !== "missing") square.setAttribute(`data-${state}`, "");
    return make("span", { className: "mark" }, square, title);
  });
  if (name === "quality") return marks;
  const sorted = [...values].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  const scale = make("span", { className: "scale" }, `${measure.title}: ${measure.show(values.length ? low : null)}`, make("i"), measure.show(values.length ? most : null));
  const middle = name === "age" || !sorted.length ? [] : [make("span", { className: "note", textContent: `half of the days have ${measure.show(median)} or more` })];
  return [scale, ...middle, ...marks];
}

function gaps(cells, pick) {
  const lacking = cells.filter((cell) => lacks(cell) || cell.quarantined || cell.failed);
  if (!lacking.length) return "";
  const list = make("ul", { className: "gaps" });
  for (const cell of lacking.slice(0, LISTED)) {
    const button = make("button", { type: "button", className: "plain", textContent: text(cell) });
    button.addEventListener("click", () => pick(number(cell.key)));
    list.append(make("li", {}, button));
  }
  const rest = lacking.length > LISTED ? [make("p", { className: "note", textContent: `and ${count(lacking.length - LISTED)} more days` })] : [];
  return make("details", {}, make("summary", { textContent: `${counted(lacking.length, "day")} with something missing or failed` }), list, ...rest);
}

class Selection {
  constructor(element, frame, squares, byDay, box) {
    Object.assign(this, { element, squares, byDay, box, days: [...squares.keys()].sort((a, b) => a - b) });
    this.focused = this.days.at(-1);
    squares.get(this.focused).tabIndex = 0;
    frame.addEventListener("pointerdown", (event) => {
      const day = this.dayAt(event);
      if (day === null || event.button) return;
      this.dragged = event.shiftKey && this.anchor !== undefined ? this.anchor : day;
      this.pick(this.dragged, day);
      // A finger's movements would otherwise all belong to the square that it touched first.
      event.target.releasePointerCapture?.(event.pointerId);
    });
    frame.addEventListener("pointerover", (event) => {
      const day = this.dayAt(event);
      if (this.dragged !== undefined && day !== null) this.pick(this.dragged, day);
    });
    window.addEventListener("pointerup", () => (this.dragged = undefined));
    frame.addEventListener("keydown", (event) => this.pressed(event));
    this.show();
  }

  dayAt(event) {
    const square = event.target.closest?.("button.day");
    return square ? Number(square.dataset.day) : null;
  }

  pressed(event) {
    const steps = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -7, ArrowRight: 7, PageUp: -28, PageDown: 28 };
    let day = this.dayAt(event);
    if (day === null) return;
    if (event.key in steps) day = this.near(day + steps[event.key], Math.sign(steps[event.key]));
    else if (event.key === "Home") day = this.days[0];
    else if (event.key === "End") day = this.days.at(-1);
    else if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const isChosen = event.key === "Enter" || event.key === " ";
    const from = event.shiftKey ? (this.anchor ?? this.dayAt(event)) : day;
    if (event.shiftKey || isChosen) this.pick(from, day);
    this.focus(day);
  }

  /** Return the nearest day with a square, in a direction if there is one. */
  near(day, direction) {
    for (let tried = day; tried >= this.days[0] && tried <= this.days.at(-1); tried += direction) {
      if (this.squares.has(tried)) return tried;
    }
    return direction < 0 ? this.days[0] : this.days.at(-1);
  }

  focus(day) {
    this.squares.get(this.focused).tabIndex = -1;
    this.focused = day;
    const square = this.squares.get(day);
    square.tabIndex = 0;
    square.focus();
    square.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  pick(anchor, day) {
    this.anchor = anchor;
    [this.first, this.last] = anchor <= day ? [anchor, day] : [day, anchor];
    for (const [at, square] of this.squares) {
      square.setAttribute("aria-pressed", String(at >= this.first && at <= this.last));
    }
    this.show();
  }

  show() {
    const bounds = { min: key(this.days[0]), max: key(this.days.at(-1)) };
    const inputs = ["first", "last"].map((name) => {
      const input = make("input", { type: "date", id: `day-${name}`, value: this[name] === undefined ? "" : key(this[name]), ...bounds });
      input.addEventListener("change", () => {
        const value = number(input.value);
        if (Number.isNaN(value)) return;
        const other = name === "first" ? this.last : this.first;
        this.pick(name === "first" ? value : (other ?? value), name === "first" ? (other ?? value) : value);
        document.getElementById(input.id).focus();
      });
      return make("div", { className: "field" }, make("label", { htmlFor: input.id, textContent: name === "first" ? "From" : "To" }), input);
    });
    const dates = make("div", { className: "filters" }, ...inputs);
    if (this.first === undefined) {
      const hint = "Pick days with the mouse, or with the arrow keys and Shift, to see what they lack.";
      this.box.replaceChildren(make("p", { className: "note", textContent: hint }), dates);
      return;
    }
    const cells = this.days.filter((day) => day >= this.first && day <= this.last).map((day) => this.byDay.get(day));
    const total = (name) => cells.reduce((sum, cell) => sum + (cell[name] ?? 0), 0);
    const missing = total("missing") || cells.filter(lacks).length;
    const bad = total("quarantined") + total("failed");
    const range = { first: key(this.first), last: key(this.last), where: this.element.dataset.where };
    const shown = make("a", { className: "button plain", href: withQuery(this.element.dataset.days, range), textContent: "Show the partitions" });
    const load = make("a", { className: "button", href: withQuery(this.element.dataset.missing, range), textContent: "Load what is missing or failed" });
    const days = this.first === this.last ? key(this.first) : `${key(this.first)} to ${key(this.last)}`;
    const sums = `${counted(total("partitions"), "partition")}, ${counted(total("rows"), "row")}, ${size(total("bytes"))}; `;
    const found = missing || bad ? `${count(missing)} missing, ${count(bad)} quarantined or failed.` : "nothing is missing or failed.";
    this.box.replaceChildren(
      make("h3", { textContent: days }),
      make("p", { role: "status", textContent: sums + found }),
      dates,
      make("p", { className: "buttons" }, shown, ...(missing || bad ? [load] : [])),
    );
  }
}
