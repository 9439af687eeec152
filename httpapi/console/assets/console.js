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

// On a narrow screen not all pages are in sight.
document.querySelector(".bar [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// A page that answered a form is not to be sent again by a reload.
const answered = document.querySelector("[data-address]");
if (answered) history.replaceState(null, "", answered.dataset.address);

// The server sends the page whenever it has changed. What is marked goes in the place of what is shown; what is open
// stays open, and the focus stays where it is.
function show(page) {
  const next = new DOMParser().parseFromString(page, "text/html");
  for (const fresh of next.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(fresh.id);
    if (!old || old.outerHTML === fresh.outerHTML) continue;
    if (getSelection().containsNode(old, true) && !getSelection().isCollapsed) continue;
    const known = new Set(Array.from(old.querySelectorAll("[data-key]"), (row) => row.dataset.key));
    const open = Array.from(old.querySelectorAll("details[open][id]"), (one) => one.id);
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = old.querySelector(".scroll")?.scrollLeft ?? 0;
    const down = old.scrollTop;
    old.replaceWith(fresh);
    fresh.scrollTop = down;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    const scroll = fresh.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = scrolled;
    if (known.size) {
      for (const row of fresh.querySelectorAll("[data-key]")) {
        if (!known.has(row.dataset.key)) row.classList.add("arrived");
      }
    }
    if (focus) Array.from(fresh.querySelectorAll("a, button, summary, [tabindex]")).find((one) =>
      one.getAttribute("href") === focus.getAttribute("href") && one.textContent === focus.textContent)?.focus();
  }
}

let source = null;
function follow() {
  if (document.hidden) { // a tab that nobody sees costs nothing
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
