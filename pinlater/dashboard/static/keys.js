// The keyboard: ? lists the shortcuts, / goes to the filter, g and a letter to a page, p pauses the page, Esc closes
// what is open.
"use strict";
(() => {
  const WITHIN_MS = 1500;
  const dialog = document.getElementById("shortcuts");
  const button = document.querySelector("[data-shortcuts]");
  let goUntil = 0;

  const isTyping = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;

  button.hidden = false;
  button.addEventListener("click", () => dialog.showModal());

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      for (const each of document.querySelectorAll("details.action[open], details.menu[open]")) {
        each.open = false;
        each.querySelector("summary").focus();
      }
      if (isTyping(event.target)) event.target.blur();
      return;
    }
    if (isTyping(event.target) || dialog.open) return;
    const isGo = Date.now() < goUntil;
    goUntil = 0;
    if (isGo) {
      const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
    } else if (event.key === "g") {
      goUntil = Date.now() + WITHIN_MS;
    } else if (event.key === "p") {
      document.querySelector("[data-pause]:not([hidden])")?.click();
    } else if (event.key === "?") {
      event.preventDefault();
      dialog.showModal();
    } else if (event.key === "/") {
      const filter = document.querySelector("[data-filter]");
      if (filter) {
        event.preventDefault();
        filter.focus();
        filter.select();
      }
    }
  });
})();
