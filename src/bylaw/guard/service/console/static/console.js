// The console works without this file, except for live updates and shortcuts. No part of it evaluates text as code.
"use strict";
(() => {
  const root = document.documentElement;
  const year = "; path=/console; max-age=31536000; samesite=strict" + (location.protocol === "https:" ? "; secure" : "");
  const remember = (name, value) => { document.cookie = `${name}=${value}${year}`; };

  // Times are rendered by the server in the zone of the browser.
  const offset = String(-new Date().getTimezoneOffset());
  if (!document.cookie.split("; ").includes(`bylaw_offset=${offset}`)) remember("bylaw_offset", offset);

  document.querySelector(".nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

  // A page that shows something once is not asked for again when it is reloaded.
  if (document.querySelector("[data-once]")) history.replaceState(null, "", document.querySelector(".nav [aria-current]").href);

  const actions = {
    theme() {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      remember("bylaw_theme", root.dataset.theme);
    },
    help() { document.getElementById("help")?.showModal(); },
    copy(button) {
      if (!navigator.clipboard) { say("The browser copies only over TLS. Select the text instead."); return; }
      navigator.clipboard.writeText(button.dataset.text).then(() => say("Copied."), () => say("The browser did not copy it."));
    },
    fill(button) {
      const target = document.getElementById(button.dataset.target);
      if (target) { target.value = button.dataset.text; target.focus(); }
    },
    notify() {
      const answers = {
        granted: "This browser will notify you of new reviews and incidents.",
        denied: "The browser does not allow notifications of this site. Its settings can change that.",
      };
      if (!("Notification" in window)) { say("This browser has no notifications."); return; }
      Notification.requestPermission().then((answer) => say(answers[answer] ?? "The browser was not told yet."));
    },
    shortcuts(box) { remember("bylaw_keys", box.checked ? "on" : "off"); },
    pause(button) {
      root.dataset.live = root.dataset.live === "off" ? "on" : "off";
      button.setAttribute("aria-pressed", String(root.dataset.live === "off"));
    },
  };
  let silence = 0;
  const say = (text) => {
    const place = document.getElementById("status");
    if (!place) return;
    (document.querySelector("dialog[open]") ?? document.body).append(place);  // above a dialog that is open
    place.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => { place.textContent = ""; }, 5000);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button && Object.hasOwn(actions, button.dataset.do)) actions[button.dataset.do](button);
  });
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm;
    if (question && !confirm(question)) { event.preventDefault(); event.stopPropagation(); }
  }, true);
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-auto]");
    if (form) form.requestSubmit();
  });

  // Shortcuts: only outside of fields, and they can be switched off (see the dialog `?`).
  let chord = "";  // ends with the next key or click and not with time: after `g`, a late `r` must not reject
  document.addEventListener("pointerdown", () => { chord = ""; });
  const rows = () => [...document.querySelectorAll("[data-row] a.whole")];
  const step = (by) => {
    const all = rows();
    const next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(document.activeElement) + by))];
    next?.focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
    if (document.cookie.includes("bylaw_keys=off")) return;
    const key = event.key;
    if (chord === "g") {
      chord = "";
      const link = document.querySelector(`.nav [data-key="${CSS.escape(key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (key === "g") { chord = "g"; return; }
    if (key === "?") { event.preventDefault(); actions.help(); return; }
    if (key === "j" || key === "k") { event.preventDefault(); step(key === "j" ? 1 : -1); return; }
    const target = document.querySelector(`main [data-key="${CSS.escape(key)}"]`);
    if (!target) return;
    event.preventDefault();
    if (target.matches("button, a, summary")) target.click(); else target.focus();
    if (target.matches("summary") && target.parentElement.open) target.parentElement.querySelector("textarea")?.focus();
  });

  // Live updates. One tab listens and tells the others, since browsers allow few open connections to a server.
  const address = document.body.dataset.events;
  if (!address || !window.EventSource) return;
  const tabs = "BroadcastChannel" in window ? new BroadcastChannel("bylaw") : null;
  let changed = null;
  const refresh = (kind) => {
    if (root.dataset.live === "off") return;
    if (changed) { changed.add(kind); return; }
    changed = new Set([kind]);  // at most a few requests a second, however many updates there are
    setTimeout(() => {
      const names = ["changed", ...changed];
      changed = null;
      for (const name of names) document.body.dispatchEvent(new Event(`bylaw-${name}`));
    }, 300);
  };
  const notify = (kind, data) => {
    const known = {
      review: ["A call waits for you", data.tool, `reviews/${encodeURIComponent(data.review)}`],
      incident: ["A rule was broken", data.rule, `incidents/${encodeURIComponent(data.incident)}`],
    };
    if (data.what !== "opened" || !Object.hasOwn(known, kind)) return;
    const [title, body, path] = known[kind];
    const shown = new Notification(title, { body: String(body), tag: path });
    shown.addEventListener("click", () => { focus(); location.assign(`/console/${path}`); });
  };
  const receive = (kind, text) => {
    refresh(kind);
    tabs?.postMessage(kind);
    if (window.Notification?.permission === "granted") notify(kind, JSON.parse(text).data);
  };
  const listen = () => new Promise(() => {
    const source = new EventSource(address);
    for (const kind of ["decision", "review", "incident", "session", "rules"]) {
      source.addEventListener(kind, (event) => receive(kind, event.data));
    }
    source.addEventListener("open", () => { root.dataset.stream = "open"; });
    source.addEventListener("error", () => { root.dataset.stream = "closed"; });
  });
  if (tabs) tabs.addEventListener("message", (event) => refresh(String(event.data)));
  if (navigator.locks && tabs) navigator.locks.request("bylaw-events", listen); else listen();
})();
