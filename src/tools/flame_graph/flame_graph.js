"use strict";
(function () {
  const frames = [...document.querySelectorAll(".frame")].map((element) => {
    const rect = element.querySelector("rect");
    const number = (name) => Number(rect.getAttribute(name));
    const title = element.querySelector("title").textContent;
    return {
      element, rect, title,
      text: element.querySelector("text"),
      x: number("x"), y: number("y"), width: number("width"),
    };
  });
  const byId = (id) => document.getElementById(id);
  const [details, reset, search] = ["details", "reset", "search"].map(byId);
  const root = frames[0];
  // The name is the part of the title before the numbers.
  const nameOf = (frame) => frame.title.replace(/: -?[\d.]+ %(?: →|,).*$/, "");

  function place(frame, x, width) {
    frame.rect.setAttribute("x", x);
    frame.rect.setAttribute("width", width);
    frame.text.setAttribute("x", x + 2);
    const room = Math.floor((width - 4) / 7);
    const name = nameOf(frame);
    frame.text.textContent = name.length <= room ? name : room < 3 ? "" : name.slice(0, room - 1) + "…";
  }

  function zoom(target) {
    const scale = root.width / target.width;
    // Coordinates have four decimals.
    const slack = 0.001;
    for (const frame of frames) {
      const isAround = frame.x <= target.x + slack && frame.x + frame.width >= target.x + target.width - slack;
      const isInside = frame.x >= target.x - slack && frame.x + frame.width <= target.x + target.width + slack;
      const isCaller = frame.y < target.y && isAround;
      const isCallee = frame.y >= target.y && isInside;
      frame.element.classList.toggle("hidden", !isCaller && !isCallee);
      frame.element.classList.toggle("outer", isCaller);
      if (isCaller) place(frame, root.x, root.width);
      else if (isCallee) place(frame, root.x + (frame.x - target.x) * scale, frame.width * scale);
    }
    reset.classList.toggle("hidden", target === root);
  }

  function find() {
    const term = prompt("Search for functions whose names contain:");
    if (term === null) return;
    for (const frame of frames) {
      const isFound = term !== "" && nameOf(frame).toLowerCase().includes(term.toLowerCase());
      frame.element.classList.toggle("found", isFound);
    }
  }

  for (const frame of frames) {
    frame.element.addEventListener("click", () => zoom(frame));
    frame.element.addEventListener("mouseover", () => { details.textContent = frame.title; });
  }
  reset.addEventListener("click", () => zoom(root));
  search.addEventListener("click", find);
  search.setAttribute("visibility", "visible");
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") zoom(root); });
})();
