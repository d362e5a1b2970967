// Builds the scripts and styles of the pages into the package, where they are committed: users need neither node nor
// the internet. A test compares the digest in the first line with the sources.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { build } from "esbuild";

const sources = ["package-lock.json", "build.mjs", ...readdirSync("src").sort().map((name) => `src/${name}`)];
const digest = createHash("sha256");
for (const source of sources) digest.update(readFileSync(source));

await build({
  entryPoints: { calve: "src/calve.js" },
  outdir: "../plugins/calve_airflow/pages/static",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  legalComments: "none",
  banner: { js: `/* sources ${digest.digest("hex")}; htmx, BSD-2; Apache ECharts, Apache-2.0 */` },
});
