// The page as a whole: what is open, what a key or button does, and keeping every part in step.

import { getJson, postJson } from "./api.js";
import { drawCourse, markChosen } from "./chart.js";
import { showDetail } from "./detail.js";
import { announce, byId, count, el, number, percent, plain } from "./dom.js";
import { startExplore } from "./explore.js";
import { startKeys } from "./keys.js";
import { patientIn, showOpen, startLabs, stepLab } from "./labs.js";
import { markOpen, neighbour, refreshRow, startList } from "./list.js";
import { reviewer, startReviewer } from "./reviewer.js";
import { startTips } from "./tips.js";
import { byNeed } from "./words.js";

const page = { run: null, course: null, chosen: null, showExplore: () => {}, turn: Promise.resolve() };

const chosen = () => page.course?.imputations.find((each) => each.imputation === page.chosen);

// Acts wait for one another, so that fast keys never overtake what they follow; errors are said aloud.
function turn(act) {
  page.turn = page.turn.then(act).catch((error) => announce(error.message));
  return page.turn;
}

async function open(patient, wanted = null) {
  page.course = await getJson(`api/patients/${patient}`);
  const { imputations, subject } = page.course;
  byId("nobody").hidden = true;
  byId("course").hidden = false;
  document.body.classList.add("showing-patient");
  byId("subject").textContent = `Patient ${plain(subject)}`;
  const released = imputations.filter((each) => each.released).length;
  byId("counts").textContent = `${count(page.course.days.length, "visit")}, ${imputations.length} imputed: `
    + `${released} released, ${imputations.length - released} withheld`;
  markOpen(patient);
  history.replaceState(null, "", `#patient=${patient}`);
  drawCourse(page.course, page.run, choose);
  choose(wanted ?? firstToLookAt(imputations));
}

// The value most in need of a look; else the first released, else the first.
function firstToLookAt(imputations) {
  const first = byNeed(imputations)[0] ?? imputations.find((each) => each.released) ?? imputations[0];
  return first.imputation;
}

function choose(imputation) {
  page.chosen = imputation;
  markChosen(chosen());
  showDetail(chosen(), page.course, page.run);
}

// A decision is about the value that was shown when the key was pressed, or about none.
function act(kind) {
  const meant = page.chosen;
  return turn(() => (kind === "undo" ? undo() : decide(kind, meant)));
}

async function decide(kind, meant) {
  if (meant === null) return announce("Choose a patient first.");
  if (meant !== page.chosen) return announce("The page had moved on, so nothing was decided. Press again.");
  const name = await reviewer();
  if (!name) return announce("Nothing was decided: a decision needs a name.");
  const comment = kind === "comment" ? await askComment() : "";
  if (comment === null) return null;
  const done = await postJson("api/decisions", { imputation: meant, kind, comment, reviewer: name });
  await decided(done, meant);
  return announce({ accept: "Accepted.", reject: "Rejected.", comment: "Comment kept." }[kind]);
}

async function undo() {
  const name = await reviewer();
  if (!name) return;
  const done = await postJson("api/undo", { reviewer: name });
  await decided(done, done.imputation);
  announce("Your last decision was taken back.");
}

async function decided(done, imputation) {
  showProgress(done.progress);
  await open(done.patient, imputation);
  refreshRow(page.course);
}

function askComment() {
  const [box, text] = [byId("comment-box"), byId("comment")];
  text.value = "";
  box.returnValue = "";
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => {
      const said = text.value.trim();
      resolve(box.returnValue === "save" && said ? said : null);
    }, { once: true });
  });
}

async function step(by) {
  const imputations = page.course?.imputations ?? [];
  const next = imputations[imputations.indexOf(chosen()) + by];
  if (next) choose(next.imputation);
  else if (await stepPatient(by)) choose(page.course.imputations.at(by > 0 ? 0 : -1).imputation);
}

async function stepPatient(by) {
  const patient = await neighbour(by);
  if (patient === null) announce(by > 0 ? "That was the last patient." : "That was the first patient.");
  else await open(patient);
  return patient !== null;
}

function view(name) {
  for (const each of ["review", "explore"]) {
    byId(`view-${each}`).hidden = each !== name;
    byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
  }
  if (name === "explore") page.showExplore();
  else if (page.course) drawAgain();
}

function drawAgain() {
  drawCourse(page.course, page.run, choose);
  markChosen(chosen());
}

function showProgress({ accepted, rejected, open: waiting }) {
  byId("progress").textContent = `${number(accepted)} accepted, ${number(rejected)} rejected, `
    + `${number(waiting)} released values not yet decided`;
  showOpen(waiting);
}

function showRun(run) {
  const target = plain(run.title);
  document.title = `Review: ${target}`;
  byId("title").textContent = target;
  byId("answer").textContent = `${number(run.released)} of ${number(run.missing)} missing values released `
    + `(${percent(run.released / Math.max(1, run.missing))})`;
  showPromise(run);
  byId("run-name").textContent = `Run ${plain(run.name)}, column ${plain(run.target)}`;
  byId("export-note").textContent = run.export_note;
  byId("value-unit").textContent = run.unit ? ` (${plain(run.unit, 16)})` : "";
  for (const name of ["risk", "value"]) {
    const [low, high] = run[`${name}_range`];
    document.querySelector(`[name=${name}_from]`).placeholder = number(low);
    document.querySelector(`[name=${name}_to]`).placeholder = number(high);
  }
  showProgress(run.progress);
  showNext(run);
}

// The promise in a line; the whole of it, its assumption and the bound, unfold below.
function showPromise(run) {
  const short = byId("promise-short");
  const sure = run.promise_kind === "confident" ? `with ${percent(run.confidence)} confidence` : "on average";
  short.textContent = run.guaranteed
    ? `Promised: ${sure} at most ${percent(run.fdr)} of them ${run.fault}`
    : "No guarantee";
  short.classList.toggle("flag", !run.guaranteed);
  byId("promise").textContent = run.promise || run.no_promise;
  byId("assumption").textContent = run.guaranteed ? `${run.assumption} ${run.limits}` : "";
  byId("bound").textContent = run.bound ? [run.bound.headline, run.bound.words].filter(Boolean).join(" ") : "";
}

// Where nothing was released: which setting would.
function showNext(run) {
  byId("next").hidden = run.released > 0 || !run.missing;
  byId("next").replaceChildren(el("h2", {}, "Nothing was released"), el("p", {}, run.next_step || run.no_promise));
}

function listen() {
  for (const name of ["review", "explore"]) {
    byId(`tab-${name}`).addEventListener("click", () => view(name));
    byId(`tab-${name}`).addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      const other = name === "review" ? "explore" : "review";
      view(other);
      byId(`tab-${other}`).focus();
    });
  }
  for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => act(button.dataset.act));
  byId("value-back").addEventListener("click", () => turn(() => step(-1)));
  byId("value-on").addEventListener("click", () => turn(() => step(1)));
  byId("to-list").addEventListener("click", () => document.body.classList.remove("showing-patient"));
  document.addEventListener("click", closeSheets);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    view(byId("view-explore").hidden ? "review" : "explore");
  });
  startTips(page.run, (wanted) => page.course.imputations.find((each) => each.imputation === wanted));
  startKeys([
    [["j"], "next imputed value, then the next patient", () => turn(() => step(1))],
    [["k"], "previous imputed value", () => turn(() => step(-1))],
    [["n"], "next patient", () => turn(() => stepPatient(1))],
    [["p"], "previous patient", () => turn(() => stepPatient(-1))],
    [["a"], "accept", () => act("accept")],
    [["r"], "reject", () => act("reject")],
    [["c"], "comment", () => act("comment")],
    [["u"], "undo your last decision", () => act("undo")],
    [["/"], "find a patient", () => { view("review"); byId("search").focus(); }],
    [["e"], "other levels, and back", () => view(byId("view-explore").hidden ? "explore" : "review")],
    [["[", "]"], "previous, next lab of several", (key) => stepLab(key === "]" ? 1 : -1)],
    [["t"], "dark or light", () => byId("theme").click()],
    [["?"], "these keys", () => byId("help").showModal()],
    [["Esc"], "leave a field, close a window", closeSheets],
  ]);
}

// What unfolded over the page folds again at the next click elsewhere.
function closeSheets(event = null) {
  for (const sheet of document.querySelectorAll("details.drop[open]")) {
    if (!event?.target || !sheet.contains(event.target)) sheet.open = false;
  }
}

async function start() {
  const listed = startList((patient) => turn(() => open(patient)));
  page.run = await getJson("api/run");
  showRun(page.run);
  startReviewer(page.run.reviewer);
  page.showExplore = startExplore(page.run);
  listen();
  await listed;
  startLabs(page.run, () => page.course?.subject ?? null);
  const kept = await patientIn(location.hash);
  const narrow = matchMedia("(max-width: 720px)").matches;
  byId("legend").open = !narrow;
  if (kept !== null) await open(kept);
  else if (!narrow) await stepPatient(1);
}

turn(start).finally(() => document.body.removeAttribute("aria-busy"));
