// Sets up the page: theme, choice of the run, and redrawing.
function drawRun() {
  sheet = new Image();
  if (task().sheet) sheet.src = task().sheet.uri;
  document.documentElement.classList.toggle("pixelated", Boolean(task().sheet && task().sheet.tile <= 32));
  byId("run").value = String(state.run);
  for (const button of document.querySelectorAll(".open-run")) {
    const chosen = Number(button.value) === state.run;
    button.setAttribute("aria-pressed", String(chosen));
    button.closest("tr").classList.toggle("chosen", chosen);
  }
  drawSigns();
  drawClasses();
  drawMap();
  drawGallery();
  drawSettings();
}

function chooseRun(i) {
  state.run = i;
  drawRun();
  drawCurves();
}

function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setUp() {
  document.body.append(el("span", { id: "probe", hidden: true }));
  const select = byId("run");
  DATA.runs.forEach((each, i) => select.append(el("option", { value: String(i) }, `${each.name} (${each.method}, seed ${each.seed})`)));
  select.addEventListener("change", () => chooseRun(Number(select.value)));
  document.querySelector(".chooser").hidden = DATA.runs.length === 1;
  for (const button of document.querySelectorAll(".open-run")) button.addEventListener("click", () => chooseRun(Number(button.value)));
  for (const box of document.querySelectorAll(".show-run")) {
    box.addEventListener("change", () => {
      if (box.checked) state.shown.add(Number(box.value));
      else state.shown.delete(Number(box.value));
      drawCurves();
    });
  }
  const theme = byId("theme");
  theme.setAttribute("aria-pressed", String(isDark()));
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    theme.setAttribute("aria-pressed", String(isDark()));
    if (state.resized) state.resized();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    theme.setAttribute("aria-pressed", String(isDark()));
    if (state.resized) state.resized();
  });
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => state.resized && state.resized());
  });
}

setUp();
drawIntervals();
drawRun();
drawCurves();
