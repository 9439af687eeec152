"use strict";

// What a button names is copied.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const from = document.getElementById(button.dataset.copy);
  const said = button.parentElement.querySelector("[role=status]");
  try {
    await navigator.clipboard.writeText(from.textContent);
    said.textContent = "Copied";
  } catch { // only pages over HTTPS or of this machine have a clipboard
    getSelection().selectAllChildren(from);
    said.textContent = document.execCommand("copy") ? "Copied" : "Selected: copy it now";
  }
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-print]")) print();
});

// A table that is wider than the screen says so.
function markWide() {
  for (const one of document.querySelectorAll(".scroll")) one.classList.toggle("wide", one.scrollWidth > one.clientWidth);
}
addEventListener("resize", markWide);
document.addEventListener("toggle", markWide, true); // of a table that was folded

// Times are shown in the zone of the reader, and money as it is written there. Without this script they stay as the server wrote
// them, in UTC; times have that on hover.
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const hours = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const days = new Intl.DateTimeFormat(undefined, { dateStyle: "full" });
const here = clock.resolvedOptions().timeZone;
const utc = /^(Etc\/)?(UTC|GMT|UCT|Zulu|Universal|Greenwich|GMT0)$/.test(here);
const formats = new Map();
function format(currency) {
  if (!formats.has(currency)) {
    formats.set(currency, new Intl.NumberFormat(undefined,
      { style: "currency", currency, maximumFractionDigits: 4, trailingZeroDisplay: "stripIfInteger" }));
  }
  return formats.get(currency);
}
function localize(page) {
  for (const time of page.querySelectorAll("time.at")) {
    const text = (time.matches(".clock") ? hours : time.matches(".exact") ? exact : clock).format(new Date(time.dateTime));
    time.textContent = text.replaceAll(" ", "\u00a0").replaceAll(",\u00a0", ", "); // a narrow column has the day above the time
    if (utc) time.removeAttribute("title");
  }
  let last = ""; // a story's days are the reader's
  for (const day of page.querySelectorAll(".steps .day")) {
    day.textContent = days.format(new Date(day.parentElement.querySelector("time").dateTime));
    day.hidden = day.textContent === last;
    last = day.textContent;
  }
  for (const amount of page.querySelectorAll("data.money:not([data-currency=''])")) {
    amount.textContent = format(amount.dataset.currency).format(amount.value);
  }
}
localize(document);
markWide();
const zone = document.getElementById("zone");
if (zone && !utc) {
  zone.textContent = `Times are in ${here}.`;
  document.getElementById("utc").hidden = false;
}

// A page that answered a form is not to be sent again by a reload. Values that it shows once are not shown again by going back.
const answered = document.querySelector("[data-address]");
if (answered) history.replaceState(null, "", answered.dataset.address);
addEventListener("pageshow", (event) => {
  if (answered && event.persisted) location.reload();
});

// A form that changes something is sent once: the second click of a double click would make a second token.
let sent = new WeakMap(); // when, by form
addEventListener("pageshow", () => sent = new WeakMap());
addEventListener("keydown", (event) => {
  if (event.key === "Escape") sent = new WeakMap(); // it stops the request
});
addEventListener("input", (event) => sent.delete(event.target.form));
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  const wait = 10000; // more than an answer takes; afterwards it was stopped
  if (event.timeStamp - sent.get(event.target) < wait) event.preventDefault();
  else sent.set(event.target, event.timeStamp);
});

// A chart's readout and legend have the values of the column at the pointer or in focus, else those of the whole chart.
function readOut(chart, column) {
  const put = (one, value) => {
    one.dataset.whole ??= one.textContent;
    one.textContent = value ?? one.dataset.whole;
  };
  const parts = column?.dataset.parts.split("|");
  for (const one of chart.querySelectorAll("[data-of]")) put(one, column && (column.dataset[one.dataset.of] ?? ""));
  chart.querySelectorAll(".legend strong").forEach((one, i) => put(one, parts?.[i]));
}
const columnOf = (event) => event.target.closest?.(".chart g[data-day]");
const readPointer = (target) => {
  for (const chart of document.querySelectorAll(".chart")) {
    readOut(chart, (chart.contains(target) && target.closest("g[data-day]")) || chart.querySelector("g[data-day]:focus"));
  }
};
document.addEventListener("pointerover", (event) => readPointer(event.target));
document.addEventListener("pointerout", (event) => {
  // Out of the window. Elsewhere an element follows; and one that was replaced under the pointer is not left.
  if (!event.relatedTarget) readPointer(null);
});
document.addEventListener("focusin", (event) => {
  const column = columnOf(event);
  if (!column) return;
  for (const one of column.parentElement.querySelectorAll("g[data-day]")) one.setAttribute("tabindex", one === column ? "0" : "-1");
  readOut(column.closest(".chart"), column);
});
document.addEventListener("focusout", (event) => {
  const column = columnOf(event);
  if (column) readOut(column.closest(".chart"), null);
});
document.addEventListener("keydown", (event) => {
  const column = columnOf(event);
  if (!column || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = Array.from(column.parentElement.querySelectorAll("g[data-day]"));
  const at = all.indexOf(column);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  all[to]?.focus();
});

// Folded filters lie over the page: Escape and a click beside them close them.
document.addEventListener("keydown", (event) => {
  const more = event.key === "Escape" && event.target.closest?.(".more[open]");
  if (!more) return;
  more.open = false;
  more.querySelector("summary").focus();
});
document.addEventListener("click", (event) => {
  for (const more of document.querySelectorAll(".more[open]")) {
    if (!more.contains(event.target) && matchMedia("(min-width: 48.01rem)").matches) more.open = false;
  }
});

// Shortcuts of single keys, which can be switched off. They do nothing while a text is typed.
const help = document.getElementById("shortcuts");
if (help) {
  const name = "leadlog-shortcuts";
  const enabled = help.querySelector("input");
  try {
    enabled.checked = localStorage.getItem(name) !== "off";
  } catch {} // a browser that stores nothing: they are on
  enabled.addEventListener("change", () => {
    try {
      localStorage.setItem(name, enabled.checked ? "on" : "off");
    } catch {}
  });
  const opener = document.querySelector("[data-shortcuts]");
  opener.hidden = false;
  opener.addEventListener("click", () => help.showModal());
  const search = () => {
    const field = document.querySelector("main [type=search], main form.filters[method=get] :is(input:not([type=hidden]), select)");
    const leads = document.querySelector("[data-go=l]");
    if (field) field.focus();
    else if (leads) location.assign(leads.href + "#q");
  };
  if (location.hash === "#q") document.getElementById("q")?.focus();
  let going = -Infinity; // when g was pressed
  document.addEventListener("keydown", (event) => {
    if (!enabled.checked || help.open || event.defaultPrevented || event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
    const to = performance.now() - going < 2000 && document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    going = event.key === "g" ? performance.now() : -Infinity;
    if (to) to.click();
    else if (event.key === "/") search();
    else if (event.key === "?") help.showModal();
    else return;
    event.preventDefault();
  });
}

// The server sends the page whenever it has changed. What is marked goes in the place of what is shown; what is open
// stays open, and the focus stays where it is.
function show(page) {
  const next = new DOMParser().parseFromString(page, "text/html");
  localize(next);
  for (const fresh of next.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(fresh.id);
    if (!old || old.outerHTML === fresh.outerHTML) continue;
    if (getSelection().containsNode(old, true) && !getSelection().isCollapsed) continue;
    const known = new Set(Array.from(old.querySelectorAll("[data-key]"), (row) => row.dataset.key));
    const folds = Array.from(old.querySelectorAll("details[id]"), (one) => [one.id, one.open]);
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = old.querySelector(".scroll")?.scrollLeft ?? 0;
    const down = old.scrollTop;
    const pointed = old.querySelector("g[data-day]:hover")?.dataset.day;
    old.replaceWith(fresh);
    fresh.scrollTop = down;
    for (const [id, open] of folds) document.getElementById(id)?.toggleAttribute("open", open);
    const scroll = fresh.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = scrolled;
    if (known.size) {
      for (const row of fresh.querySelectorAll("[data-key]")) {
        if (!known.has(row.dataset.key)) row.classList.add("arrived");
      }
    }
    const column = pointed && fresh.querySelector(`g[data-day="${pointed}"]`);
    if (column) readOut(column.closest(".chart"), column);
    markWide();
    if (focus) Array.from(fresh.querySelectorAll("a, button, summary, [tabindex]")).find((one) =>
      one.getAttribute("href") === focus.getAttribute("href") && one.textContent === focus.textContent &&
      one.dataset.day === focus.dataset.day)?.focus();
  }
}

let source = null;
function follow() {
  if (document.hidden) { // a hidden tab costs nothing
    source?.close();
    source = null;
  } else if (!source) {
    source = new EventSource(location.href);
    source.onmessage = (event) => show(event.data);
    source.addEventListener("end", () => { source.close(); location.reload(); });
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
      source = null;
      setTimeout(follow, 30000);
    };
  }
}
if (document.body.classList.contains("live")) {
  document.addEventListener("visibilitychange", follow);
  follow();
}
