// Class shares, calibration and mistakes, as tables with bars; settings and signs.
const MANY = 40;

function drawClasses() {
  const home = byId("class-tables"), { shares, confusion, calibration } = run(), about = task();
  byId("classes-hint").textContent = "The predicted shares should resemble the true ones or, if those are unknown, what you expect of the target. " +
    "Shares far from those of the source are fine if the target really differs, and a warning if it does not.";
  if (!shares) return replace(home, el("p", { class: "note" }, "Nothing has been evaluated yet."));
  replace(home, el("div", {}, shareTable(shares, about), calibration ? calibrationTable(calibration) : null), confusion ? confusionTable(confusion) : null);
}

function calibrationTable(rows) {
  const all = rows.reduce((sum, [, , count]) => sum + count, 0) || 1, most = Math.max(...rows.map(([, , count]) => count)) / all || 1;
  const labelled = rows.some(([, , , hits]) => hits !== null);
  const caption = labelled ? "A well-calibrated model is right as often as its confidence says" : "Without labels, only the confidence is known, and not whether it is justified";
  return el("div", {}, el("h3", {}, "Confidence"), scrolling("Confidence", table(caption,
    ["confidence", "target samples", ...(labelled ? ["of them right"] : [])],
    rows.map(([low, high, count, hits]) => [`${percent(low, 0)} to ${percent(high, 0)}`, bar(count / all, most, "target", count),
      ...(labelled ? [count ? bar(hits / count, 1, "true", hits) : "–"] : [])]), "bars")));
}

function shareTable(shares, about) {
  const normal = (counts) => { const sum = counts.reduce((a, b) => a + b, 0) || 1; return counts.map((c) => c / sum); };
  const columns = [["source labels", shares.source, "source"], ["target predicted", shares.predicted, "target"], ["target true", shares.true, "true"]]
    .filter(([, counts]) => counts).map(([name, counts, kind]) => [name, normal(counts), kind, counts]);
  const predicted = normal(shares.predicted), most = Math.max(...columns.flatMap(([, share]) => share), 1e-9);
  let order = predicted.map((_, k) => k);
  const cut = order.length > MANY;
  if (cut) order = order.sort((a, b) => predicted[b] - predicted[a]).slice(0, MANY);
  const rows = order.map((k) => [called(k), ...columns.map(([, share, kind, counts]) => bar(share[k], most, kind, shares.logged ? null : counts[k]))]);
  const caption = (cut ? `The ${MANY} most often predicted of ${predicted.length} classes, share and number of samples` : "All classes, share and number of samples") +
    (shares.logged ? " (from the log)" : about.target_samples ? `; target: ${whole(about.target_samples)} samples of ${about.target_name}` : "");
  return el("div", {}, el("h3", {}, "Share of each class"),
    scrolling("Class shares", table(caption, ["class", ...columns.map(([name]) => name)], rows, "bars")));
}

function bar(share, most, kind, count) {
  const inner = el("span", { class: `bar ${kind}`, "aria-hidden": "true" });
  inner.style.width = `${(100 * share) / most}%`;
  return el("span", { class: "barred" }, inner, el("span", { class: "figure" }, percent(share), count === null ? null : el("span", { class: "count" }, ` (${whole(count)})`)));
}

function confusionTable({ matrix, largest }) {
  const names = task().classes;
  const mistakes = largest.length
    ? table("The most frequent mistakes", ["true", "predicted", "samples", "share of the true class"],
      largest.map(([t, p, n, of]) => [called(t), called(p), whole(n), percent(n / of)]), "mistakes")
    : el("p", {}, "There are no mistakes on these samples.");
  const parts = [el("h3", {}, "Confusion matrix")];
  if (matrix) {
    const cells = matrix.map((row, t) => {
      const sum = row.reduce((a, b) => a + b, 0) || 1;
      return el("tr", {}, el("th", { scope: "row" }, called(t)), ...row.map((count, p) => {
        const cell = el("td", { class: t === p ? "hit" : count ? "miss" : "none",
          title: `true ${className(t)}, predicted ${className(p)}: ${whole(count)} (${percent(count / sum)})` }, count ? whole(count) : "·");
        cell.style.setProperty("--share", count / sum);
        return cell;
      }));
    });
    parts.push(scrolling("Confusion matrix", el("table", { class: "confusion" },
      el("caption", {}, el("span", { class: "held" }, "Rows are true classes, columns are predicted classes; the framed diagonal is right")),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "true ↓ predicted →"), ...names.map((_, k) => el("th", { scope: "col" }, called(k))))),
      el("tbody", {}, ...cells))));
  } else parts.push(el("p", { class: "hint" }, `The matrix of ${names.length} classes is too large to read; its largest entries are listed below.`));
  return el("div", {}, ...parts, scrolling("Most frequent mistakes", mistakes));
}

function drawSettings() {
  replace(byId("settings-tables"), ...Object.entries(run().settings).map(([title, rows]) =>
    el("div", {}, el("h3", {}, title), scrolling(title, table(null, ["setting", "value"], rows, "settings")))));
}

function drawSigns() {
  const marks = { good: ["✓", "good"], watch: ["!", "watch"], bad: ["✗", "bad"], unknown: ["?", "neutral"] };
  const { signs, missing, origin, verdict } = run();
  replace(byId("sign-list"), ...signs.map(({ level, text }) =>
    el("li", { class: level }, el("span", { class: "mark", "aria-hidden": "true" }, marks[level][0]), el("b", {}, marks[level][1] + ": "), text)));
  if (!signs.length) byId("sign-list").append(el("li", {}, "The log is still empty."));
  replace(byId("run-verdict"), ...(verdict.headline !== DATA.verdict.headline ? [el("p", { class: "lead" }, verdict.headline), el("p", { class: "hint" }, verdict.sentences.join(" "))] : []));
  const notes = [];
  if (missing) notes.push(missing);
  else if (origin && origin.includes("checkpoint")) notes.push(`Map, classes and samples are from ${origin}.`);
  if (task().note) notes.push(task().note);
  replace(byId("run-note"), ...notes.map((text) => el("span", { class: "line" }, text)));
}
