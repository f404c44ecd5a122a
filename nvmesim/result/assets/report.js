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
    titleFontWeight: 500, labelFontSize: 11, titleFontSize: 12,
  },
  legend: { ...ink, labelFontSize: 12 },
  title: { color: "currentColor" },
  text: { color: "currentColor", fontSize: 11 },
  rule: { color: "currentColor" },
};
document.querySelectorAll(".chart").forEach((place) => {
  const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
  const options = { actions: false, renderer: "svg", config, loader: { http: {}, baseURL: "" } };
  vegaEmbed(place, spec, options).catch((error) => { place.textContent = String(error); });
});
