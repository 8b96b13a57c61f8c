// A value's risk on a scale, with the cut-off up to which values are released.

import { el, svg } from "./dom.js";

const WIDTH = 308;
const HEIGHT = 56;
const EDGE = 8;
const TRACK = { y: 24, height: 10 };

export function riskScale(imputation, run) {
  if (imputation.risk === null) return el("p", { class: "muted" }, "No risk: there is nothing to judge it by.");
  const most = scaleEnd(run, imputation);
  const x = (risk) => EDGE + (Math.min(risk, most) / most) * (WIDTH - 2 * EDGE);
  const { cutoff, risk } = imputation;
  const [own, limit] = riskWords(risk, cutoff, run);
  const words = `Risk ${own}${cutoff === null ? "" : `, cut-off ${limit}`}`;
  const parts = [
    svg("rect", { x: EDGE, y: TRACK.y, width: WIDTH - 2 * EDGE, height: TRACK.height, rx: 3, class: "scale-above" }),
    cutoff === null ? null : svg("rect", { x: EDGE, y: TRACK.y, width: x(cutoff) - EDGE, height: TRACK.height, rx: 3, class: "scale-below" }),
    cutoff === null ? null : svg("line", { x1: x(cutoff), x2: x(cutoff), y1: TRACK.y - 5, y2: TRACK.y + TRACK.height + 5, class: "scale-cutoff" }),
    cutoff === null ? null : label(x(cutoff), TRACK.y + TRACK.height + 18, `cut-off ${limit}`, "tick"),
    marker(x(risk), imputation.released),
    label(x(risk), TRACK.y - 10, `risk ${own}`, "lab-name"),
  ];
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "risk-scale", role: "img", "aria-label": words }, ...parts);
}

// Round enough to read, fine enough that a risk and a cut-off that differ are not told alike.
export function riskWords(risk, cutoff, run) {
  const as = (digits) => (value) => (run.risk_is_probability
    ? `${(100 * value).toFixed(digits)}\u00a0%` : String(Number(value.toPrecision(2 + digits))));
  if (cutoff === null) return [as(0)(risk), "none"];
  const digits = [0, 1, 2, 3].find((each) => as(each)(risk) !== as(each)(cutoff)) ?? 1;
  return [as(digits)(risk), as(digits)(cutoff)];
}

function scaleEnd(run, imputation) {
  const most = Math.max(run.risk_range[1] ?? 0, imputation.cutoff ?? 0, imputation.risk);
  if (!run.risk_is_probability) return most || 1;
  return Math.min(1, Math.ceil(most * 10) / 10) || 1;
}

function marker(x, released) {
  const y = TRACK.y + TRACK.height / 2;
  return released
    ? svg("path", { d: `M${x} ${y - 8}L${x + 8} ${y}L${x} ${y + 8}L${x - 8} ${y}Z`, class: "released" })
    : svg("circle", { cx: x, cy: y, r: 6.5, class: "withheld" });
}

function label(x, y, words, kind) {
  const anchor = x < 60 ? "start" : x > WIDTH - 60 ? "end" : "middle";
  const at = anchor === "start" ? EDGE : anchor === "end" ? WIDTH - EDGE : x;
  return svg("text", { x: at, y, class: kind, "text-anchor": anchor }, words);
}
