"use strict";
// A chart is a still picture until it is near the window; then it is drawn again, to be hovered over. Where that fails the picture stays.
(() => {
  const specs = JSON.parse(document.getElementById("chart-specs").textContent);
  const draw = (place) => {
    const live = document.createElement("div");
    // by its syntax tree: the page allows no text to become code
    vegaEmbed(live, specs[place.dataset.chart], { actions: false, ast: true, renderer: "svg" }).then(
      () => place.replaceChildren(live),
      (error) => console.error(place.dataset.chart, error),
    );
  };
  const near = new IntersectionObserver(
    (entries) =>
      entries.forEach(({ isIntersecting, target }) => {
        if (isIntersecting) {
          near.unobserve(target);
          draw(target);
        }
      }),
    { rootMargin: "800px" },
  );
  document.querySelectorAll("[data-chart]").forEach((place) => near.observe(place));
})();
