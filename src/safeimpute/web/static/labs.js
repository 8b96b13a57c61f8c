// Turning from lab to lab in a run of several: the same patient stays open where the other lab has one.

import { getJson } from "./api.js";
import { byId, el, number, plain } from "./dom.js";

export function startLabs(run, subject) {
  if (!run.labs.length) return;
  byId("labs").hidden = false;
  const own = run.labs.findIndex((each) => each.lab === run.target);
  byId("lab").replaceChildren(...run.labs.map((each) =>
    el("option", { value: each.page }, `${plain(each.lab)}: ${number(each.open)} open`)));
  byId("lab").selectedIndex = own;
  const sum = (name) => run.labs.reduce((total, each) => total + each[name], 0);
  byId("all-labs").textContent = `${number(sum("released"))} of ${number(sum("missing"))} released over `
    + `${run.labs.length} labs`;
  byId("lab").addEventListener("change", () => {
    const kept = subject();
    location.href = `../${byId("lab").value}/${kept === null ? "" : `#subject=${encodeURIComponent(kept)}`}`;
  });
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
