"use strict";
// The data are not trusted: they reach the page as text and attributes only, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const state = { run: DATA.first, shown: new Set(DATA.runs.keys()), redraw: [] };
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 10, DASHES = 6;

const byId = (id) => document.getElementById(id);
const percent = (value, digits = 1) => (100 * value).toFixed(digits) + "\u00a0%";
const whole = (value) => value.toLocaleString("en");
const run = () => DATA.runs[state.run];
const task = () => DATA.tasks[run().task];

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null));
}

/** A colour of the style sheet, resolved for the current theme, as the canvas needs it. */
function colour(name) {
  const probe = byId("probe");
  probe.className = name;
  return getComputedStyle(probe).color;
}

/** A number with three or four significant digits. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e5 || (size < 1e-3 && size > 0)) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
}

function className(k) {
  const names = task().classes;
  return k === null || k === undefined ? "unknown" : k < names.length ? names[k] : String(k);
}

/** Radio buttons in a row. */
function segments(legend, name, choices, chosen, changed) {
  const set = el("fieldset", { class: "segments" }, el("legend", {}, legend));
  for (const [value, text] of choices) {
    const input = el("input", { type: "radio", name, value, id: `${name}-${value}`, onchange: () => changed(value) });
    input.checked = value === chosen;
    set.append(input, el("label", { for: input.id }, text));
  }
  return set;
}

function chooser(text, id, choices, chosen, changed) {
  const select = el("select", { id, onchange: () => changed(select.value) });
  for (const [value, name] of choices) select.append(el("option", { value }, name));
  select.value = chosen;
  return el("span", { class: "field" }, el("label", { for: id }, text), " ", select);
}

function tick(text, id, checked, changed) {
  const input = el("input", { type: "checkbox", id, onchange: () => changed(input.checked) });
  input.checked = checked;
  return el("span", { class: "field" }, input, " ", el("label", { for: id }, text));
}

/** A table with a caption, headings and rows; the first cell of a row is its heading. */
function table(caption, headings, rows, kind = "") {
  return el("table", { class: kind },
    caption ? el("caption", {}, el("span", { class: "held" }, caption)) : null,
    el("thead", {}, el("tr", {}, ...headings.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...rows.map(([first, ...rest]) =>
      el("tr", {}, el("th", { scope: "row" }, first), ...rest.map((cell) => el("td", {}, cell))))));
}

function scrolling(label, child) {
  return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, child);
}

/** The thumbnail of a sample; null if the samples are not images. */
let sheet = new Image();
function thumbnail(sample, label) {
  const { sheet: tiles } = task();
  if (!tiles) return null;
  const side = tiles.tile;
  const canvas = el("canvas", { width: side, height: side, role: "img", "aria-label": label, class: "thumbnail" });
  const x = (sample % tiles.columns) * side, y = Math.floor(sample / tiles.columns) * side;
  const draw = () => canvas.getContext("2d").drawImage(sheet, x, y, side, side, 0, 0, side, side);
  if (sheet.complete) draw();
  else sheet.addEventListener("load", draw);
  return canvas;
}

function describe(sample) {
  const samples = task().samples, chosen = run();
  const isSource = sample < samples.source, label = samples.label[sample];
  const predicted = chosen.predicted[sample], confidence = chosen.confidence[sample];
  return {
    domain: isSource ? "source" : "target", index: samples.index[sample], label, predicted, confidence,
    right: label === null ? null : label === predicted,
  };
}

/** A class name, cut to fit a line of text. */
function called(k) {
  const name = className(k);
  return name.length > 28 ? name.slice(0, 27) + "…" : name;
}
