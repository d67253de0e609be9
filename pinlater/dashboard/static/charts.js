// The read-out of charts: what they show at one time, under the pointer or by the arrow keys, and their times in the
// viewer's zone. The values are those of the table beneath each chart; without this script the table says it all.
"use strict";
(() => {
  const CLOCK = { hour: "2-digit", minute: "2-digit" };
  const DAY = { day: "numeric", month: "short" };
  const MOMENT = { dateStyle: "medium", timeStyle: "short" };
  const reading = new Map(); // of the id of a chart, the step that is read there

  const tellZone = () => {
    for (const each of document.querySelectorAll(".plot text[data-ms]")) {
      const ms = Number(each.dataset.ms);
      each.textContent = Times.text(ms, each.dataset.form === "day" ? DAY : CLOCK);
    }
    for (const each of document.querySelectorAll(".values th[data-ms]")) each.textContent = Times.text(Number(each.dataset.ms), MOMENT);
    for (const each of document.querySelectorAll(".values th[data-zone]")) each.textContent = `Time (${Times.zone()})`;
  };

  const rowOf = (chart, at) => chart.querySelector(`.values th[data-at="${at}"]`)?.parentElement;

  const show = (chart, at) => {
    const plot = chart.querySelector(".plot");
    if (!plot) return;
    const points = Number(plot.dataset.points);
    const row = rowOf(chart, at);
    const cursor = plot.querySelector(".cursor");
    const place = `${((at + 0.5) / points) * 100}%`;
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.setAttribute("visibility", "visible");
    const when = chart.querySelector(".read-at");
    when.hidden = false;
    when.textContent = row ? `${row.firstElementChild.textContent}. ` : "Not recorded then. ";
    for (const each of chart.querySelectorAll(".read")) {
      each.dataset.sum ??= each.textContent;
      each.textContent = row ? row.children[Number(each.dataset.line) + 1].textContent || "–" : "–";
    }
    reading.set(chart.id, at);
  };

  const hide = (chart) => {
    if (!reading.delete(chart.id)) return;
    chart.querySelector(".cursor")?.setAttribute("visibility", "hidden");
    const when = chart.querySelector(".read-at");
    if (when) when.hidden = true;
    for (const each of chart.querySelectorAll(".read")) {
      if (each.dataset.sum !== undefined) each.textContent = each.dataset.sum;
      delete each.dataset.sum;
    }
  };

  const chartOf = (target) => (target instanceof Element ? target.closest("[data-chart]") : null);

  const stepUnder = (plot, event) => {
    const box = plot.getBoundingClientRect();
    const points = Number(plot.dataset.points);
    return Math.min(points - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * points)));
  };

  document.addEventListener("pointermove", (event) => {
    const plot = event.target instanceof Element ? event.target.closest(".plot") : null;
    const chart = chartOf(event.target);
    for (const id of [...reading.keys()]) {
      const other = document.getElementById(id);
      if (other && (other !== chart || !plot) && !other.contains(document.activeElement)) hide(other);
    }
    if (plot) show(chart, stepUnder(plot, event));
  });

  document.addEventListener("keydown", (event) => {
    const plot = event.target instanceof Element && event.target.matches(".plot") ? event.target : null;
    if (!plot) return;
    const chart = chartOf(plot);
    const last = Number(plot.dataset.points) - 1;
    const at = reading.get(chart.id) ?? last + 1;
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 10, PageDown: at + 10 }[event.key];
    if (event.key === "Escape") return hide(chart);
    if (next === undefined) return;
    event.preventDefault();
    show(chart, Math.min(last, Math.max(0, next)));
    chart.querySelector(".read-at").setAttribute("aria-live", "polite");
  });

  document.addEventListener("focusout", (event) => {
    const chart = chartOf(event.target);
    if (chart && event.target.matches(".plot")) hide(chart);
  });

  const shown = () => {
    tellZone();
    for (const [id, at] of reading) {
      const chart = document.getElementById(id);
      if (!chart) reading.delete(id);
      else {
        for (const each of chart.querySelectorAll(".read")) delete each.dataset.sum;
        show(chart, at);
      }
    }
  };

  document.addEventListener("pinlater:shown", shown);
  tellZone();
})();
