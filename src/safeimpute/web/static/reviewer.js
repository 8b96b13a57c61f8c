// Who decides: asked once at the start, remembered by this browser, changed at the top of the page.

import { byId, el, plain } from "./dom.js";

const KEY = "reviewer";
const who = { name: "", fixed: false };

// `given` is the name an own address carries; nobody else can be named then.
export function startReviewer(given) {
  who.fixed = Boolean(given);
  who.name = given || localStorage.getItem(KEY) || "";
  show();
  byId("reviewer").addEventListener("click", () => askName());
  if (!who.name && !sessionStorage.getItem("only-looking")) askName();
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
    box.addEventListener("close", () => {
      const name = field.value.trim();
      if (box.returnValue === "start" && name) {
        who.name = name;
        localStorage.setItem(KEY, name);
      } else if (!who.name) {
        sessionStorage.setItem("only-looking", "yes");
      }
      show();
      resolve(box.returnValue === "start" ? who.name : "");
    }, { once: true });
  });
}
