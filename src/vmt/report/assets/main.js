// Sets up the page: theme, choice of the run, and redrawing.
function drawRun() {
  sheet = new Image();
  if (task().sheet) sheet.src = task().sheet.uri;
  document.documentElement.classList.toggle("pixelated", Boolean(task().sheet && task().sheet.tile <= 32));
  byId("run").value = String(state.run);
  byId("printed-run").textContent = `Details of the run ${run().name} (${run().method}, seed ${run().seed})`;
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

/** Copies the command beside a button; where the clipboard is closed to pages, the command is selected instead. */
async function copy(button) {
  const code = byId(button.value);
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    if (!document.execCommand("copy")) return void (button.textContent = "Selected");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

/** Paper has no dark theme, no pointer and nothing to unfold: show everything, in light colours, while printing. */
function printWhole() {
  const theme = document.documentElement.dataset.theme;
  const folded = [...document.querySelectorAll("details:not([open])")].filter((box) => !box.classList.contains("numbers"));
  document.documentElement.dataset.theme = "light";
  for (const box of folded) box.open = true;
  if (state.resized) state.resized();
  window.addEventListener("afterprint", () => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    for (const box of folded) box.open = false;
    if (state.resized) state.resized();
  }, { once: true });
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
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));
  window.addEventListener("beforeprint", printWhole);
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => state.resized && state.resized());
  });
}

setUp();
drawResults();
drawRun();
drawCurves();
