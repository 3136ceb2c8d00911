// The map: a canvas of points, one shape per domain, that can be read by pointer, touch and arrow keys.
const mapView = { by: "domain", only: "all", source: true, target: true, chosen: null };

function drawMap() {
  const body = byId("map-body"), { map, map_how: how, mixing } = run(), about = task();
  mapView.chosen = null;
  if (!map) {
    byId("map-hint").textContent = "";
    return replace(body, el("p", { class: "note" }, how || run().missing || about.note || "This report was made without a map (--map none)."));
  }
  const share = `Among the nearest neighbours of a target sample, ${percent(mixing, 0)} are source samples: 50\u00a0% is a perfect mix, 0\u00a0% means that the domains are apart.`;
  byId("map-hint").textContent = `${how} of the classifier's last hidden layer, ${about.samples.source} source and ${map.length - about.samples.source} target samples. ` +
    `In a healthy run there is a cluster for each class, with the points of both domains in it. Distances between clusters mean little. ${share}`;
  if (mapView.by === "right" && !about.labels) mapView.by = "domain";
  if (mapView.only !== "all" && !(Number(mapView.only) < about.classes.length)) mapView.only = "all";
  const canvas = el("canvas", { class: "points", tabindex: "0", role: "img",
    "aria-label": `Map of samples. ${share} Use the arrow keys to go from sample to sample.` });
  const panel = el("div", { class: "panel", "aria-live": "polite" }, el("p", { class: "hint" }, "Point at a dot, tap it, or use the arrow keys."));
  const legend = el("ul", { class: "legend" });
  const paint = () => { paintPoints(canvas); legendOf(legend); };
  const change = (name) => (value) => { mapView[name] = value; paint(); };
  const ways = [["domain", "domain"], ["predicted", "predicted class"]];
  if (about.labels) ways.push(["label", "true class"], ["right", "right or wrong"]);
  replace(body,
    el("div", { class: "controls" }, segments("Colour by", "map-by", ways, mapView.by, change("by")),
      chooser("Only class", "map-only", [["all", "all"], ...about.classes.map((_, k) => [String(k), called(k)])], mapView.only, change("only")),
      tick("source", "map-source", mapView.source, change("source")), tick("target", "map-target", mapView.target, change("target"))),
    el("div", { class: "mapped" }, el("div", { class: "stage" }, canvas), panel), legend);
  const choose = (n) => { mapView.chosen = n; paintPoints(canvas); replace(panel, ...card(n)); };
  canvas.addEventListener("pointermove", (event) => { const n = pointNear(canvas, event); if (n !== null && n !== mapView.chosen) choose(n); });
  canvas.addEventListener("pointerdown", (event) => { const n = pointNear(canvas, event, 40); if (n !== null) choose(n); });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const n = pointTowards(way);
    if (n !== null) choose(n);
  });
  state.resized = paint;
  paint();
}

/** The class of a point: its label if it has one and labels are shown, otherwise its prediction. */
function classOf(n) {
  const { label } = task().samples, isSource = n < task().samples.source;
  if (mapView.by === "label" || (isSource && mapView.by !== "right")) return label[n] ?? run().predicted[n];
  return run().predicted[n];
}

function isShown(n) {
  const isSource = n < task().samples.source;
  return (isSource ? mapView.source : mapView.target) && (mapView.only === "all" || classOf(n) === Number(mapView.only));
}

function kindOf(n) {
  const isSource = n < task().samples.source;
  if (mapView.by === "domain") return isSource ? "domain-source" : "domain-target";
  if (mapView.by === "right") return isSource ? "faint" : describe(n).right ? "is-right" : "is-wrong";
  return `c${classOf(n) % COLOURS}`;
}

function paintPoints(canvas) {
  const size = canvas.parentElement.clientWidth, ratio = window.devicePixelRatio || 1, points = run().map;
  canvas.width = canvas.height = Math.max(1, Math.round(size * ratio));
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const inks = new Map();
  const ink = (kind) => { if (!inks.has(kind)) inks.set(kind, colour(kind)); return inks.get(kind); };
  const place = ([x, y]) => [14 + x * (size - 28), 14 + y * (size - 28)];
  for (const shown of [false, true]) {
    points.forEach((point, n) => {
      if (isShown(n) !== shown || (!shown && mapView.only === "all")) return;
      pen.globalAlpha = shown ? 0.85 : 0.12;
      mark(pen, place(point), n, ink(kindOf(n)));
    });
  }
  pen.globalAlpha = 1;
  if (mapView.by !== "domain" && mapView.by !== "right") nameClasses(pen, place, ink);
  if (mapView.chosen !== null && mapView.chosen < points.length) {
    const [x, y] = place(points[mapView.chosen]);
    pen.strokeStyle = ink("ink");
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x, y, 9, 0, 7);
    pen.stroke();
  }
}

/** Source: an open circle. Target: a filled triangle, or a cross if its prediction is known to be wrong. */
function mark(pen, [x, y], n, ink) {
  pen.strokeStyle = pen.fillStyle = ink;
  pen.lineWidth = 1.6;
  pen.beginPath();
  if (n < task().samples.source) { pen.arc(x, y, 3.4, 0, 7); pen.stroke(); return; }
  if (mapView.by === "right" && describe(n).right === false) {
    pen.lineWidth = 2.2;
    pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4); pen.moveTo(x + 4, y - 4); pen.lineTo(x - 4, y + 4);
    pen.stroke();
    return;
  }
  pen.moveTo(x, y - 4.6); pen.lineTo(x + 4.2, y + 3); pen.lineTo(x - 4.2, y + 3);
  pen.fill();
}

/** The name of each class at the median of its points, so that classes differ by more than their colour. */
function nameClasses(pen, place, ink) {
  const groups = new Map();
  run().map.forEach((point, n) => { if (isShown(n)) groups.set(classOf(n), [...(groups.get(classOf(n)) ?? []), point]); });
  if (groups.size > 25) return;
  pen.font = "600 13px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  for (const [k, found] of groups) {
    const [x, y] = place([middle(found.map(([a]) => a)), middle(found.map(([, b]) => b))]);
    const name = called(k);
    pen.strokeStyle = ink("paper");
    pen.lineWidth = 5;
    pen.lineJoin = "round";
    pen.strokeText(name, x, y);
    pen.fillStyle = ink("ink");
    pen.fillText(name, x, y);
  }
}

function pointNear(canvas, event, reach = 24) {
  const box = canvas.getBoundingClientRect(), size = box.width;
  let best = null, least = reach;
  run().map.forEach(([x, y], n) => {
    if (!isShown(n)) return;
    const away = Math.hypot(event.clientX - box.left - 14 - x * (size - 28), event.clientY - box.top - 14 - y * (size - 28));
    if (away < least) { least = away; best = n; }
  });
  return best;
}

/** The nearest point in a direction from the chosen one; at first, any point that is shown. */
function pointTowards([right, down]) {
  const points = run().map, shown = points.map((_, n) => n).filter(isShown);
  if (mapView.chosen === null || !isShown(mapView.chosen)) return shown[0] ?? null;
  const [x, y] = points[mapView.chosen];
  let best = null, least = Infinity;
  for (const n of shown) {
    const ahead = (points[n][0] - x) * right + (points[n][1] - y) * down;
    const aside = Math.abs((points[n][0] - x) * down) + Math.abs((points[n][1] - y) * right);
    if (ahead > 1e-6 && ahead + 3 * aside < least) { least = ahead + 3 * aside; best = n; }
  }
  return best;
}

/** What is known about one sample. */
function card(n) {
  const { domain, index, label, predicted, confidence, right } = describe(n);
  const picture = thumbnail(n, `${domain} sample ${index}`);
  const facts = [["domain", domain], ["predicted", `${className(predicted)} (confidence ${percent(confidence, 0)})`]];
  if (label !== null) facts.push(["true class", className(label)], ["", right ? "✓ right" : "✗ wrong"]);
  return [picture, el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("p", { class: "hint" }, `sample ${whole(index)} of the ${domain}, counted from 0`)];
}

function legendOf(list) {
  const entry = (shape, kind, text) => {
    const shapes = { circle: svg("circle", { cx: 8, cy: 8, r: 4.5, class: `open ${kind}` }), triangle: svg("path", { d: "M8 2L14 13H2Z", class: `solid ${kind}` }),
      cross: svg("path", { d: "M3 3L13 13M13 3L3 13", class: `open ${kind}` }) };
    return el("li", {}, svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, shapes[shape]), text);
  };
  const by = mapView.by, plain = by === "predicted" || by === "label";
  const entries = [entry("circle", by === "domain" ? "domain-source" : by === "right" ? "faint" : "ink", "source" + (plain ? " (coloured by label)" : "")),
    entry("triangle", by === "domain" ? "domain-target" : by === "right" ? "is-right" : "ink",
      by === "right" ? "target, right" : by === "predicted" ? "target (coloured by prediction)" : by === "label" ? "target (coloured by label)" : "target")];
  if (by === "right") entries.push(entry("cross", "is-wrong", "target, wrong"));
  replace(list, ...entries);
}
