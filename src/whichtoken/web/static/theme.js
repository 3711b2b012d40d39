/** Applies the reader's choice of light or dark before the page is drawn; without a choice, the system decides. */
"use strict";
(() => {
  const chosen = localStorage.getItem("whichtoken-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.setAttribute("theme", chosen);
})();
