"use strict";

const search = document.getElementById("search");
const buttons = [...document.querySelectorAll(".endings button")];
const shown = document.getElementById("shown");
const nothing = document.querySelector(".nothing");
const folders = [...document.querySelectorAll(".folder")].map((element) => ({
  element,
  open: element.open,
  cases: [...element.querySelectorAll(".case")].map((element) => ({
    element,
    text: (element.id + "\n" + element.textContent).toLowerCase(),
    endings: element.dataset.endings.split(" "),
  })),
}));

// Shows the cases that contain every typed word and, if endings are selected, have one of them.
function apply() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const pressed = buttons.filter((button) => button.ariaPressed === "true");
  const endings = pressed.map((button) => button.dataset.ending);
  const filters = words.length > 0 || endings.length > 0;
  let count = 0;
  for (const folder of folders) {
    let visible = 0;
    for (const { element, text, endings: found } of folder.cases) {
      const fits = words.every((word) => text.includes(word))
        && (endings.length === 0 || endings.some((ending) => found.includes(ending)));
      element.hidden = !fits;
      visible += fits ? 1 : 0;
    }
    folder.element.hidden = visible === 0;
    folder.element.open = filters ? visible > 0 : folder.open;
    count += visible;
  }
  shown.textContent = count === 1 ? "1 case" : `${count} cases`;
  nothing.hidden = count > 0;
}

// Opens the case that the address names, and its folder.
function reveal() {
  const name = decodeURIComponent(location.hash.slice(1));
  const element = name ? document.getElementById(name) : null;
  if (!element?.classList.contains("case")) return;
  element.closest(".folder").open = true;
  element.open = true;
  element.scrollIntoView();
}

search.addEventListener("input", apply);
for (const button of buttons) {
  button.addEventListener("click", () => {
    button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
    apply();
  });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    apply();
  }
});
window.addEventListener("hashchange", reveal);
document.querySelector(".filter").hidden = false;
apply();
reveal();
