// A patient's course as SVG: the target in its own picture, other labs below it on the same time axis.

import { byId, el, number, plain, quantity, svg, ticks } from "./dom.js";
import { decision, interval, when } from "./words.js";

const MAIN = 300;
const SMALL = 92;
const MOST_LABS = 12;
const EDGE = { left: 54, right: 18, top: 28, bottom: 12 };
const AXIS = 44;
const SAME_DAY = 0.01;

export function drawCourse(course, run, choose) {
  const holder = byId("chart");
  const width = Math.max(280, holder.clientWidth);
  const across = timeScale(course, width);
  holder.replaceChildren(targetPicture(course, run, across, width, choose));
  drawOthers(course, across, width);
  showAside(course);
}

function targetPicture(course, run, across, width, choose) {
  const main = innerHeight < 900 && width < 420 ? 230 : MAIN;
  const height = main + AXIS;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": `Course of ${plain(course.labs[0].title)}` });
  picture.append(svg("rect", { id: "band", class: "band", x: EDGE.left, width: width - EDGE.left - EDGE.right, hidden: true }),
    guide(main));
  drawTarget(picture, course, run, across, width, main, choose);
  drawTimeAxis(picture, across, width, main);
  return picture;
}

function drawOthers(course, across, width) {
  const others = course.labs.slice(1);
  const shown = others.slice(0, MOST_LABS);
  byId("others").hidden = !shown.length;
  const height = shown.length * SMALL + AXIS;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": "Course of the other labs" }, guide(height - AXIS));
  shown.forEach((lab, place) => drawLab(picture, course, lab, across, width, place * SMALL));
  drawTimeAxis(picture, across, width, height - AXIS);
  const more = others.length - shown.length;
  byId("other-labs").replaceChildren(picture,
    ...(more ? [el("p", { class: "muted" }, `${more} less often measured labs are not drawn.`)] : []));
}

const guide = (bottom) => svg("line", { class: "guide", y1: EDGE.top, y2: bottom, hidden: true });

function showAside(course) {
  const reasons = [...new Set(course.set_aside.filter((why) => why !== null))];
  byId("legend-aside").hidden = !reasons.length;
  byId("legend-aside").querySelector("span").textContent = reasons.map((why) => `measured, set aside ${why}`).join("; ");
}

// The chosen value: its mark, the band of true values within the tolerance, and the measured values it rests on.
export function markChosen(imputation) {
  const chart = byId("chart");
  for (const mark of chart.querySelectorAll("[data-imputation]")) {
    mark.classList.toggle("chosen", Number(mark.dataset.imputation) === imputation.imputation);
  }
  const chosen = chart.querySelector(".mark.chosen");
  for (const line of document.querySelectorAll("svg .guide")) {
    line.toggleAttribute("hidden", !chosen);
    if (chosen) for (const name of ["x1", "x2"]) line.setAttribute(name, chosen.dataset.x);
  }
  const band = byId("band");
  const known = chosen && chosen.dataset.bandTop !== undefined;
  band.toggleAttribute("hidden", !known);
  if (known) {
    band.setAttribute("y", chosen.dataset.bandTop);
    band.setAttribute("height", chosen.dataset.bandBottom - chosen.dataset.bandTop);
  }
  const used = (imputation.why?.own ?? []).map((each) => imputation.day + each.gap_days);
  for (const ring of chart.querySelectorAll(".used")) {
    ring.toggleAttribute("hidden", !used.some((day) => Math.abs(day - ring.dataset.day) < SAME_DAY));
  }
}

function timeScale(course, width) {
  const last = Math.max(1, ...course.days);
  const first = Number.isNaN(Number(course.times[0])) ? Date.parse(course.times[0]) : NaN;
  const [start, end] = [EDGE.left + 8, width - EDGE.right - 8];
  return { last, years: last > 900, first, at: (day) => start + (day / last) * (end - start) };
}

function valueScale(values, top, bottom) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  const [from, to] = [low - room, high + room];
  const at = (value) => bottom - ((value - from) / (to - from)) * (bottom - top);
  return { from, to, at, inside: (value) => Math.min(bottom, Math.max(top, at(value))) };
}

function drawFrame(picture, scale, lab, width, top, about) {
  drawUsual(picture, scale, lab.usual, width);
  const name = plain(lab.title, 32);
  picture.append(svg("text", { x: 4, y: top - 12, class: "lab-name" }, lab.unit ? `${name} (${plain(lab.unit, 16)})` : name));
  for (const tick of ticks(scale.from, scale.to, about)) {
    const y = scale.at(tick);
    picture.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: EDGE.left - 6, y: y + 4, class: "tick", "text-anchor": "end" }, number(tick)));
  }
  if (lab.usual) {
    picture.append(svg("text", { x: width - EDGE.right, y: top - 12, class: "tick haloed", "text-anchor": "end" },
      `usual in adults ${number(lab.usual.low)} to ${number(lab.usual.high)}`));
  }
}

function drawUsual(picture, scale, usual, width) {
  if (!usual || usual.high < scale.from || usual.low > scale.to) return;
  const [high, low] = [scale.inside(usual.high), scale.inside(usual.low)];
  picture.append(svg("rect", { x: EDGE.left, width: width - EDGE.left - EDGE.right, y: high, height: low - high, class: "usual",
    "data-tip": `Usual in adults: ${number(usual.low)} to ${number(usual.high)} (${usual.source}${usual.verified ? "" : "; not verified"})` }));
}

// Values at which a clinician decides.
function drawLimits(picture, scale, lab, width) {
  const shown = lab.limits.filter(({ value }) => value >= scale.from && value <= scale.to);
  for (const [place, { value, name }] of shown.entries()) {
    const y = scale.at(value);
    const crowded = place + 1 < shown.length && y - scale.at(shown[place + 1].value) < 18; // its name stands below it then
    picture.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y, class: "limit" }),
      svg("text", { x: EDGE.left + 3, y: crowded ? y + 13 : y - 4, class: "limit-name" }, `${name ? `${name} from ` : ""}${number(value)}`));
  }
}

function drawMeasured(picture, course, lab, scale, across, radius, aside = null) {
  const points = lab.values.map((value, visit) => ({ value, visit })).filter(({ value }) => value !== null);
  const path = points.map(({ value, visit }) => `${across.at(course.days[visit])},${scale.at(value)}`).join(" ");
  picture.append(svg("polyline", { points: path, class: "measured-line" }));
  for (const { value, visit } of points) {
    const [x, y, why] = [across.at(course.days[visit]), scale.at(value), aside?.[visit] ?? null];
    const tip = `${plain(lab.title, 32)} ${quantity(value, lab.unit)}, measured ${when({ time: course.times[visit] })}`
      + `${why === null ? "" : `; set aside ${why}, not used`}`;
    picture.append(why === null
      ? svg("circle", { cx: x, cy: y, r: radius, class: "measured", "data-tip": tip })
      : svg("rect", { x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius, class: "aside", "data-tip": tip }));
    if (aside && why === null) picture.append(svg("circle", { cx: x, cy: y, r: radius + 4, class: "used", "data-day": course.days[visit], hidden: true }));
  }
}

function drawTarget(picture, course, run, across, width, main, choose) {
  const [target, top, bottom] = [course.labs[0], EDGE.top, main - EDGE.bottom];
  const measured = target.values.filter((value) => value !== null);
  const scale = valueScale([...measured, ...reach(course.imputations)], top, bottom);
  drawFrame(picture, scale, target, width, top, 5);
  drawLimits(picture, scale, target, width);
  drawMeasured(picture, course, target, scale, across, 4.5, course.set_aside);
  for (const imputation of course.imputations) picture.append(mark(imputation, run, scale, across, top, bottom, choose));
}

// Withheld intervals can be far wider than anything else; they are cut at the edge rather than flatten the rest.
function reach(imputations) {
  const far = imputations.flatMap((each) => [each.value, ...(each.acceptable ?? []), ...(each.released ? [each.lower, each.upper] : [])]);
  return far.filter((value) => value !== null);
}

function mark(imputation, run, scale, across, top, bottom, choose) {
  const x = across.at(imputation.day);
  const y = scale.at(imputation.value);
  const kind = imputation.released ? "released" : "withheld";
  const [high, low] = imputation.lower === null ? [top, bottom] : [scale.inside(imputation.upper), scale.inside(imputation.lower)];
  const [bandTop, bandBottom] = imputation.acceptable ? imputation.acceptable.map(scale.inside).reverse() : [];
  const label = `${decision(imputation)}, ${when(imputation)}: ${quantity(imputation.value, run.unit)}, interval `
    + `${interval(imputation, run.unit)}, ${imputation.review}`;
  const group = svg("g", { class: `mark ${kind} ${imputation.review}`, tabindex: 0, role: "button", "aria-label": label,
    "data-imputation": imputation.imputation, "data-kind": kind, "data-x": x, "data-band-top": bandTop, "data-band-bottom": bandBottom },
    svg("line", { x1: x, x2: x, y1: high, y2: low, class: `whisker ${kind}` }),
    svg("circle", { cx: x, cy: y, r: 13, class: "touch" }),
    svg("circle", { cx: x, cy: y, r: 13, class: "halo" }),
    imputation.released
      ? svg("path", { d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z`, class: "released" })
      : svg("circle", { cx: x, cy: y, r: 6, class: "withheld" }),
    verdict(imputation.review, x, y));
  group.addEventListener("click", (event) => choose(Number(nearest(group, event).dataset.imputation)));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(imputation.imputation);
    }
  });
  return group;
}

// Where marks cover one another, the one whose middle is nearest to the finger is meant.
function nearest(group, { clientX, clientY }) {
  const away = (mark) => {
    const { left, top, width, height } = mark.querySelector(".halo").getBoundingClientRect();
    return Math.hypot(clientX - left - width / 2, clientY - top - height / 2);
  };
  return [...group.parentElement.querySelectorAll("g.mark")].reduce((one, other) => (away(other) < away(one) ? other : one), group);
}

function verdict(review, x, y) {
  if (review === "accepted") return svg("path", { d: `M${x - 3.5} ${y}l2.5 3l4.5 -6`, class: "verdict" });
  if (review === "rejected") return svg("path", { d: `M${x - 3} ${y - 3}l6 6M${x + 3} ${y - 3}l-6 6`, class: "verdict" });
  return null;
}

function drawLab(picture, course, lab, across, width, top) {
  const [from, to] = [top + EDGE.top, top + SMALL - 8];
  const scale = valueScale(lab.values.filter((value) => value !== null), from, to);
  drawFrame(picture, scale, lab, width, from, 3);
  drawMeasured(picture, course, lab, scale, across, 3);
}

function drawTimeAxis(picture, across, width, y) {
  const unit = across.years ? 365.25 : 1;
  picture.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y, class: "axis" }));
  for (const tick of ticks(0, across.last / unit, width < 500 ? 4 : 8)) {
    picture.append(svg("text", { x: across.at(tick * unit), y: y + 16, class: "tick", "text-anchor": "middle" }, number(tick)));
  }
  const since = Number.isNaN(across.first) ? "" : ` on ${new Date(across.first).toISOString().slice(0, 10)}`;
  picture.append(svg("text", { x: (EDGE.left + width - EDGE.right) / 2, y: y + 36, class: "lab-name", "text-anchor": "middle" },
    `${across.years ? "Years" : "Days"} since the first visit${since}`));
}
