// Target samples with their predictions, in a chosen order and filtered.
const galleryView = { order: "least", predicted: "all", wrong: false, differs: false, count: 24 };

function drawGallery() {
  const home = byId("gallery"), about = task();
  byId("pictures-hint").textContent = "";
  if (!run().predicted) return replace(home, el("p", { class: "note" }, run().missing || about.note));
  if (!about.labels) galleryView.wrong = false;
  const base = sourceOnly();
  if (!base) galleryView.differs = false;
  if (!(galleryView.predicted === "all" || Number(galleryView.predicted) < about.classes.length)) galleryView.predicted = "all";
  const cards = el("ul", { class: "cards" }), status = el("p", { class: "hint", role: "status" });
  const more = el("button", { type: "button", onclick: () => { galleryView.count += 24; show(); } }, "Show more");
  const show = () => {
    const found = chosenSamples(), kept = found.slice(0, galleryView.count);
    replace(cards, ...kept.map(sampleCard));
    more.hidden = kept.length === found.length;
    status.textContent = found.length ? `${kept.length} of the ${whole(found.length)} samples on this page that match.` : "No sample on this page matches.";
  };
  const change = (name) => (value) => { galleryView[name] = value; galleryView.count = 24; show(); };
  byId("pictures-hint").textContent = `Predictions on ${about.target_name}: the most doubtful, the most confident${about.labels ? ", wrong ones" : ""} and random ones ` +
    `among ${whole(about.target_samples)} samples. The confidence is the model's own: it may be certain and wrong.`;
  const orders = [["least", "most doubtful"], ["most", "most confident"], ["even", "as in the data"]];
  replace(home,
    el("div", { class: "controls" }, segments("Order", "gallery-order", orders, galleryView.order, change("order")),
      chooser("Predicted class", "gallery-class", [["all", "all"], ...about.classes.map((_, k) => [String(k), called(k)])], galleryView.predicted, change("predicted")),
      about.labels ? tick("only wrong", "gallery-wrong", galleryView.wrong, change("wrong")) : null,
      base ? tick("only where source only predicts another class", "gallery-differs", galleryView.differs, change("differs")) : null),
    status, cards, more);
  show();
}

/** The source-only run that the chosen run is compared with, if it has predictions for the same samples. */
function sourceOnly() {
  const base = run().base === null ? null : DATA.runs[run().base];
  return base && base.predicted && base.task === run().task ? base : null;
}

function chosenSamples() {
  const { samples } = task(), { predicted, confidence } = run(), base = sourceOnly();
  const found = [];
  for (let n = samples.source; n < samples.index.length; n++) {
    if (galleryView.predicted !== "all" && predicted[n] !== Number(galleryView.predicted)) continue;
    if (galleryView.wrong && samples.label[n] === predicted[n]) continue;
    if (galleryView.differs && base.predicted[n] === predicted[n]) continue;
    found.push(n);
  }
  if (galleryView.order === "most") found.sort((a, b) => confidence[b] - confidence[a]);
  if (galleryView.order === "least") found.sort((a, b) => confidence[a] - confidence[b]);
  return found;
}

function sampleCard(n) {
  const { index, label, predicted, confidence, right } = describe(n);
  const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("span", {}));
  meter.firstChild.style.width = `${100 * confidence}%`;
  const base = sourceOnly(), other = base && base.predicted[n] !== predicted ? el("span", { class: "other" }, `source only: ${called(base.predicted[n])}`) : null;
  const truth = right === null ? null : right ? el("span", { class: "truth right" }, "✓ right") : el("span", { class: "truth wrong" }, `✗ is ${called(label)}`);
  const picture = thumbnail(n, `target sample ${index}, predicted ${className(predicted)}`);
  return el("li", { class: "sample", "data-confidence": confidence, "data-predicted": predicted },
    picture ?? el("span", { class: "number" }, `no. ${whole(index)}`), el("b", { class: "named" }, called(predicted)), meter, el("span", {}, percent(confidence)), other, truth);
}
