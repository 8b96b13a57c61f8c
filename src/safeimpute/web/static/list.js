// The list of patients: filters, pages, and which one is open.

import { getJson } from "./api.js";
import { announce, byId, count, el, percent, plain, quantity } from "./dom.js";
import { byNeed, risk } from "./words.js";

const list = { unit: null, probability: true, page: 0, pages: 1, rows: [], open: null, asked: 0, choose: () => {} };

export function startList(choose) {
  list.choose = choose;
  const form = byId("filters");
  let waiting;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => show(0), 120);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("page-back").addEventListener("click", () => show(list.page - 1));
  byId("page-on").addEventListener("click", () => show(list.page + 1));
  return loadPage(0);
}

const show = (page) => loadPage(page).catch((error) => announce(error.message));

function query(page) {
  const given = new URLSearchParams({ page });
  for (const [name, value] of new FormData(byId("filters"))) {
    if (value !== "" && value !== "all") given.set(name, value);
  }
  return given;
}

async function loadPage(page) {
  const turn = (list.asked += 1);
  const found = await getJson(`api/patients?${query(page)}`);
  if (turn !== list.asked) return; // a later question was asked meanwhile
  Object.assign(list, { unit: found.unit, probability: found.risk_is_probability, page: found.page, pages: found.pages, rows: found.rows });
  byId("found").textContent = `${count(found.patients, "patient")}, ${count(found.imputations, "value")}`;
  byId("page-number").textContent = `Page ${found.page + 1} of ${found.pages.toLocaleString("en")}`;
  byId("page-back").disabled = found.page === 0;
  byId("page-on").disabled = found.page + 1 >= found.pages;
  byId("patients").replaceChildren(...found.rows.map(row));
}

function row(patient) {
  const withheld = patient.imputations - patient.released;
  const button = el("button", { type: "button", "data-patient": patient.patient },
    el("span", { class: "who" }, `Patient ${plain(patient.subject, 40)}`),
    el("span", { class: "need" }, patient.open ? quantity(patient.open_value, list.unit) : "nothing open"),
    el("span", { class: "muted" }, `${patient.released ? `${patient.released} released, ` : ""}${withheld} withheld`),
    el("span", { class: "muted done" }, standing(patient)));
  button.addEventListener("click", () => list.choose(patient.patient));
  if (patient.patient === list.open) button.setAttribute("aria-current", "true");
  return el("li", {}, button);
}

function standing(patient) {
  if (patient.decided) return `${patient.decided} decided`;
  if (!patient.open) return "";
  return `risk ${list.probability ? percent(patient.open_risk) : risk(patient.open_risk)}`;
}

export function markOpen(patient) {
  list.open = patient;
  for (const button of byId("patients").querySelectorAll("button")) {
    const open = Number(button.dataset.patient) === patient;
    if (open) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    if (open) keepInSight(button);
  }
}

// Scrolls the list alone: the page stays where the reviewer left it.
function keepInSight(button) {
  const box = byId("patients");
  const last = button.offsetTop + button.offsetHeight - box.clientHeight;
  box.scrollTop = Math.max(last, Math.min(box.scrollTop, button.offsetTop));
}

// After a decision the row changes in place; the order stays until the list is asked for again.
export function refreshRow(course) {
  const known = list.rows.find((each) => each.patient === course.patient);
  if (!known) return;
  const waiting = byNeed(course.imputations);
  known.decided = course.imputations.filter((each) => each.review !== "undecided").length;
  known.open = waiting.length;
  Object.assign(known, { open_risk: waiting[0]?.risk ?? null, open_value: waiting[0]?.value ?? null });
  byId("patients").querySelector(`[data-patient="${course.patient}"]`)?.parentElement.replaceWith(row(known));
}

// The patient `step` places on from the open one, turning the page where it ends; null at either end of the list.
export async function neighbour(step) {
  const at = list.rows.findIndex((each) => each.patient === list.open);
  const next = at < 0 ? 0 : at + step;
  if (next >= 0 && next < list.rows.length) return list.rows[next].patient;
  const page = list.page + step;
  if (page < 0 || page >= list.pages) return null;
  await loadPage(page);
  return list.rows.at(step > 0 ? 0 : -1)?.patient ?? null;
}
