// Turning from lab to lab in a run of several: the same patient stays open where the other lab has one.

import { getJson } from "./api.js";
import { byId, el, number, plain } from "./dom.js";

const labs = { all: [], own: -1, subject: () => null };

export function startLabs(run, subject) {
  if (!run.labs.length) return;
  Object.assign(labs, { all: run.labs, own: run.labs.findIndex((each) => each.lab === run.target), subject });
  byId("labs").hidden = false;
  byId("lab-list").replaceChildren(...run.labs.map(chip));
  const sum = (name) => run.labs.reduce((total, each) => total + each[name], 0);
  byId("all-labs").textContent = `All ${run.labs.length} labs: ${number(sum("released"))} of ${number(sum("missing"))} released`;
  keepInSight();
}

function chip(each, place) {
  const words = each.open ? `${number(each.open)} open` : each.released ? "all decided" : "none released";
  const link = el("a", { href: `../${each.page}/`, "data-lab": each.lab, "aria-current": place === labs.own ? "page" : null },
    el("span", { class: "lab" }, plain(each.title, 32)), " ", el("span", { class: "count" }, words));
  link.addEventListener("click", (event) => {
    event.preventDefault();
    turnTo(place);
  });
  return el("li", {}, link);
}

// Scrolls the row of labs alone.
function keepInSight() {
  const [row, open] = [byId("lab-list"), byId("lab-list").querySelector("[aria-current]")];
  if (open) row.scrollLeft = open.offsetLeft - (row.clientWidth - open.offsetWidth) / 2;
}

// The count of open values beside the lab on show, after a decision.
export function showOpen(open) {
  const count = byId("lab-list").querySelector("[aria-current] .count");
  if (count) count.textContent = open ? `${number(open)} open` : "all decided";
}

function turnTo(place) {
  const kept = labs.subject();
  location.href = `../${labs.all[place].page}/${kept === null ? "" : `#subject=${encodeURIComponent(kept)}`}`;
}

// The lab `by` places on, round and round.
export function stepLab(by) {
  if (labs.all.length) turnTo((labs.own + by + labs.all.length) % labs.all.length);
}

// The patient an address names, by number or by identifier; null where it names none that is here.
export async function patientIn(hash) {
  const byNumber = /^#patient=(\d+)$/.exec(hash);
  if (byNumber) return Number(byNumber[1]);
  const bySubject = /^#subject=(.+)$/.exec(hash);
  if (!bySubject) return null;
  const wanted = decodeURIComponent(bySubject[1]);
  const found = await getJson(`api/patients?${new URLSearchParams({ search: wanted })}`);
  return found.rows.find((each) => each.subject === wanted)?.patient ?? null;
}
