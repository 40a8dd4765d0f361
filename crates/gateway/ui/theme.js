// Theme of the page. A plain script, not a module, so that it runs before the first paint.
(() => {
  const KEY = "stayput-theme";
  const root = document.documentElement;
  const saved = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const other = () => (root.dataset.theme === "dark" ? "light" : "dark");
  const apply = (theme) => {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button === null) return;
    button.textContent = other() === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `${button.textContent}: switch to the ${other()} theme`);
  };
  const follow = () => apply(saved() ?? system());
  follow();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
  addEventListener("DOMContentLoaded", () => {
    follow();
    document.getElementById("theme").addEventListener("click", () => {
      const next = other();
      // The choice of the system needs no entry.
      try {
        if (next === system()) localStorage.removeItem(KEY);
        else localStorage.setItem(KEY, next);
      } catch { /* Without storage the choice lasts until the page is closed. */ }
      apply(next);
    });
  });
})();
