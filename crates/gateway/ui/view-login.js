// Login with a token.
import { h } from "./dom.js";

export function loginView(main, submit, sentence) {
  const problem = h("p", { class: "problem", role: "alert", hidden: !sentence }, sentence ?? "");
  const input = h("input", { id: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false" });
  const button = h("button", { class: "primary" }, "Log in");
  const form = h("form", { class: "card" },
    h("h1", null, "Log in"),
    problem,
    h("label", { for: "token" }, "Token with the role admin"),
    input, button,
    h("p", { class: "hint" }, "On the machine of the gateway, ", h("code", null, "stayput ui"), " opens this page without a token."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await submit(input.value.trim());
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      input.select();
    }
    button.disabled = false;
  });
  main.append(h("div", { class: "login" }, form));
  input.focus();
}
