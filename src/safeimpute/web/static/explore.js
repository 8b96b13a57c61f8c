// Sliders over the outcomes of other levels, computed when the run was made from the errors that decided it.

import { getJson, postJson } from "./api.js";
import { announce, byId, el, number, percent, plain, quantity, svg, ticks } from "./dom.js";

const HEIGHT = 240;
const EDGE = { left: 56, right: 20, top: 26, bottom: 42 };

export function startExplore(run) {
  const grid = run.exploration;
  const [level, tolerance] = [byId("level"), byId("tolerance")];
  Object.assign(level, { max: grid.levels.length - 1, value: grid.chosen_level });
  Object.assign(tolerance, { max: grid.tolerances.length - 1, value: grid.chosen_tolerance });
  byId("explore-about").textContent = `Judged by the ${number(grid.judged)} measured visits that decided this run: looking at `
    + "other levels uses the same errors again, so a level chosen after looking carries no promise of its own; the bound does, "
    + `with ${percent(grid.confidence)} confidence, whichever level is picked at this run's tolerance. `
    + `${number(grid.candidates)} of ${number(run.missing)} missing values are inside the claim's scope. `
    + (run.risk_is_probability ? "At other tolerances values are ranked by the expected size of their error; a new run learns "
      + "the risk anew, so its outcome will differ. " : "")
    + (grid.confident ? "The sliders follow the rule that holds on average; this run asked for confidence and released "
      + `${number(run.released)}.` : "");
  showGathering(run);
  const show = () => showOutcome(run);
  level.addEventListener("input", show);
  tolerance.addEventListener("input", show);
  byId("rerun").addEventListener("click", () => startRerun(grid));
  followRerun();
  return show;
}

function chosen(grid) {
  return { level: Number(byId("level").value), setting: grid.tolerances[Number(byId("tolerance").value)] };
}

function showOutcome(run) {
  const grid = run.exploration;
  const { level, setting } = chosen(grid);
  const isRun = level === grid.chosen_level && Number(byId("tolerance").value) === grid.chosen_tolerance;
  const mark = isRun ? " (this run)" : "";
  byId("level-shown").textContent = percent(grid.levels[level]) + mark;
  byId("tolerance-shown").textContent = setting.words + mark;
  byId("level").setAttribute("aria-valuetext", percent(grid.levels[level]));
  byId("tolerance").setAttribute("aria-valuetext", setting.words);
  byId("rerun").disabled = isRun;
  const released = setting.released[level];
  const error = setting.mae[level];
  const rows = [
    ["Would release", `${number(released)} of ${number(run.missing)} (${percent(released / Math.max(1, run.missing))})`, "would-release"],
    ["Unacceptable among them", released ? `about ${percent(setting.risky[level])}` : "–", "would-err"],
    ["With confidence at most", setting.bound.length && released
      ? `${number(setting.bound[level])} unacceptable (${percent(setting.bound[level] / released)})` : "–", "would-bound"],
    ["Mean absolute error", error === null ? "–" : quantity(error, run.unit), "would-mae"],
    ["Good values let through", percent(setting.power[level]), "would-power"],
  ];
  byId("outcome").replaceChildren(...rows.map(([name, value, id]) =>
    el("div", {}, el("dt", {}, name), el("dd", { id }, value))));
  drawCurve(grid, setting, level);
}

function drawCurve(grid, setting, level) {
  const holder = byId("explore-chart");
  const width = Math.max(280, holder.clientWidth);
  const most = Math.max(1, grid.candidates);
  const x = (share) => EDGE.left + (share / grid.levels.at(-1)) * (width - EDGE.left - EDGE.right);
  const y = (many) => HEIGHT - EDGE.bottom - (many / most) * (HEIGHT - EDGE.top - EDGE.bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
    "aria-label": "Values a release would let through, by FDR level" });
  for (const tick of ticks(0, most, 4)) {
    picture.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick), class: "grid" }),
      svg("text", { x: EDGE.left - 6, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, number(tick)));
  }
  for (const tick of ticks(0, grid.levels.at(-1), 5)) {
    picture.append(svg("text", { x: x(tick), y: HEIGHT - EDGE.bottom + 18, class: "tick", "text-anchor": "middle" }, percent(tick)));
  }
  const own = x(grid.levels[grid.chosen_level]);
  picture.append(
    svg("text", { x: 4, y: 14, class: "lab-name" }, "Values released"),
    svg("text", { x: (EDGE.left + width - EDGE.right) / 2, y: HEIGHT - 4, class: "lab-name", "text-anchor": "middle" }, "FDR level"),
    svg("line", { x1: own, x2: own, y1: EDGE.top, y2: HEIGHT - EDGE.bottom, class: "run-level" }),
    svg("polyline", { class: "curve", points: setting.released.map((many, at) => `${x(grid.levels[at])},${y(many)}`).join(" ") }),
    svg("circle", { class: "here", cx: x(grid.levels[level]), cy: y(setting.released[level]), r: 6 }));
  holder.replaceChildren(picture);
}

// Where unacceptable errors gather: each group under one cut-off for all values, and under its own.
function showGathering(run) {
  const cell = (group) => group.cells.find((each) => each.fdr === run.fdr);
  const share = (value) => (value === null ? "too few" : percent(value));
  const names = { value: "Imputed value", history: "Own measured values" };
  const rows = (run.gathering || []).flatMap((by) => [
    el("tr", {}, el("th", { colspan: 5 }, names[by.by] || plain(by.by))),
    ...by.groups.map((group) => {
      const { released, share: together, own_released: own, own_share: alone } = cell(group);
      const row = el("tr", {}, el("td", {}, plain(group.group)), el("td", { class: "n" }, number(released)),
        el("td", { class: "n" }, share(together)), el("td", { class: "n" }, number(own)), el("td", { class: "n" }, share(alone)));
      row.classList.toggle("above", together !== null && together > run.fdr);
      return row;
    })]);
  const head = ["Group", "Released, one cut-off", "Unacceptable", "Released, own cut-off", "Unacceptable"];
  byId("gathering").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", {}, name)))),
    el("tbody", {}, ...rows)));
}

async function startRerun(grid) {
  const { level, setting } = chosen(grid);
  try {
    showRerun(await postJson("api/rerun", { tolerance: setting.tolerance, fdr: grid.levels[level] }));
    announce("A new run has started.");
    followRerun();
  } catch (error) {
    byId("rerun-state").replaceChildren(el("p", { class: "flag" }, error.message));
  }
}

async function followRerun() {
  try {
    const status = await getJson("api/rerun");
    showRerun(status);
    if (status.state === "running") setTimeout(followRerun, 1000);
  } catch (error) {
    byId("rerun-state").replaceChildren(el("p", { class: "flag" }, error.message));
  }
}

function showRerun(status) {
  if (status.state === "none") return;
  const label = el("p", { class: "flag" }, status.label);
  const heading = { running: `Running into ${status.folder} …`, finished: `Finished: ${status.folder}`, failed: "The new run failed" };
  const parts = [el("h3", {}, heading[status.state]), label];
  if (status.state === "finished") parts.push(...finished(status));
  else parts.push(el("pre", {}, status.lines.join("\n")));
  byId("rerun-state").replaceChildren(...parts);
}

function finished(status) {
  return [
    el("p", {}, `At level ${percent(status.fdr)} and tolerance ${status.tolerance_in_words}: ${number(status.released)} of `
      + `${number(status.missing)} released, ${number(status.withheld)} withheld. ${status.promise}`),
    el("p", {}, el("a", { href: "rerun/report", target: "_blank", rel: "noopener" }, "Its report"), " · to review it: ",
      el("code", {}, status.serve)),
  ];
}
