// Keeps an open page as the servers are now: asks for its <main> every two seconds while somebody can see it, and puts
// what has changed in place. Focus, selections, scroll positions and forms that are open stay as they are.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const WITHIN_MS = 10000;
  const away = document.getElementById("away");
  const here = document.querySelector(".nav [aria-current]");
  const showWhere = () => here?.scrollIntoView({ block: "nearest", inline: "center" }); // a phone has no room for all
  let etag = "";
  let parts = new Map(); // of the page as it was fetched last, by their hashes
  let awaySince = 0;
  let timer = 0;
  let ended = false;
  let paused = false;

  // -- what has changed ------------------------------------------------------------------------------------------------

  // A form that somebody has opened is theirs until they close it.
  const isHeld = (node) => node instanceof Element && node.matches("details[open].action, [data-keep]");

  // So is what they have typed, ticked or chosen anywhere.
  const isTheirs = (name, node) => {
    if (name === "selected") {
      const options = [...(node.closest("select")?.options ?? [])];
      return options.some((each, at) => each.selected !== (options.some((one) => one.defaultSelected) ? each.defaultSelected : at === 0));
    }
    if (name === "checked") return node.checked !== node.defaultChecked;
    return name === "value" && "defaultValue" in node && node.value !== node.defaultValue;
  };

  const callbacks = {
    beforeNodeMorphed: (old) => !isHeld(old),
    beforeNodeRemoved: (old) => !isHeld(old),
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details")) && name !== "title" && !isTheirs(name, node),
  };

  const put = (html) => {
    const main = document.getElementById("main");
    Idiomorph.morph(main, html, { ignoreActiveValue: true, callbacks });
    document.title = `${main.dataset.title} · PinLater`;
    document.dispatchEvent(new CustomEvent("pinlater:shown"));
  };

  const say = (text, href, link) => {
    away.textContent = text;
    if (href) {
      const anchor = document.createElement("a");
      anchor.href = href;
      anchor.textContent = link;
      away.append(" ", anchor);
    }
    away.hidden = false;
  };

  const isBack = () => {
    awaySince = 0;
    away.hidden = true;
    away.textContent = "";
  };

  const isAway = (why) => {
    awaySince ||= Times.now();
    const since = Times.text(awaySince, { timeStyle: "medium" });
    const text = `${why} since ${since}. What you see is from then; this page tries again every two seconds.`;
    if (!away.textContent.startsWith(text)) say(text);
  };

  // Only what is new of a page comes; all of what does not come in parts.
  const read = async (response, had) => {
    if (!(response.headers.get("Content-Type") || "").startsWith("application/json")) {
      return { html: await response.text(), parts: new Map() };
    }
    const news = await response.json();
    const now = new Map(news.map(([mark, html]) => [mark, html ?? had.get(mark)]));
    return { html: news.map(([mark]) => now.get(mark)).join(""), parts: now };
  };

  const look = async () => {
    const had = parts;
    try {
      const response = await fetch(location.pathname + location.search, {
        headers: { "X-Live": "1", "X-Parts": [...had.keys()].join(",") || "none", ...(etag && { "If-None-Match": etag }) },
        cache: "no-store",
        redirect: "error",
        signal: AbortSignal.timeout(WITHIN_MS),
      });
      Times.setNow(response.headers.get("X-Now"));
      if (response.status === 401) {
        ended = true;
        const after = encodeURIComponent(location.pathname + location.search);
        say("Your session has ended.", `${away.dataset.login}?next=${after}`, "Log in");
        return;
      }
      if (response.status === 304) return isBack();
      const isText = (response.headers.get("Content-Type") || "").startsWith("text/plain");
      if (response.status >= 500 && isText) return isAway(await response.text());
      if (!response.ok && response.status !== 404) return isAway(`The server answers with an error (${response.status})`);
      const page = await read(response, had);
      put(page.html); // what could not be shown is fetched again, so it is remembered behind that
      parts = page.parts;
      etag = response.headers.get("ETag") || "";
      isBack();
    } catch {
      isAway("No answer from the server");
    }
  };

  const next = async () => {
    clearTimeout(timer);
    if (document.hidden || ended || paused || document.body.dataset.live === "off") return;
    await look();
    clearTimeout(timer);
    timer = setTimeout(next, EVERY_MS);
  };

  // -- what stands in for nothing: all of it works without a script, too -----------------------------------------------

  const begin = () => {
    for (const each of document.querySelectorAll("[data-close][hidden], [data-read][hidden]")) each.hidden = false;
  };

  document.addEventListener("click", (event) => {
    const close = event.target.closest("[data-close]");
    if (close) {
      const open = close.closest("details");
      open.open = false;
      open.querySelector("summary").focus();
    }
    event.target.closest("[data-read]")?.closest(".notice").remove();
    if (event.target.closest("[data-pause]")) return; // who pauses the page wants to go on with what is open on it
    for (const each of document.querySelectorAll("details.action[open], details.menu[open]")) {
      if (!each.contains(event.target)) each.open = false;
    }
  });

  // -- the pause -------------------------------------------------------------------------------------------------------

  const pause = document.querySelector("[data-pause]");
  pause.hidden = document.body.dataset.live === "off";
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    next();
  });

  document.addEventListener("submit", (event) => {
    for (const each of event.target.querySelectorAll("button:not([type])")) {
      setTimeout(() => (each.disabled = true)); // once is enough; after the form has been read
    }
  });

  addEventListener("pageshow", (event) => {
    if (event.persisted) for (const each of document.querySelectorAll("button:disabled")) each.disabled = false;
  });

  // A filter counts as it is typed, and stands in the address.
  let typed = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live-form]");
    if (!form) return;
    clearTimeout(typed);
    typed = setTimeout(() => {
      const filled = [...new FormData(form)].filter(([, value]) => value);
      const query = new URLSearchParams(filled).toString();
      history.replaceState(null, "", form.action.split("?")[0] + (query ? `?${query}` : ""));
      etag = "";
      next();
    }, 250);
  });

  addEventListener("resize", showWhere);
  showWhere();
  document.addEventListener("pinlater:shown", begin);
  document.addEventListener("visibilitychange", next);
  begin();
  timer = setTimeout(next, EVERY_MS);
})();
