"use strict";
document.querySelectorAll("[data-lookup]").forEach((root) => {
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const data = JSON.parse(part("data").textContent);
  const [choice, slider, apart] = [part("choice"), part("slider"), part("apart")];
  const lines = [...root.querySelectorAll("tbody tr")];
  const percent = (share) => `${50 + 50 * share}%`;

  function show() {
    const chosen = data.choices[choice.value];
    const found = data.cases[apart.checked ? chosen.apart : chosen.cases[slider.value]];
    slider.disabled = apart.checked || chosen.cases.length === 1;
    slider.setAttribute("aria-valuetext", found.value);
    part("value").textContent = found.value;
    part("why").textContent = chosen.why;
    part("said").replaceChildren(...found.said.map((place) => paragraph(data.texts[place])));
    part("command").textContent = data.command.join(found.option);
    lines.forEach((line, at) => draw(line, found, at, at === chosen.line));
  }

  function paragraph(text) {
    return Object.assign(document.createElement("p"), { textContent: text });
  }

  function draw(line, found, at, isChosen) {
    line.className = `${found.tones[at]} ${isChosen ? "chosen" : "other"}`;
    line.querySelectorAll("[data-varies]").forEach((cell, place) => {
      cell.firstElementChild.textContent = data.texts[found.cells[at][place]];
    });
    const [middle, reach] = data.drawn.map((place) => found.numbers[at][place]);
    const [band, dot] = [line.querySelector(".band"), line.querySelector(".dot")];
    band.hidden = dot.hidden = middle === null || reach === null;
    band.style.left = percent((middle - reach) / data.scale);
    band.style.width = `${100 * reach / data.scale}%`;
    dot.style.left = percent(middle / data.scale);
  }

  function start() {
    const chosen = data.choices[choice.value];
    slider.max = chosen.cases.length - 1;
    slider.value = chosen.start;
    part("low").textContent = data.cases[chosen.cases[0]].value;
    part("high").textContent = data.cases[chosen.cases.at(-1)].value;
    apart.checked = false;
    apart.disabled = chosen.apart === null;
    show();
  }

  choice.addEventListener("change", start);
  slider.addEventListener("input", show);
  apart.addEventListener("change", show);
  part("reset").addEventListener("click", start);
  part("controls").hidden = false;
});
