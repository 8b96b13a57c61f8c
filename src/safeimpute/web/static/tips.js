// Hints over the picture, for the pointer and for keyboard focus alike.

import { byId, el, percent, quantity } from "./dom.js";
import { carriers, decision, interval, when } from "./words.js";

const MARKS = "[data-imputation], [data-tip]";
let shown = null; // the mark the hint is about

export function startTips(run, imputation) {
  const show = (event) => {
    const mark = event.target.closest?.(MARKS);
    if (!mark) return hide();
    const lines = mark.dataset.tip ? [mark.dataset.tip] : about(imputation(Number(mark.dataset.imputation)), run);
    byId("tip").replaceChildren(...lines.map((line) => el("p", {}, line)));
    place(mark);
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", follow, { passive: true, capture: true });
}

// A mark that Tab scrolled into view keeps its hint; one under the pointer has moved away from it.
function follow() {
  if (shown && shown === document.activeElement?.closest(MARKS)) place(shown);
  else hide();
}

function hide() {
  shown = null;
  byId("tip").hidden = true;
}

function about(imputation, run) {
  const reasons = carriers(imputation.why, run.unit);
  return [
    `${decision(imputation)} · ${when(imputation)}`,
    `${quantity(imputation.value, run.unit)}, ${percent(run.interval)} interval ${interval(imputation, run.unit)}`,
    ...(reasons.length ? ["Carried by:", ...reasons] : []),
  ];
}

function place(mark) {
  shown = mark;
  const tip = byId("tip");
  tip.hidden = false;
  const box = mark.querySelector(".halo")?.getBoundingClientRect() ?? mark.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above < 4 ? box.bottom + 8 : above}px`;
}
