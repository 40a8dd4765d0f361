// Question before an action that cannot be undone.
import { h } from "./dom.js";

class ConfirmDialog extends HTMLElement {
  /** Asks, and resolves to whether the answer was yes. */
  ask(title, text, action) {
    const dialog = h("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" },
      h("h2", { id: "confirm-title" }, title),
      h("p", { id: "confirm-text" }, text),
      h("form", { method: "dialog" },
        h("button", { value: "no", autofocus: true }, "Cancel"),
        h("button", { value: "yes", class: "danger" }, action)));
    this.replaceChildren(dialog);
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => {
        resolve(dialog.returnValue === "yes");
        this.remove();
      });
      dialog.showModal();
    });
  }
}
customElements.define("confirm-dialog", ConfirmDialog);

/** Asks before an action. */
export function confirmed(title, text, action) {
  const element = document.createElement("confirm-dialog");
  document.body.append(element);
  return element.ask(title, text, action);
}
