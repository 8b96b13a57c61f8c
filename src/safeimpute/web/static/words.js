// Sentences about an imputation, used by the picture's hints and by the panel.

import { count, number, percent, quantity } from "./dom.js";

export function when(imputation) {
  const time = imputation.time;
  return Number.isNaN(Number(time)) ? time.replace(/[T ]00:00:00(\.0+)?$/, "") : `day ${number(Number(time))}`;
}

// Released values nobody decided about, as in the list: those near a measured one first, then by need.
export function byNeed(imputations) {
  return imputations.filter((each) => each.released && each.review === "undecided")
    .sort((one, other) => other.near - one.near || other.need - one.need);
}

export function span(days) {
  const size = Math.abs(days);
  if (size >= 730) return `${number(Math.round(size / 36.525) / 10)} years`;
  if (size >= 60) return count(Math.round(size / 30.44), "month");
  return size < 1 ? "the same day" : count(Math.round(size), "day");
}

export const gap = (days) => (Math.abs(days) < 1 ? span(days) : `${span(days)} ${days < 0 ? "before" : "after"}`);

export function decision(imputation) {
  return imputation.released ? "Released" : `Withheld: ${imputation.reason}`;
}

// What a reason for withholding means.
export const meaning = (imputation, run) => {
  const words = run.reason_words[imputation.reason];
  return words ? `${words[0].toUpperCase()}${words.slice(1)}.` : "";
};

export const risk = (value) => (value === null ? "–" : String(Number(value.toPrecision(2))));

// Without bounds where too little calibration weight is left to say how far off a value may be.
export function interval(imputation, unit) {
  if (imputation.lower === null) return "without bounds";
  return `${number(imputation.lower)} to ${quantity(imputation.upper, unit)}`;
}

export function carriers(why, unit) {
  if (!why) return [];
  const own = why.own.slice(0, 3).map((each) =>
    `own visit ${gap(each.gap_days)}: ${quantity(each.value, unit)} (${percent(each.weight)})`);
  const others = why.others.length
    ? [`${count(why.others.length, "similar visit")} of other patients (${percent(why.others_weight)})`]
    : [];
  return [...own, ...others];
}

// Why a value is what it is, in one sentence.
export function because(imputation, course, run) {
  const found = imputation.why;
  if (!course.explained) return compared(imputation, course, run);
  if (!found || !(found.own.length || found.others.length)) {
    return "No measured value carries it: it rests on the other labs of this visit and on what is known of the patient.";
  }
  const others = found.others.length ? `${count(found.others.length, "similar visit")} of other patients` : "";
  if (!found.own.length) return `This patient has no measured value to lean on: it rests on ${others}.`;
  const nearest = found.own.reduce((one, other) => (Math.abs(other.gap_days) < Math.abs(one.gap_days) ? other : one));
  const share = `${found.own_weight >= 0.5 ? "mainly" : "in part"} on this patient's own measured values `
    + `(${percent(found.own_weight)} of the weight; nearest ${quantity(nearest.value, run.unit)}, ${gap(nearest.gap_days)})`;
  return `Rests ${share}${others ? ` and on ${others}` : ""}.`;
}

// Where a run kept no reasons: what it can be compared with.
function compared(imputation, course, run) {
  const nearest = nearestMeasured(imputation, course);
  if (!nearest) return "This patient has no measured value to compare it with.";
  return `The nearest measured value of this patient is ${quantity(nearest.value, run.unit)}, ${gap(nearest.gap_days)}.`;
}

function nearestMeasured(imputation, course) {
  const own = course.labs[0].values.map((value, visit) => ({ value, gap_days: course.days[visit] - imputation.day, visit }))
    .filter(({ value, visit }) => value !== null && course.set_aside[visit] === null);
  return own.sort((one, other) => Math.abs(one.gap_days) - Math.abs(other.gap_days))[0];
}
