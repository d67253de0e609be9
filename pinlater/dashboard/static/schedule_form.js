// Checks the form of a schedule while it is written: the next firings are shown below it, and nothing is saved by that.
"use strict";
(() => {
  const PAUSE_MS = 500;
  const form = document.querySelector("form[data-check]");
  let timer = 0;
  let turn = 0;

  const check = async () => {
    const mine = ++turn;
    const sent = new URLSearchParams(new FormData(form));
    sent.set("step", "check");
    try {
      const response = await fetch(form.action, { method: "POST", body: sent, headers: { "X-Live": "1" }, redirect: "error" });
      if (!response.ok) return;
      const found = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("checked");
      if (found && mine === turn) {
        document.getElementById("checked").replaceChildren(...found.childNodes);
        document.dispatchEvent(new CustomEvent("pinlater:shown"));
      }
    } catch {
      // the button does the same, and says what is wrong
    }
  };

  form.addEventListener("input", () => {
    const save = form.querySelector("[value=save]");
    if (save) save.disabled = true; // until what is written now was checked
    clearTimeout(timer);
    timer = setTimeout(() => form.checkValidity() && check(), PAUSE_MS);
  });
})();
