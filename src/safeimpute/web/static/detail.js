// The panel about one imputed value: how large, how sure, why, and what reviewers said.

import { byId, count, el, number, percent, plain, quantity } from "./dom.js";
import { decision, gap, interval, meaning, risk, when } from "./words.js";

const VERBS = { accept: "accepted", reject: "rejected", comment: "commented" };

export function showDetail(imputation, course, run, act) {
  const place = course.imputations.indexOf(imputation) + 1;
  const parts = [
    el("p", { class: "muted" }, `Imputed value ${place} of ${course.imputations.length} · ${when(imputation)}`),
    el("p", { class: "value" }, quantity(imputation.value, run.unit)),
    el("p", { class: `state ${imputation.released ? "released" : "withheld"}` }, decision(imputation)),
    imputation.released ? null : el("p", { class: "muted" }, meaning(imputation, run)),
    facts(imputation, run),
    buttons(imputation, act),
    history(imputation),
    ...why(imputation, course, run),
  ];
  byId("detail").replaceChildren(...parts.filter((part) => part !== null));
  byId("detail").hidden = false;
}

function facts(imputation, run) {
  const rows = [
    [`${percent(run.interval)} interval`, interval(imputation, run.unit)],
    [run.risk_is_probability ? "Risk of being off too far" : "Risk (larger is riskier)", risk(imputation.risk)],
    ["Released up to a risk of", imputation.cutoff === null ? "none" : risk(imputation.cutoff)],
  ];
  if (run.claim === "visits") rows.push(["p-value", imputation.p_value === null ? "none: not tested" : number(imputation.p_value)]);
  return el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function buttons(imputation, act) {
  const button = (kind, words, key) => {
    const made = el("button", { type: "button", "data-act": kind }, words, " ", el("kbd", {}, key));
    made.addEventListener("click", () => act(kind));
    return made;
  };
  const accept = button("accept", "Accept", "a");
  if (!imputation.released) {
    accept.disabled = true;
    accept.title = "Withheld: nothing is promised about this value";
  }
  return el("div", { class: "acts" }, accept, button("reject", "Reject", "r"), button("comment", "Comment", "c"),
    button("undo", "Undo my last", "u"));
}

function history(imputation) {
  if (!imputation.history.length) return el("p", { class: "muted", id: "history" }, "Not yet decided.");
  const lines = imputation.history.map((each) => el("li", {},
    el("strong", {}, plain(each.reviewer)), ` ${VERBS[each.kind]} `,
    el("span", { class: "muted" }, new Date(each.at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })),
    each.comment ? el("q", {}, plain(each.comment, 2000)) : null));
  return el("ul", { id: "history" }, ...lines);
}

function why(imputation, course, run) {
  const heading = el("h3", {}, "What carried this value");
  if (!course.explained) {
    return [heading, el("p", { class: "muted" }, "This run kept no reasons. Run it with --why (preset best) to see which visits carried each value.")];
  }
  const found = imputation.why;
  const rest = el("p", { class: "muted" }, `The other labs of this visit and the patient's attributes count as well. ${run.claim === "visits"
    ? "Some measured values were set aside to decide the release and are not used, so a near one may be missing here."
    : "Nothing is set aside: the nearest measured values of the patient are all used."}`);
  if (!found) return [heading, el("p", {}, "No visit with a value it could use."), rest];
  return [heading, own(found, run), others(found, run), rest];
}

function own(found, run) {
  if (!found.own.length) return el("p", {}, "No visit of this patient with a usable value.");
  return table(`This patient's own visits (${percent(found.own_weight)} of the weight)`,
    found.own.map((each) => [gap(each.gap_days), quantity(each.value, run.unit), each.weight]));
}

function others(found, run) {
  if (!found.others.length) return el("p", {}, "No similar visit of another patient.");
  const nearest = found.others.slice(0, 4);
  const rows = nearest.map((each) => [distance(each), quantity(each.value, run.unit), each.weight]);
  const rest = found.others.length - nearest.length;
  return el("div", {},
    table(`Similar visits of other patients (${percent(found.others_weight)} of the weight)`, rows),
    rest ? el("p", { class: "muted" }, `and ${count(rest, "further one")}`) : null);
}

const distance = (each) => `distance ${number(each.value_distance)}`;

function table(caption, rows) {
  return el("table", {}, el("caption", {}, caption), el("tbody", {}, ...rows.map(([what, value, weight]) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${Math.round(100 * Math.min(1, weight))}%`;
    return el("tr", {}, el("td", {}, what), el("td", { class: "n" }, value),
      el("td", { class: "track" }, bar), el("td", { class: "n" }, percent(weight)));
  })));
}
