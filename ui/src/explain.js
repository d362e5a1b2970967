// The filter box of the page that explains searches: completes keys, operators and values while one types.
import "./explain.css";

const OPERATORS = ["=", "in (", "between", "like '", ">=", "<=", ">", "<", "<>", "is null", "is not null"];
const VALUE = /([A-Za-z_]\w*|`[^`]+`)\s*(?:=|<>|!=|<=|>=|<|>|\b(?:not\s+)?like|\b(?:not\s+)?in\s*\((?:[^()]*,)?|\bbetween|\bbetween\s+\S+\s+and)\s*('[^']*|[\w.:-]*)$/i;
const WORD = /(?:^|[\s(])([A-Za-z_]\w*)?$/;

/** Return what is being typed before the caret: `{ kind, key, prefix, start }`; null inside of a finished literal. */
export function context(before, keys) {
  const value = before.match(VALUE);
  if (value) {
    const key = value[1].replaceAll("`", "").toLowerCase();
    if (keys.includes(key)) {
      return { kind: "value", key, prefix: value[2].replace(/^'/, ""), start: before.length - value[2].length };
    }
  }
  if ((before.match(/'/g) ?? []).length % 2) return null;
  const word = before.match(WORD);
  if (!word) return null;
  const prefix = word[1] ?? "";
  const start = before.length - prefix.length;
  const last = before.slice(0, start).trimEnd().match(/([A-Za-z_]\w*|[()]|\S)$/)?.[1]?.toLowerCase();
  if (last === undefined || last === "(" || ["and", "or", "not"].includes(last)) return { kind: "key", prefix, start };
  if (keys.includes(last)) return { kind: "operator", prefix, start };
  return { kind: "join", prefix, start };
}

function setUp(box) {
  const input = box.querySelector("input");
  const list = box.querySelector("[role=listbox]");
  const keys = JSON.parse(box.dataset.keys);
  const names = keys.map((key) => key.name);
  let found = null;
  let active = -1;
  let asked = 0;

  function close() {
    list.hidden = true;
    list.replaceChildren();
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function show(options) {
    close();
    if (!options.length) return;
    list.append(
      ...options.map(({ text, note }, number) => {
        const option = document.createElement("li");
        option.id = `completion-${number}`;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        option.dataset.text = text;
        option.textContent = text;
        if (note) {
          const small = document.createElement("span");
          small.className = "note";
          small.textContent = ` ${note}`;
          option.append(small);
        }
        return option;
      }),
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  function choose(number) {
    const options = list.children;
    active = (number + options.length) % options.length;
    for (const [place, option] of [...options].entries()) option.setAttribute("aria-selected", String(place === active));
    input.setAttribute("aria-activedescendant", options[active].id);
    options[active].scrollIntoView({ block: "nearest" });
  }

  async function complete() {
    const number = ++asked;
    found = context(input.value.slice(0, input.selectionStart), names);
    if (!found) return close();
    const { kind, prefix } = found;
    if (kind === "value") {
      const answer = await fetch(`${box.dataset.values}?${new URLSearchParams({ key: found.key, prefix })}`);
      const values = answer.ok ? await answer.json() : [];
      if (number === asked) show(values.map((text) => ({ text })));
      return;
    }
    const all =
      kind === "key"
        ? keys.map((key) => ({ text: key.name, note: key.type }))
        : (kind === "operator" ? OPERATORS : ["and", "or"]).map((text) => ({ text }));
    show(all.filter(({ text }) => text.startsWith(prefix.toLowerCase()) && text !== prefix));
  }

  function insert(text) {
    const after = input.value.slice(input.selectionStart).replace(/^[\w.:-]*'?/, "");
    const before = input.value.slice(0, found.start);
    const gap = found.kind === "operator" && !/\s$/.test(before) ? " " : "";
    const end = /[('%]$/.test(text) && found.kind === "operator" ? "" : " ";
    const written = `${before}${gap}${text}${end}`;
    input.value = written + after;
    input.setSelectionRange(written.length, written.length);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  input.addEventListener("input", complete);
  input.addEventListener("focus", () => input.value === "" && complete());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (list.hidden) {
      if (event.key === "ArrowDown") complete();
      return;
    }
    if (event.key === "ArrowDown") choose(active + 1);
    else if (event.key === "ArrowUp") choose(active < 0 ? -1 : active - 1);
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) insert(list.children[active].dataset.text);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  // A press would take the focus from the box, and close the list, before the click.
  list.addEventListener("mousedown", (event) => {
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option) insert(option.dataset.text);
  });
}

document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("search.explain")) setUp(box);
});
