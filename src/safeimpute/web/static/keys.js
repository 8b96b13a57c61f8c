// The keyboard: one key, one act; none while something is being typed.

import { byId, el } from "./dom.js";

export function startKeys(acts) {
  byId("keys").replaceChildren(...acts.flatMap(([keys, words]) =>
    [el("dt", {}, ...keys.flatMap((key, place) => [place ? " " : "", el("kbd", {}, key)])), el("dd", {}, words)]));
  byId("show-help").addEventListener("click", () => byId("help").showModal());
  const byKey = new Map(acts.flatMap(([keys, , act]) => keys.map((key) => [key, act])));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      event.preventDefault(); // a search field would empty itself
      event.target.blur?.();
      byKey.get("Esc")?.();
    }
    if (event.target.matches("input:not([type=range]), select, textarea")) return;
    const act = byKey.get(event.key);
    if (!act) return;
    event.preventDefault();
    act(event.key);
  });
}
