// The panel about one imputed value: how large, how sure, why, and what reviewers said.

import { byId, count, el, number, percent, plain, quantity } from "./dom.js";
import { riskScale } from "./risk.js";
import { because, decision, gap, interval, meaning, when } from "./words.js";

const VERBS = { accept: "accepted", reject: "rejected", comment: "commented" };

export function showDetail(imputation, course, run) {
  const place = course.imputations.indexOf(imputation) + 1;
  fill("told", [
    el("p", { class: "muted place" }, `Value ${place} of ${course.imputations.length} · ${when(imputation)}`),
    el("p", { class: "value" }, quantity(imputation.value, run.unit)),
    el("p", { class: `state ${imputation.released ? "released" : "withheld"}` }, decision(imputation),
      verdict(imputation)),
    imputation.released ? null : el("p", { class: "muted" }, meaning(imputation, run)),
    el("p", { id: "because" }, because(imputation, course, run)),
    riskScale(imputation, run),
    odds(imputation, run),
  ]);
  fill("told-more", [facts(imputation, course, run), history(imputation), ...why(imputation, course, run)]);
  const accept = byId("acts").querySelector("[data-act=accept]");
  accept.disabled = !imputation.released;
  accept.title = imputation.released ? "" : "Withheld: nothing is promised about this value";
  byId("detail").hidden = false;
}

function fill(id, parts) {
  byId(id).replaceChildren(...parts.filter((part) => part !== null));
}

function verdict(imputation) {
  return imputation.review === "undecided" ? null : el("span", { class: `verdict-word ${imputation.review}` }, imputation.review);
}

// A chance as clinicians read it.
function odds(imputation, run) {
  if (!run.risk_is_probability || imputation.risk === null) return null;
  const of100 = Math.round(100 * imputation.risk);
  const over = imputation.released && imputation.risk > run.fdr;
  return el("p", { class: "muted" }, `About ${of100} in 100 values of this risk are ${run.fault}.`
    + (over ? ` It is released because the level of ${percent(run.fdr)} speaks of all released values together: safer ones make up for it.` : ""));
}

function facts(imputation, course, run) {
  const { limits, limits_source: source, usual } = course.labs[0];
  const rows = [[`${percent(run.interval)} interval`, interval(imputation, run.unit)]];
  if (imputation.band) {
    rows.push(["Band", imputation.band]);
    const chances = imputation.bands.filter((each) => each.chance !== null);
    if (chances.length) rows.push(["Chance of each band", chances.map((each) => `${each.band}: ${percent(each.chance)}`).join(", ")]);
  }
  if (imputation.acceptable) {
    const [low, high] = imputation.acceptable;
    rows.push(["Within tolerance if truly", `${number(low)} to ${quantity(high, run.unit)}`]);
  }
  if (limits.length) rows.push([`Limits (${source})`, limits.map((each) => `${number(each.value)} ${each.name}`.trim()).join(", ")]);
  if (usual) rows.push([`Usual in adults${usual.verified ? "" : " (not verified)"}`, `${number(usual.low)} to ${quantity(usual.high, run.unit)}`]);
  if (run.claim === "visits") rows.push(["p-value", imputation.p_value === null ? "none: not tested" : number(imputation.p_value)]);
  return el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
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
  if (!course.explained) {
    return [el("p", { class: "muted" }, "This run kept no reasons. Run it with --why (preset best) to see which visits carried each value.")];
  }
  const found = imputation.why;
  const parts = found ? [own(found, run), others(found, run)] : [el("p", {}, "No visit with a value it could use.")];
  const rest = el("p", { class: "muted" }, `The other labs of this visit and the patient's attributes count as well. ${run.claim === "visits"
    ? "Some measured values were set aside to check the promise: they are drawn as squares and were not used."
    : "Nothing is set aside: the nearest measured values of the patient are all used."}`);
  return [el("details", { class: "why", open: byId("told-more").querySelector("details.why")?.open },
    el("summary", {}, "What carried this value"), ...parts, rest)];
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
