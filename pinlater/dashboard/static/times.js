// Times: by the servers' clock, whatever the viewer's says; as ages, in the viewer's zone or in UTC, as was chosen. How
// long something has lasted is a length in each of these.
"use strict";
const Times = (() => {
  const KEY = "pinlater.times";
  const MODES = ["relative", "local", "utc"];

  // -- lengths: the same as pinlater/durations.py writes ---------------------------------------------------------------

  const STEPS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

  const spanText = (ms) => {
    if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
    const seconds = Math.floor(ms / 1000);
    for (const [size, unit, part, partUnit] of STEPS) {
      if (seconds >= size) {
        const rest = Math.floor((seconds % size) / part);
        return `${Math.floor(seconds / size)} ${unit}` + (rest ? ` ${rest} ${partUnit}` : "");
      }
    }
    return `${seconds} s`;
  };

  const agoText = (ms) => {
    if (Math.abs(ms) < 1000) return "now";
    return ms > 0 ? `${spanText(ms)} ago` : `in ${spanText(-ms)}`;
  };

  // -- the servers' clock ----------------------------------------------------------------------------------------------

  let aheadMs = 0;
  const setNow = (text) => {
    const ms = Number(text);
    if (ms > 0) aheadMs = ms - Date.now();
  };
  const now = () => Date.now() + aheadMs;
  setNow(document.body.dataset.now);

  // -- the choice ------------------------------------------------------------------------------------------------------

  let mode = MODES[0];
  try {
    const kept = localStorage.getItem(KEY);
    if (MODES.includes(kept)) mode = kept;
  } catch {
    // storage is closed to pages
  }

  const formats = new Map();
  const text = (ms, options) => {
    const timeZone = mode === "utc" ? "UTC" : undefined;
    const key = JSON.stringify([timeZone, options]);
    if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat(undefined, { ...options, timeZone }));
    return formats.get(key).format(ms);
  };
  const zone = () => (mode === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);

  const momentText = (ms) => {
    if (mode === "relative") return agoText(now() - ms);
    if (mode === "local") return text(ms, { dateStyle: "medium", timeStyle: "medium" });
    return new Date(ms).toISOString().slice(0, 19).replace("T", " ");
  };

  const show = () => {
    for (const each of document.querySelectorAll("time[data-ms]")) {
      const ms = Number(each.dataset.ms);
      const told = "span" in each.dataset ? spanText(Math.max(0, now() - ms)) : momentText(ms);
      if (each.textContent !== told) each.textContent = told;
      const title = text(ms, { dateStyle: "medium", timeStyle: "long" });
      if (each.title !== title) each.title = title;
    }
  };

  const choice = document.querySelector("[data-times]");
  choice.value = mode;
  choice.hidden = false;
  choice.addEventListener("change", () => {
    mode = choice.value;
    try {
      localStorage.setItem(KEY, mode);
    } catch {
      // it counts for this page
    }
    document.dispatchEvent(new CustomEvent("pinlater:shown"));
  });

  document.addEventListener("pinlater:shown", show);
  setInterval(show, 1000);
  show();
  return { now, setNow, text, zone };
})();
