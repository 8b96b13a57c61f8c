// Building blocks of the page. Text from the data only ever becomes a text node or an attribute of a fixed name.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A short message on the page, read aloud by screen readers, gone after a while.
let fading;
export function announce(message) {
  byId("announce").textContent = message;
  clearTimeout(fading);
  fading = setTimeout(() => { byId("announce").textContent = ""; }, 5000);
}

const NBSP = "\u00a0";

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 6) });
}

export const quantity = (value, unit) => (unit ? `${number(value)}${NBSP}${unit}` : number(value));

export function percent(share) {
  if (share > 0 && share < 0.005) return `<${NBSP}1${NBSP}%`;
  if (share > 0.995 && share < 1) return `>${NBSP}99${NBSP}%`;
  return `${Math.round(100 * share)}${NBSP}%`;
}

export function count(many, one, more = `${one}s`) {
  return `${many.toLocaleString("en")} ${many === 1 ? one : more}`;
}

// Identifiers can be long or hold invisible characters that turn the reading order: show what is there, safely.
export function plain(text, longest = 60) {
  const shown = text.replace(/\p{C}/gu, "\ufffd");
  return shown.length > longest ? `${shown.slice(0, longest - 1)}…` : shown;
}

// Round numbers within a range, roughly `about` of them.
export function ticks(low, high, about = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) {
    found.push(Number((at * step).toPrecision(12)));
  }
  return found;
}
