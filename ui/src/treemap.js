// Partitions by their keys: an area for each value, and the same as a table.
import { use } from "echarts/core";
import { TreemapChart } from "echarts/charts";
import { TooltipComponent } from "echarts/components";
import { draw, lettersOn, scaled } from "./charts.js";
import { count, counted, shareOf, size } from "./numbers.js";
import { make, withQuery } from "./picture.js";
import { colour } from "./theme.js";

use([TreemapChart, TooltipComponent]);

const LISTED = 100;
const named = (value) => value ?? "null";

/** Draw a treemap; return the function that colours it by a measure. */
export function treemap(element, data, cells) {
  const area = cells.some((cell) => cell.rows) ? "rows" : cells.some((cell) => cell.bytes) ? "bytes" : "partitions";
  const box = make("div", { className: "chart treemap", role: "img", ariaLabel: "Treemap of the partitions; the table below has the same" });
  const note = make("p", { className: "note" });
  element.append(path(element, data), summary(data, cells), note, box, table(element, data, cells));
  let measure;
  let name;
  const chart = draw(box, () => (measure ? option(data, cells, area, measure, name) : {}));
  chart.on("click", (event) => {
    if (event.data?.cell) window.location.href = target(element, data, event.data.cell);
  });
  return (chosen, by) => {
    [measure, name] = [chosen, by];
    note.textContent = `Areas show ${area === "bytes" ? "data" : area}, colours ${chosen.title}: darker is more in the light theme, brighter in the dark one.`;
    if (by === "quality") note.textContent = `Areas show ${area === "bytes" ? "data" : area}; values marked with ! have partitions that are quarantined or failed.`;
    chart.setOption(option(data, cells, area, measure, name), { notMerge: true });
  };
}

/** Return the page of a group: the groups inside it, or its partitions. */
function target(element, data, cell) {
  const values = [...data.inside, ...cell.key];
  if (data.has_more) return withQuery(element.dataset.page, { inside: JSON.stringify(values) });
  const where = values.map((value, place) => {
    const key = `\`${data.keys[place].replaceAll("`", "``")}\``;
    return value === null ? `${key} is null` : `${key} = '${value.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
  });
  const outer = element.dataset.where ? [`(${element.dataset.where})`] : [];
  return withQuery(element.dataset.partitions, { where: [...outer, ...where].join(" and ") });
}

function path(element, data) {
  if (!data.inside.length) return "";
  const links = data.inside.map((value, place) => {
    const inside = data.inside.slice(0, place + 1);
    return make("a", { href: withQuery(element.dataset.page, { inside: JSON.stringify(inside) }), textContent: `${data.keys[place]} = ${named(value)}` });
  });
  const all = make("a", { href: element.dataset.page, textContent: "all" });
  return make("p", {}, all, ...links.flatMap((link) => [" › ", link]));
}

function summary(data, cells) {
  const keys = data.keys.slice(data.inside.length, data.inside.length + data.levels).join(" / ");
  const rows = cells.map((cell) => cell.rows).sort((a, b) => b - a);
  const mean = rows.reduce((sum, value) => sum + value, 0) / rows.length;
  const skew = rows.length > 1 && mean > 0 ? `; the largest has ${(rows[0] / mean).toFixed(1)} times the mean number of rows` : "";
  const cut = data.is_cut ? `the ${count(cells.length)} with the most rows of more` : count(cells.length);
  return make("p", { textContent: `${cut} value${cells.length === 1 ? "" : "s"} of ${keys}${skew}.` });
}

function option(data, cells, area, measure, name) {
  const values = cells.map(measure.of).filter((value) => value !== null);
  const [low, high] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
  const leaf = (cell) => {
    const isBad = cell.quarantined || cell.failed;
    const share = shareOf(measure.of(cell), low, high);
    const background = name === "quality" ? colour(isBad ? "--bad-ground" : "--good-ground") : scaled(share);
    return {
      name: `${isBad ? "! " : ""}${named(cell.key.at(-1))}`,
      value: Math.max(cell[area], 1),
      cell,
      itemStyle: { color: background, borderColor: isBad ? colour("--bad") : colour("--ground"), borderWidth: isBad ? 2 : 1 },
      label: { color: lettersOn(background) },
    };
  };
  return {
    animation: false,
    tooltip: {
      backgroundColor: colour("--raised"),
      borderColor: colour("--line"),
      textStyle: { color: colour("--text") },
      renderMode: "richText",
      formatter: ({ data: { cell, name: title } }) =>
        cell
          ? `${cell.key.map(named).join(" / ")}\n${counted(cell.partitions, "partition")}, ${counted(cell.rows, "row")}, ${size(cell.bytes)}` +
            (cell.quarantined ? `\n${count(cell.quarantined)} quarantined` : "") + (cell.failed ? `\n${count(cell.failed)} failed` : "")
          : title,
    },
    series: [
      {
        type: "treemap",
        data: nested(cells, data.levels, leaf),
        roam: false,
        nodeClick: false,
        breadcrumb: { show: false },
        left: 0,
        right: 0,
        top: 0,
        bottom: 0,
        visibleMin: 20,
        label: { overflow: "truncate" },
        upperLabel: { show: data.levels > 1, height: 20, color: colour("--text"), overflow: "truncate" },
        itemStyle: { borderColor: colour("--ground"), borderWidth: 1, gapWidth: 1, color: colour("--raised") },
        levels: [{ upperLabel: { show: false } }],
      },
    ],
  };
}

function nested(cells, levels, leaf, place = 0) {
  if (place === levels - 1) return cells.map(leaf);
  const groups = new Map();
  for (const cell of cells) {
    const value = cell.key[place];
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(cell);
  }
  return [...groups].map(([value, members]) => ({ name: named(value), itemStyle: { color: colour("--raised") }, children: nested(members, levels, leaf, place + 1) }));
}

function table(element, data, cells) {
  const keys = data.keys.slice(data.inside.length, data.inside.length + data.levels);
  const largest = [...cells].sort((a, b) => b.rows - a.rows || b.bytes - a.bytes).slice(0, LISTED);
  const most = Math.max(1, ...largest.map((cell) => cell.rows));
  const cellOf = (text, isNumber) => make("td", { className: isNumber ? "number" : "", textContent: text });
  const rows = largest.map((cell) => {
    const link = make("a", { href: target(element, data, cell), textContent: cell.key.map(named).join(" / ") });
    const meter = make("meter", { max: most, value: cell.rows, ariaLabel: counted(cell.rows, "row") });
    const state = [cell.quarantined && `${count(cell.quarantined)} quarantined`, cell.failed && `${count(cell.failed)} failed`].filter(Boolean).join(", ");
    return make(
      "tr",
      {},
      make("td", { className: "value" }, link),
      cellOf(count(cell.partitions), true),
      cellOf(count(cell.rows), true),
      make("td", { className: "share" }, meter),
      cellOf(size(cell.bytes), true),
      cellOf(count(cell.files), true),
      cellOf(state),
    );
  });
  const head = [keys.join(" / "), "Partitions", "Rows", "", "Data", "Files", "State"].map((title, place) =>
    title ? make("th", { textContent: title, className: [1, 2, 4, 5].includes(place) ? "number" : "" }) : make("td"),
  );
  const box = make("div", { className: "scroll tall", role: "region", tabIndex: 0, ariaLabel: "Largest values" });
  box.append(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
  return make("section", {}, make("h2", { textContent: cells.length > LISTED ? `The ${LISTED} with the most rows` : "As a table" }), box);
}
