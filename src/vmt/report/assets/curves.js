// Curves over iterations, as SVG that can be read by pointer, touch and arrow keys, each with a table.
const GROUPS = [
  ["accuracy", "Accuracy and certainty", ""],
  ["scores", "Label-free scores", "Computed without target labels, to choose among checkpoints and runs."],
  ["discriminator", "Discriminator", "The discriminator tries to tell source features from target features, and the classifier tries to prevent it. Neither should win clearly, but a run can succeed even if the discriminator wins."],
  ["losses", "Terms of the loss", "Without their weights, averaged over the iterations since the previous log record."],
  ["gradients", "Gradient norms", ""],
];
const BOX = { width: 400, height: 210, left: 46, right: 12, top: 12, bottom: 30 };

function drawCurves() {
  const home = byId("curve-groups");
  const open = new Set([...home.querySelectorAll("details.group[open]")].map((group) => group.dataset.group));
  const first = !home.hasChildNodes(), unlabelled = DATA.runs.every((each) => !each.accuracy);
  replace(home, ...GROUPS.map(([group, title, text]) => {
    const charts = DATA.charts.filter((chart) => chart.group === group && seriesOf(chart).length);
    if (!charts.length) return null;
    return el("details", { class: "group", "data-group": group, open: first ? group !== "gradients" && (group !== "scores" || unlabelled) : open.has(group) },
      el("summary", {}, el("h3", {}, title)), text ? el("p", { class: "hint" }, text) : null,
      el("div", { class: "charts" }, ...charts.map(chartCard)));
  }));
  if (!home.hasChildNodes()) home.append(el("p", { class: "note" }, "The log of these runs holds no numbers yet."));
}

function seriesOf(chart) {
  return DATA.runs.map((each, i) => ({ i, name: each.name, points: each.curves[chart.key] }))
    .filter(({ i, points }) => points && state.shown.has(i));
}

function chartCard(chart) {
  const series = seriesOf(chart), scale = scaleOf(chart, series);
  const format = (value) => (chart.percent ? percent(value) : short(value));
  const cursor = svg("g", { class: "cursor" });
  const picture = svg("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", "aria-label": summary(chart, series, format) },
    ...axes(chart, scale), ...series.map(({ i, points }) => line(i, points, scale)), cursor);
  const readout = el("output", { class: "readout" });
  const list = (start, values) => `${start}: ` + values.map(([, name, v]) => (series.length > 1 ? `${name} ` : "") + format(v)).join(", ");
  readout.textContent = list("at the end", series.map(({ i, name, points }) => [i, name, points[1].at(-1)]));
  let place = null;
  const show = (step) => {
    place = step;
    const values = series.map(({ i, name, points }) => [i, name, valueAt(points, step)]).filter(([, , v]) => v !== null);
    cursor.replaceChildren(svg("line", { x1: scale.x(step), x2: scale.x(step), y1: BOX.top, y2: BOX.height - BOX.bottom }),
      ...values.map(([i, , v]) => svg("circle", { class: `dot c${i % COLOURS}`, cx: scale.x(step), cy: scale.y(v), r: 4 })));
    readout.textContent = list(`iteration ${whole(step)}`, values);
  };
  const nearest = (event) => {
    const box = picture.getBoundingClientRect();
    show(stepNear(series, scale.step(((event.clientX - box.left) / box.width) * BOX.width)));
  };
  const keys = (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!way) return;
    event.preventDefault();
    const steps = allSteps(series), at = place === null ? -1 : steps.indexOf(place);
    show(steps[Math.min(steps.length - 1, Math.max(0, at + way))]);
  };
  const area = el("div", { class: "chart", role: "group", tabindex: "0", "aria-label": `${chart.title}. Use the arrow keys to read values.`,
    onpointermove: nearest, onpointerdown: nearest, onkeydown: keys }, picture);
  return el("figure", { class: "card", "data-chart": chart.key }, el("figcaption", {}, chart.title), area, readout,
    el("p", { class: "should" }, el("b", {}, "What it should look like. "), chart.should), numbers(chart, series, format));
}

function summary(chart, series, format) {
  return `${chart.title}. ` + series.map(({ name, points: [steps, values] }) =>
    `${name}: from ${format(values[0])} to ${format(values.at(-1))} at iteration ${steps.at(-1)}`).join("; ");
}

function scaleOf(chart, series) {
  const values = series.flatMap(({ points }) => points[1]).concat(chart.lines.map(([value]) => value));
  const ends = series.flatMap(({ points }) => [points[0][0], points[0].at(-1)]);
  let low = Math.min(...values), high = Math.max(...values);
  if (chart.percent) { low = Math.min(low, high - 0.1); } else if (low > 0 && low < 0.5 * high) low = 0;
  if (high === low) { high += Math.abs(high) * 0.1 || 1; low -= Math.abs(low) * 0.1; }
  const ticks = niceTicks(low, high, 5);
  low = Math.min(low, ticks[0]); high = Math.max(high, ticks.at(-1));
  if (chart.percent) { low = Math.max(0, low); high = Math.min(1, high); }
  const start = Math.min(0, ...ends), end = Math.max(1, ...ends);
  const width = BOX.width - BOX.left - BOX.right, height = BOX.height - BOX.top - BOX.bottom;
  return {
    ticks: ticks.filter((t) => t >= low - 1e-9 && t <= high + 1e-9), steps: niceTicks(start, end, 4).filter((t) => t >= start && t <= end),
    x: (step) => BOX.left + ((step - start) / (end - start)) * width,
    y: (value) => BOX.top + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * height,
    step: (x) => start + ((x - BOX.left) / width) * (end - start),
  };
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= rough);
  const ticks = [];
  for (let t = Math.floor(low / step + 1e-9) * step; t < high + step - 1e-9 * step; t += step) ticks.push(Number(t.toPrecision(10)));
  return ticks;
}

function axes(chart, scale) {
  const right = BOX.width - BOX.right, bottom = BOX.height - BOX.bottom;
  const marks = scale.ticks.map((t) => svg("g", {},
    svg("line", { class: "grid", x1: BOX.left, x2: right, y1: scale.y(t), y2: scale.y(t) }),
    svg("text", { class: "tick", x: BOX.left - 6, y: scale.y(t) + 4, "text-anchor": "end" }, chart.percent ? Math.round(100 * t) + " %" : short(t))));
  const steps = scale.steps.map((t) => svg("text", { class: "tick", x: scale.x(t), y: bottom + 17, "text-anchor": "middle" },
    t >= 1e4 ? `${short(t / 1000)}k` : String(t)));
  const levels = chart.lines.map(([value, name]) => svg("g", {},
    svg("line", { class: "level", x1: BOX.left, x2: right, y1: scale.y(value), y2: scale.y(value) }),
    svg("text", { class: "level-name", x: right - 2, y: scale.y(value) + (scale.y(value) < BOX.top + 14 ? 13 : -4), "text-anchor": "end" }, name)));
  const phases = state.shown.has(state.run) ? run().phases.filter(([step]) => scale.x(step) < right - 2).map(([step, name]) => svg("g", {},
    svg("line", { class: "phase", x1: scale.x(step), x2: scale.x(step), y1: BOX.top, y2: bottom }),
    svg("text", { class: "level-name", x: scale.x(step) + (scale.x(step) > 300 ? -4 : 4), y: bottom - 5, "text-anchor": scale.x(step) > 300 ? "end" : "start" }, name))) : [];
  return [...marks, ...steps, ...levels, ...phases];
}

function line(i, [steps, values], scale) {
  const kind = `line c${i % COLOURS} d${i % DASHES}${i === state.run && DATA.runs.length > 1 ? " chosen" : ""}`;
  if (steps.length === 1) return svg("circle", { class: `dot c${i % COLOURS}`, cx: scale.x(steps[0]), cy: scale.y(values[0]), r: 3.5 });
  return svg("path", { class: kind, d: steps.map((s, n) => `${n ? "L" : "M"}${scale.x(s).toFixed(1)} ${scale.y(values[n]).toFixed(1)}`).join("") });
}

function allSteps(series) {
  return [...new Set(series.flatMap(({ points }) => points[0]))].sort((a, b) => a - b);
}

function stepNear(series, wanted) {
  return allSteps(series).reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best));
}

/** The value at the last point up to a step; null outside the curve. */
function valueAt([steps, values], step) {
  if (step < steps[0] || step > steps.at(-1)) return null;
  let n = 0;
  while (n + 1 < steps.length && steps[n + 1] <= step) n++;
  return values[n];
}

function numbers(chart, series, format) {
  const box = el("details", { class: "numbers" }, el("summary", {}, "Numbers"));
  box.addEventListener("toggle", () => {
    if (box.childElementCount > 1) return;
    const steps = allSteps(series), count = Math.min(12, steps.length);
    const rows = Array.from({ length: count }, (_, n) => steps[Math.round((n * (steps.length - 1)) / Math.max(1, count - 1))])
      .map((step) => [whole(step), ...series.map(({ points }) => { const v = valueAt(points, step); return v === null ? "–" : format(v); })]);
    box.append(scrolling(`Numbers of ${chart.title}`, table(null, ["iteration", ...series.map(({ name }) => name)], rows)));
  });
  return box;
}

/** The accuracy of every run with its interval or, without labels, its score; all on one axis. */
function drawResults() {
  const models = DATA.runs.map((each, i) => ({ ...each, kind: `c${i % COLOURS}` })).concat(DATA.references.map((each) => ({ ...each, kind: "faint", usable: true })));
  const labelled = models.some((each) => each.accuracy);
  const known = models.map((each) => ({ ...each, figure: labelled ? each.accuracy : each.score })).filter((each) => each.figure);
  if (!known.length) return;
  if (!labelled) known.sort((a, b) => b.usable - a.usable || b.figure.value - a.figure.value);
  const format = labelled ? percent : (value) => value.toFixed(2);
  const row = 38, height = known.length * row + 32, left = 2, right = 398;
  const lows = known.map(({ figure }) => figure.low ?? figure.value);
  const start = labelled ? Math.max(0, Math.floor(10 * Math.min(...lows) - 0.5) / 10) : Math.min(0, ...lows), end = labelled ? 1 : Math.max(1, ...known.map(({ figure }) => figure.value));
  const x = (value) => left + ((value - start) / (end - start)) * (right - left);
  const beside = ({ usable, state: why }) => (usable ? "" : ` (${why})`);
  const descriptions = known.map((each) => `${each.name}: ${format(each.figure.value)}${labelled ? `, ${percent(each.figure.low)} to ${percent(each.figure.high)}` : ""}${beside(each)}`);
  const rows = known.map((each, n) => {
    const y = 22 + n * row, { figure, kind, name } = each;
    return svg("g", {}, svg("text", { class: "name", x: left, y: y - 7 }, (name.length > 30 ? "…" + name.slice(-29) : name) + beside(each)),
      svg("text", { class: "value", x: right, y: y - 7, "text-anchor": "end" }, format(figure.value)),
      svg("line", { class: "axis", x1: left, x2: right, y1: y + 4, y2: y + 4 }),
      labelled ? svg("line", { class: `whisker ${kind}`, x1: x(figure.low), x2: x(figure.high), y1: y + 4, y2: y + 4 }) : null,
      svg("circle", { class: `${each.usable ? "dot" : "dot failed"} ${kind}`, cx: x(figure.value), cy: y + 4, r: 5 }));
  });
  const marks = [0, 0.25, 0.5, 0.75, 1].map((t) => start + t * (end - start)).map((t) => svg("text", { class: "tick", x: x(t), y: height - 6,
    "text-anchor": t === start ? "start" : t === end ? "end" : "middle" }, labelled ? `${short(100 * t)} %` : short(t)));
  const title = labelled ? "Target accuracy, with 95\u00a0% intervals" : `Label-free score (${DATA.score}), not an accuracy`;
  replace(byId("intervals"), el("figure", { class: "card" }, el("figcaption", {}, title),
    svg("svg", { viewBox: `0 0 400 ${height}`, role: "img", "aria-label": descriptions.join("; ") }, ...rows, ...marks)));
}
