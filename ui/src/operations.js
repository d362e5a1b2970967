// An operation's page: its dialogs, the links to Airflow's own pages, and answers to questions.
import htmx from "htmx.org";
import { say } from "./calve.js";
import "./operations.css";

/** Ask Airflow's API for a change, as the user who is logged in. Throws an Error with Airflow's reason. */
export async function change(path, body) {
  const answer = await fetch(`${document.body.dataset.airflow}/api/v2${path}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });
  if (answer.ok) return;
  const detail = (await answer.json().catch(() => ({}))).detail ?? answer.statusText;
  throw new Error(typeof detail === "string" ? detail : detail.map((problem) => problem.msg).join("; "));
}

function runPath(element) {
  return `/dags/${encodeURIComponent(element.dataset.dag)}/dagRuns/${encodeURIComponent(element.dataset.run)}`;
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) document.getElementById(opener.dataset.opens).showModal();
  const closer = event.target.closest("[data-closes]");
  if (closer) document.getElementById(closer.dataset.closes).close();
  const answer = event.target.closest("[data-answer]");
  if (answer) answerQuestion(answer);
  const leaving = event.target.closest("a[data-leaves]");
  if (leaving && window.parent !== window && !event.ctrlKey && !event.metaKey) {
    // The frame may not navigate the page around it, but that page may itself.
    event.preventDefault();
    const link = window.parent.document.createElement("a");
    link.href = leaving.href;
    window.parent.document.body.append(link);
    link.click();
    link.remove();
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form.cancel");
  if (!form) return;
  event.preventDefault();
  cancel(form);
});

async function cancel(form) {
  const problem = form.querySelector(".problem");
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  try {
    // First the operation: from then on, no job of the run can commit.
    const answer = await fetch(form.getAttribute("action"), { method: "POST", headers: { "HX-Request": "true" } });
    if (!answer.ok) throw new Error(new DOMParser().parseFromString(await answer.text(), "text/html").body.innerText);
    if (form.elements.stop?.checked) await change(runPath(form), { state: "failed" });
    window.location.reload();
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    button.disabled = false;
  }
}

async function answerQuestion(button) {
  const question = button.closest("[data-dag]");
  const { task, index } = question.dataset;
  const buttons = question.querySelectorAll("[data-answer]");
  for (const other of buttons) other.disabled = true;
  try {
    await change(`${runPath(question)}/taskInstances/${encodeURIComponent(task)}/${index}/hitlDetails`, {
      chosen_options: [button.dataset.answer],
      params_input: {},
    });
    say(`Answered: ${button.dataset.answer}.`);
  } catch (error) {
    say(error.message);
    for (const other of buttons) other.disabled = false;
  }
  htmx.trigger("#approvals", "answered");
}

// Parts that are asked for again and again keep what the reader has opened, and the end of a log in view.
const opened = new Set();
document.addEventListener(
  "toggle",
  (event) => {
    if (event.target.id?.startsWith("raw-")) opened[event.target.open ? "add" : "delete"](event.target.id);
  },
  true,
);
document.addEventListener("htmx:afterSettle", (event) => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  for (const log of event.target.closest?.("#log, .log")?.querySelectorAll("pre") ?? []) log.scrollTop = log.scrollHeight;
});
