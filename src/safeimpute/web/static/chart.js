// A patient's course as SVG: the target on top, other labs below on the same time axis.

import { byId, el, number, plain, quantity, svg, ticks } from "./dom.js";
import { decision, interval, when } from "./words.js";

const MAIN = 300;
const SMALL = 92;
const MOST_LABS = 12;
const EDGE = { left: 54, right: 18, top: 28, bottom: 12 };
const AXIS = 44;

export function drawCourse(course, run, choose) {
  const holder = byId("chart");
  const width = Math.max(280, holder.clientWidth);
  const across = timeScale(course, width);
  const [target, ...others] = course.labs;
  const shown = others.slice(0, MOST_LABS);
  const height = MAIN + shown.length * SMALL + AXIS;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": `Course of ${plain(run.target)} and other labs` });
  const guide = svg("line", { id: "guide", class: "guide", y1: EDGE.top, y2: height - AXIS, hidden: true });
  picture.append(guide);
  drawTarget(picture, course, run, target, across, width, choose);
  shown.forEach((lab, place) => drawLab(picture, course, lab, across, width, MAIN + place * SMALL));
  drawTimeAxis(picture, across, width, height - AXIS);
  holder.replaceChildren(picture);
  if (others.length > shown.length) {
    holder.append(el("p", { class: "muted" }, `${others.length - shown.length} less often measured labs are not drawn.`));
  }
}

export function markChosen(number) {
  for (const mark of byId("chart").querySelectorAll("[data-imputation]")) {
    mark.classList.toggle("chosen", Number(mark.dataset.imputation) === number);
  }
  const chosen = byId("chart").querySelector(".mark.chosen");
  const guide = byId("guide");
  guide.toggleAttribute("hidden", !chosen);
  if (chosen) for (const name of ["x1", "x2"]) guide.setAttribute(name, chosen.dataset.x);
}

function timeScale(course, width) {
  const last = Math.max(1, ...course.days);
  const years = last > 900;
  const start = EDGE.left + 8;
  const end = width - EDGE.right - 8;
  return { last, years, at: (day) => start + (day / last) * (end - start) };
}

function valueScale(values, top, bottom) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  const [from, to] = [low - room, high + room];
  return { from, to, at: (value) => bottom - ((value - from) / (to - from)) * (bottom - top) };
}

function drawFrame(picture, scale, name, unit, width, top, about) {
  picture.append(svg("text", { x: 4, y: top - 12, class: "lab-name" }, unit ? `${plain(name, 32)} (${plain(unit, 16)})` : plain(name, 32)));
  for (const tick of ticks(scale.from, scale.to, about)) {
    const y = scale.at(tick);
    picture.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: EDGE.left - 6, y: y + 4, class: "tick", "text-anchor": "end" }, number(tick)));
  }
}

function drawMeasured(picture, course, lab, scale, across, radius) {
  const points = lab.values.map((value, visit) => ({ value, visit })).filter(({ value }) => value !== null);
  const path = points.map(({ value, visit }) => `${across.at(course.days[visit])},${scale.at(value)}`).join(" ");
  picture.append(svg("polyline", { points: path, class: "measured-line" }));
  for (const { value, visit } of points) {
    picture.append(svg("circle", { cx: across.at(course.days[visit]), cy: scale.at(value), r: radius, class: "measured",
      "data-tip": `${plain(lab.name, 32)} ${quantity(value, lab.unit)}, measured ${when({ time: course.times[visit] })}` }));
  }
}

function drawTarget(picture, course, run, target, across, width, choose) {
  const [top, bottom] = [EDGE.top, MAIN - EDGE.bottom];
  const measured = target.values.filter((value) => value !== null);
  const scale = valueScale([...measured, ...reach(course.imputations)], top, bottom);
  drawFrame(picture, scale, target.name, target.unit, width, top, 5);
  drawMeasured(picture, course, target, scale, across, 4.5);
  for (const imputation of course.imputations) picture.append(mark(imputation, run, scale, across, top, bottom, choose));
}

// Withheld intervals can be far wider than anything else; they are cut at the edge rather than flatten the rest.
function reach(imputations) {
  const far = imputations.flatMap((each) => (each.released ? [each.value, each.lower, each.upper] : [each.value]));
  return far.filter((value) => value !== null);
}

function mark(imputation, run, scale, across, top, bottom, choose) {
  const x = across.at(imputation.day);
  const y = scale.at(imputation.value);
  const kind = imputation.released ? "released" : "withheld";
  const inside = (value) => Math.min(bottom, Math.max(top, scale.at(value)));
  const [high, low] = imputation.lower === null ? [top, bottom] : [inside(imputation.upper), inside(imputation.lower)];
  const label = `${decision(imputation)}, ${when(imputation)}: ${quantity(imputation.value, run.unit)}, interval `
    + `${interval(imputation, run.unit)}, ${imputation.review}`;
  const group = svg("g", { class: `mark ${kind} ${imputation.review}`, tabindex: 0, role: "button", "aria-label": label,
    "data-imputation": imputation.imputation, "data-kind": kind, "data-x": x },
    svg("line", { x1: x, x2: x, y1: high, y2: low, class: `whisker ${kind}` }),
    svg("circle", { cx: x, cy: y, r: 13, class: "halo" }),
    imputation.released
      ? svg("path", { d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z`, class: "released" })
      : svg("circle", { cx: x, cy: y, r: 6, class: "withheld" }),
    verdict(imputation.review, x, y));
  group.addEventListener("click", () => choose(imputation.imputation));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(imputation.imputation);
    }
  });
  return group;
}

function verdict(review, x, y) {
  if (review === "accepted") return svg("path", { d: `M${x - 3.5} ${y}l2.5 3l4.5 -6`, class: "verdict" });
  if (review === "rejected") return svg("path", { d: `M${x - 3} ${y - 3}l6 6M${x + 3} ${y - 3}l-6 6`, class: "verdict" });
  return null;
}

function drawLab(picture, course, lab, across, width, top) {
  const [from, to] = [top + EDGE.top, top + SMALL - 8];
  const scale = valueScale(lab.values.filter((value) => value !== null), from, to);
  drawFrame(picture, scale, lab.name, lab.unit, width, from, 3);
  drawMeasured(picture, course, lab, scale, across, 3);
}

function drawTimeAxis(picture, across, width, y) {
  const unit = across.years ? 365.25 : 1;
  picture.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y, class: "axis" }));
  for (const tick of ticks(0, across.last / unit, width < 500 ? 4 : 8)) {
    picture.append(svg("text", { x: across.at(tick * unit), y: y + 16, class: "tick", "text-anchor": "middle" }, number(tick)));
  }
  picture.append(svg("text", { x: (EDGE.left + width - EDGE.right) / 2, y: y + 36, class: "lab-name", "text-anchor": "middle" },
    `${across.years ? "Years" : "Days"} since the first visit`));
}
