"use strict";
// Colours of text come from the page ("currentColor"), so charts follow light, dark and print.
const line = "rgba(128,128,128,0.28)";
const ink = { labelColor: "currentColor", titleColor: "currentColor" };
const config = {
  // Texts are measured with this font, so that nothing is cut.
  font: getComputedStyle(document.body).fontFamily,
  background: "transparent",
  view: { stroke: null },
  axis: {
    ...ink, gridColor: line, domainColor: "rgba(128,128,128,0.7)", tickColor: line,
    titleFontWeight: 500, labelFontSize: 11, titleFontSize: 12, labelOverlap: true, labelSeparation: 6,
  },
  legend: { ...ink, labelFontSize: 12, titleFontWeight: 500 },
  title: { color: "currentColor" },
  text: { color: "currentColor", fontSize: 11 },
  rule: { color: "currentColor" },
};
// Narrower charts are drawn so wide and scaled, so that no text of theirs is cut.
const NARROWEST = 440;
// On a phone names take less than half of the width, and legends more lines.
const fit = (spec, width) => {
  if (spec === null || typeof spec !== "object") return;
  if (spec.labelLimit) spec.labelLimit = Math.min(spec.labelLimit, 0.45 * width);
  if (spec.orient === "top" && spec.columns) spec.columns = width < 500 ? 3 : spec.columns;
  Object.entries(spec).forEach(([key, inner]) => key === "datasets" || fit(inner, width));
};
document.querySelectorAll(".chart").forEach((place) => {
  const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
  fit(spec, Math.max(place.clientWidth, NARROWEST));
  if (place.clientWidth < NARROWEST) { spec.width = NARROWEST; spec.autosize.type = "fit-x"; }
  // ast: expressions are interpreted, no code is made from text; the page's policy forbids that.
  const options = { actions: false, renderer: "svg", config, ast: true,
    loader: { http: {}, baseURL: "" } };
  // Around it stands one text for readers; Vega's own words for each mark are not read as well.
  vegaEmbed(place, spec, options).then(() => place.querySelector("svg").setAttribute("aria-hidden", "true"))
    .catch((error) => { place.textContent = String(error); });
});
