// The board of migrations: what the ticked tables have together. Without this script, they are sent all the same.
import "./migrations.css";
import { count, seconds, size } from "./numbers.js";

// The address of a form with more names could be too long for proxies.
const MOST = 200;

document.addEventListener("change", (event) => {
  const form = event.target.closest("form.migrate");
  if (!form) return;
  if (event.target.matches(".all")) {
    for (const input of event.target.closest("section").querySelectorAll("input[name=tables]")) input.checked = event.target.checked;
  }
  sum(form);
});

function sum(form) {
  const ticked = [...form.querySelectorAll("input[name=tables]:checked")];
  const total = (name) => ticked.reduce((before, input) => before + Number(input.dataset[name]), 0);
  const bar = form.querySelector(".ticked");
  const problem = bar.querySelector(".problem");
  bar.hidden = ticked.length === 0;
  const tables = ticked.length === 1 ? "1 table" : `${count(ticked.length)} tables`;
  const counted = ticked.some((input) => input.dataset.files !== "0");
  const totals = counted ? `: ${count(total("files"))} files, ${size(total("bytes"))}, about ${seconds(total("seconds"))}` : "";
  bar.querySelector("[role=status]").textContent = `${tables}${totals}`;
  problem.hidden = ticked.length <= MOST;
  problem.textContent = `Choose at most ${MOST} tables at once, or write a pattern such as shop.* into the form of the DAG.`;
}

document.addEventListener("submit", (event) => {
  if (event.target.matches("form.migrate") && !event.target.querySelector(".ticked .problem").hidden) event.preventDefault();
});
