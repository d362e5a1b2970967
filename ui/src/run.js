// The form that starts a run through Airflow's API, which checks the values and the user's access.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form.run");
  if (!form) return;
  event.preventDefault();
  start(form);
});

function valueOf(field) {
  const input = field.querySelector("[name]");
  const kind = field.dataset.kind;
  if (kind === "boolean") return input.checked;
  if (kind === "enum") return JSON.parse(input.dataset.values)[Number(input.value)];
  const text = input.value;
  if (text === "") return null;
  if (kind === "integer" || kind === "number") return Number(text);
  if (kind === "array" && !text.trim().startsWith("[")) return text.split("\n").filter((line) => line.trim());
  if (kind === "array" || kind === "object") {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

/** Start a run of a DAG; return its id. Throws an Error with Airflow's reason. `day` is its logical date, or empty. */
export async function startRun(dag, conf, day) {
  const body = { logical_date: day ? new Date(day).toISOString() : null, conf };
  return (await post(`/dags/${encodeURIComponent(dag)}/dagRuns`, body)).dag_run_id;
}

/** Send a request to Airflow's API; return its answer. Throws an Error with Airflow's reason. */
export async function post(path, request) {
  const answer = await fetch(`${document.body.dataset.airflow}/api/v2${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(request),
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const detail = body.detail ?? answer.statusText;
    throw new Error(typeof detail === "string" ? detail : detail.map((problem) => problem.msg).join("; "));
  }
  return body;
}

async function start(form) {
  const problem = form.querySelector(".problem");
  const button = form.querySelector("button[type=submit]");
  const conf = {};
  for (const field of form.querySelectorAll(".field")) conf[field.querySelector("[name]").name] = valueOf(field);
  problem.hidden = true;
  button.disabled = true;
  try {
    const run = await startRun(form.dataset.dag, conf, form.dataset.logicalDate);
    const id = `${form.dataset.dag}/${run}`;
    window.location.href = `${document.body.dataset.root}/operation?${new URLSearchParams({ id })}`;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    button.disabled = false;
  }
}
