// The list of jobs: completion of the filter, saved filters, and the selection of rows. But for saved filters it all
// works without this script, too.
"use strict";
(() => {
  const input = document.querySelector("[data-complete]");
  const list = document.getElementById("options");
  let found = { start: 0, end: 0, options: [] };
  let chosen = -1;
  let asked = 0;

  // -- completion ------------------------------------------------------------------------------------------------------

  const hide = () => {
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const choose = (place) => {
    chosen = place;
    [...list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === place)));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  };

  const take = (place) => {
    const text = found.options[place].text;
    const isWhole = !text.endsWith(":") && text !== "~";
    const rest = input.value.slice(found.end);
    const put = text + (isWhole && !rest ? " " : "");
    input.value = input.value.slice(0, found.start) + put + rest;
    const at = found.start + put.length;
    input.setSelectionRange(at, at);
    hide();
    ask();
  };

  const show = () => {
    list.replaceChildren(
      ...found.options.map((option, place) => {
        const item = document.createElement("li");
        item.id = `option-${place}`;
        item.setAttribute("role", "option");
        const text = document.createElement("span");
        text.className = "code";
        text.textContent = option.text;
        const note = document.createElement("span");
        note.className = "quiet";
        note.textContent = option.note;
        item.append(text, note);
        item.addEventListener("mousedown", (event) => {
          event.preventDefault();
          take(place);
        });
        return item;
      }),
    );
    choose(-1);
    list.hidden = found.options.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
  };

  const ask = async () => {
    const turn = ++asked;
    const query = new URLSearchParams({ filter: input.value, at: String(input.selectionStart ?? input.value.length) });
    try {
      const response = await fetch(`${input.dataset.complete}?${query}`, { cache: "no-store", redirect: "error" });
      if (!response.ok || turn !== asked) return;
      found = await response.json();
      if (turn === asked && document.activeElement === input) show();
    } catch {
      hide(); // the filter works without it
    }
  };

  if (input) {
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-controls", "options");
    input.setAttribute("aria-expanded", "false");
    let typed = 0;
    const soon = () => {
      clearTimeout(typed);
      typed = setTimeout(ask, 80);
    };
    input.addEventListener("input", soon);
    input.addEventListener("focus", soon);
    input.addEventListener("click", soon);
    input.addEventListener("blur", hide);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !list.hidden) {
        event.stopPropagation();
        hide();
      } else if (list.hidden) {
        if (event.key === "ArrowDown") ask();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const step = event.key === "ArrowDown" ? 1 : -1;
        const count = found.options.length;
        choose((chosen + step + (chosen < 0 && step < 0 ? count + 1 : count)) % count);
      } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
        event.preventDefault();
        take(chosen);
      } else if (event.key === "Enter") {
        hide();
      }
    });
  }

  // -- saved filters, in this browser -----------------------------------------------------------------------------------

  const KEY = "pinlater.filters";
  const MOST_SAVED = 30;
  const saved = document.querySelector("[data-saved]");

  const read = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY) || "[]");
      return Array.isArray(kept) ? kept.filter((each) => typeof each?.name === "string" && typeof each.filter === "string") : [];
    } catch {
      return []; // storage is closed to pages, or somebody else wrote there
    }
  };

  const write = (filters) => {
    try {
      localStorage.setItem(KEY, JSON.stringify(filters.slice(-MOST_SAVED)));
    } catch {
      // nothing is kept then
    }
    listSaved();
  };

  const listSaved = () => {
    const here = new URLSearchParams(location.search).get("filter") || "";
    const filters = read();
    saved.querySelector("ul").replaceChildren(
      ...filters.map(({ name, filter }) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.href = `${location.pathname}?${new URLSearchParams({ filter })}`;
        link.textContent = name;
        link.title = filter;
        if (filter === here) link.setAttribute("aria-current", "true");
        const remove = document.createElement("button");
        remove.type = "button";
        remove.className = "plain";
        remove.textContent = "×";
        remove.setAttribute("aria-label", `Forget ${name}`);
        remove.addEventListener("click", () => write(read().filter((each) => each.name !== name)));
        item.append(link, remove);
        return item;
      }),
    );
    const form = saved.querySelector("details");
    form.hidden = !here || filters.some((each) => each.filter === here);
    saved.hidden = form.hidden && filters.length === 0;
  };

  if (saved) {
    saved.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const name = event.target.elements.name.value.trim();
      const filter = new URLSearchParams(location.search).get("filter") || "";
      event.target.closest("details").open = false;
      if (name) write([...read().filter((each) => each.name !== name), { name, filter }]);
      event.target.reset();
      setTimeout(() => (event.target.querySelector("button.main").disabled = false));
    });
    listSaved();
  }

  // -- the selection ---------------------------------------------------------------------------------------------------

  const told = () => {
    const boxes = [...document.querySelectorAll('[data-select] input[name="job"]')];
    const count = boxes.filter((each) => each.checked).length;
    const all = document.querySelector("[data-select-all]");
    if (all) {
      all.hidden = false;
      all.checked = count > 0 && count === boxes.length;
      all.indeterminate = count > 0 && count < boxes.length;
    }
    const said = document.querySelector("[data-selected]");
    const which = document.querySelector("[data-select] select[name=which]");
    const isAll = which?.value === "all";
    if (said) said.textContent = count && !isAll ? `${count.toLocaleString()} selected` : "";
    if (count && !isAll) document.body.dataset.live = "off"; // rows stay where they are while some are chosen
    else if (document.body.dataset.live === "off" && !document.body.dataset.slow) delete document.body.dataset.live;
  };

  if (document.body.dataset.live === "off") document.body.dataset.slow = "1";
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      for (const each of document.querySelectorAll('[data-select] input[name="job"]')) each.checked = event.target.checked;
    }
    if (event.target.closest("[data-select]")) told();
  });
  document.addEventListener("pinlater:shown", told);
  addEventListener("pageshow", told);
  told();
})();
