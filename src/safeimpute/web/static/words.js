// Sentences about an imputation, used by the picture's hints and by the panel.

import { count, number, percent, quantity } from "./dom.js";

export function when(imputation) {
  const time = imputation.time;
  return Number.isNaN(Number(time)) ? time.replace(/[T ]00:00:00(\.0+)?$/, "") : `day ${number(Number(time))}`;
}

export function span(days) {
  const size = Math.abs(days);
  if (size >= 730) return `${number(Math.round(size / 36.525) / 10)} years`;
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
