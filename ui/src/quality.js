// The release of quarantined partitions: what is ticked, and the dialog that asks for the reason.
import htmx from "htmx.org";
import "./quality.css";

const ticked = (form) => [...form.querySelectorAll("input[name=partition]:checked")];

document.addEventListener("change", (event) => {
  const form = event.target.closest("form.release");
  const open = form?.querySelector(".open");
  if (!open || event.target.name !== "partition") return;
  const count = ticked(form).length;
  open.disabled = count === 0;
  open.textContent = count > 1 ? `Release ${count}…` : "Release…";
});

document.addEventListener("click", (event) => {
  const form = event.target.closest("form.release");
  if (!form) return;
  const dialog = form.querySelector("dialog");
  if (event.target.matches(".close")) dialog.close();
  if (!event.target.matches(".open")) return;
  const names = ticked(form).map((input) => {
    const item = document.createElement("li");
    item.textContent = input.dataset.name;
    return item;
  });
  dialog.querySelector(".names").replaceChildren(...names);
  dialog.querySelector(".answer").replaceChildren();
  dialog.showModal();
});

// A refusal stays in the dialog, with the reason that was typed.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400 && event.detail.elt.matches("form.release")) {
    event.detail.target = event.detail.elt.querySelector(".answer");
  }
});

// By then, the answer has taken the form's place, so that the event does not name it.
document.addEventListener("htmx:afterRequest", (event) => {
  const isRelease = event.detail.pathInfo.requestPath.endsWith("/quality/release");
  if (event.detail.successful && isRelease) htmx.trigger(document.body, "released");
});
