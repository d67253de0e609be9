// Light or dark: as the system says, until the reader chooses. Runs before the page is drawn.
"use strict";
(() => {
  const root = document.documentElement;
  const chosen = () => {
    try {
      return localStorage.getItem("pinlater.theme");
    } catch {
      return null; // storage is closed to pages
    }
  };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(chosen());
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-theme-switch]");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      const next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
      apply(next);
      try {
        if (next === system) localStorage.removeItem("pinlater.theme");
        else localStorage.setItem("pinlater.theme", next);
      } catch {
        // it counts for this page
      }
    });
  });
})();
