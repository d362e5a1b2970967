// Charts in the colours of the page's theme, drawn again when it or the size changes.
import { use, init } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import { colour, onTheme } from "./theme.js";

use([SVGRenderer]);

/** Draw a chart in an element. `option` returns ECharts' option, with colours of the current theme. */
export function draw(element, option) {
  const chart = init(element, null, { renderer: "svg" });
  const show = () => chart.setOption(option(), { notMerge: true });
  show();
  onTheme(() => !chart.isDisposed() && show());
  new ResizeObserver(() => chart.isDisposed() || chart.resize()).observe(element);
  return chart;
}

/** Return a colour between those of the theme's scale; `share` is from 0 to 1. */
export function scaled(share) {
  const [low, high] = ["--scale-low", "--scale-high"].map((name) => parts(colour(name)));
  return `rgb(${low.map((value, place) => Math.round(value + (high[place] - value) * share)).join(",")})`;
}

/** Return black or white, whichever is read better on a colour. */
export function lettersOn(background) {
  const [red, green, blue] = background.startsWith("#") ? parts(background) : background.match(/\d+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#18181b" : "#ffffff";
}

function parts(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}
