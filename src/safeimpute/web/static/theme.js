// Light or dark, set before anything is drawn: as the system has it, or as this browser was told last.
// A classic script in the head; everything else of the page is a module.

(() => {
  const KEY = "safeimpute-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const isDark = () => (stored() ?? (system.matches ? "dark" : "light")) === "dark";

  function show() {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-checked", String(isDark()));
  }

  function turn() {
    try { localStorage.setItem(KEY, isDark() ? "light" : "dark"); } catch { /* nothing is remembered then */ }
    show();
  }

  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", turn);
  });
})();
