// Who decides: asked at the first decision, remembered by this browser, changed at the top of the page.

import { byId, el, plain } from "./dom.js";

const KEY = "reviewer";
const who = { name: "", fixed: false };

// `given` is the name an own address carries; nobody else can be named then.
export function startReviewer(given) {
  who.fixed = Boolean(given);
  who.name = given || localStorage.getItem(KEY) || "";
  show();
  byId("reviewer").addEventListener("click", () => askName());
  byId("who").addEventListener("submit", keepName);
}

function show() {
  byId("reviewer").replaceChildren(...(who.name
    ? [el("span", { class: "spare" }, "Reviewing as "), plain(who.name, 24)] : ["Your name …"]));
  byId("reviewer").disabled = who.fixed;
}

// The reviewer's name, asked for where there is none yet; empty where it was not given.
export const reviewer = async () => who.name || askName();

function askName() {
  const [box, field] = [byId("who"), byId("name")];
  field.value = who.name;
  box.returnValue = "";
  box.showModal();
  field.select();
  return new Promise((resolve) => {
    box.addEventListener("close", () => resolve(box.returnValue === "start" ? who.name : ""), { once: true });
  });
}

// Kept as the form is sent: a window says that it has closed only later, and a fast key may come before that.
function keepName({ submitter }) {
  const name = byId("name").value.trim();
  if (submitter?.value !== "start" || !name) return;
  who.name = name;
  localStorage.setItem(KEY, name);
  show();
}
