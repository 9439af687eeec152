// leadlog.js sends a page's forms to an intake, with the campaign that brought the visitor, and reports page views. It uses no cookie,
// and stores nothing until consent is given: see "leadlog.js" in the manual of HTTP. Served without these comments and the indentation.
(() => {
"use strict";

const script = document.currentScript || document.querySelector('script[src*="/in/leadlog.js"]');
const base = new URL(".", script.src).href;
const pageIntake = script.dataset.intake;
const granted = script.dataset.consent === "granted";
const refused = navigator.globalPrivacyControl === true || [navigator.doNotTrack, window.doNotTrack].includes("1");

const campaign = /^(utm_(source|medium|campaign|term|content|id)|gclid|gbraid|wbraid|dclid|fbclid|msclkid|ttclid|twclid|li_fat_id)$/;
const maxValue = 250; // characters
const keptFor = 395 * 24 * 3600e3; // since the last visit

// The record is {consent, visitor, first, last, at} in the storage of the page's origin.
const storageKey = "leadlog";
let record = load();
let allowed = !refused && (record ? record.consent : granted);

function load() {
  try {
    const stored = JSON.parse(localStorage.getItem(storageKey));
    return stored && stored.at > Date.now() - keptFor ? stored : null;
  } catch {
    return null; // the browser allows no storage, or the record is not ours
  }
}

function store(value) {
  record = value;
  try {
    if (value) localStorage.setItem(storageKey, JSON.stringify(value));
    else localStorage.removeItem(storageKey);
  } catch {} // the record then lasts as long as the page
}

// shorten leaves only the campaign of a URL's query: the rest may be about the person.
function shorten(url) {
  const short = new URL(url);
  for (const name of [...short.searchParams.keys()]) if (!campaign.test(name)) short.searchParams.delete(name);
  short.hash = short.username = short.password = "";
  return short.href.slice(0, 2000);
}

// arrival is how the visitor came to this page.
function arrival() {
  const found = { landing_page: shorten(location.href) };
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (campaign.test(name) && value) found[name] = value.slice(0, maxValue);
  }
  if (document.referrer && new URL(document.referrer).origin !== location.origin) found.referrer = shorten(document.referrer);
  return found;
}

// visit records how the visitor came to this page, unless it was from another page of the site.
function visit() {
  const now = arrival();
  const known = record && record.visitor ? record : { first: now, last: now, visitor: randomId() };
  if (Object.keys(now).length > 1) known.last = now;
  store({ ...known, consent: true, at: Date.now() });
}

function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// fields are sent with each form: nothing when the browser asks not to be tracked, and this page alone without consent.
function fields() {
  if (refused) return {};
  const all = { page_url: shorten(location.href), ...(allowed ? record.last : arrival()) };
  if (allowed) {
    all.visitor_id = record.visitor;
    for (const name in record.first) all["first_" + name] = record.first[name];
  }
  return all;
}

// intakeOf is the address that a form is sent to; empty for a form that is none of ours.
function intakeOf(form) {
  if (form.hasAttribute("data-leadlog")) {
    const id = form.dataset.leadlog || pageIntake;
    if (id) return base + id;
  }
  const action = new URL(form.getAttribute("action") || "", location.href).href;
  return action.startsWith(base) ? action : "";
}

addEventListener("formdata", (event) => {
  if (!intakeOf(event.target)) return;
  for (const [name, value] of Object.entries(fields())) {
    if (!event.formData.get(name)) event.formData.set(name, value);
  }
  for (const [name, value] of Object.entries(words(event.target))) {
    if (!event.formData.get(name)) event.formData.set(name, value);
  }
});

// words are the labels of the ticked boxes that are named consent[purpose], as they read when the form is sent.
function words(form) {
  const all = {};
  for (const box of form.elements) {
    const purpose = /^consent\[(.+)\]$/.exec(box.name);
    if (!purpose || !box.checked || !box.labels) continue;
    const text = [...box.labels].map((label) => label.innerText).join(" ").replace(/\s+/g, " ").trim();
    if (text) all["consent_text[" + purpose[1] + "]"] = text;
  }
  return all;
}

// A form with data-leadlog is sent without leaving the page. Any other is sent by the browser.
const sending = new WeakSet();
addEventListener("submit", async (event) => {
  const form = event.target;
  if (event.defaultPrevented || !form.hasAttribute("data-leadlog") || !intakeOf(form)) return;
  event.preventDefault();
  if (sending.has(form)) return;
  sending.add(form);
  const body = new URLSearchParams();
  for (const [name, value] of new FormData(form, event.submitter)) if (typeof value === "string") body.append(name, value);
  const outcome = await send(intakeOf(form), body);
  sending.delete(form);
  show(form, outcome);
});

// send repeats what was not answered, or with "later", under the same key: it has one effect.
async function send(address, body) {
  const headers = { Accept: "application/json", "Idempotency-Key": randomId() };
  for (let attempt = 1; ; attempt++) {
    let wait = attempt;
    try {
      const answer = await fetch(address, { method: "POST", body, headers, credentials: "omit" });
      if ((answer.status !== 429 && answer.status !== 503) || attempt === 4) return { status: answer.status, ...(await answer.json()) };
      wait = Math.min(Number(answer.headers.get("Retry-After")) || wait, 10);
    } catch {
      if (attempt === 4) return { status: 0, success: false, message: "The form could not be sent. Please try again." };
    }
    await new Promise((resolve) => setTimeout(resolve, wait * 1000));
  }
}

function show(form, outcome) {
  if (!form.dispatchEvent(new CustomEvent("leadlog", { bubbles: true, cancelable: true, detail: outcome }))) return;
  if (outcome.success && form.dataset.redirect) return location.assign(form.dataset.redirect);
  let status = form.querySelector("output[data-leadlog-status]");
  if (!status) {
    status = document.createElement("output");
    status.setAttribute("data-leadlog-status", "");
    form.append(status);
  }
  const wrong = (outcome.errors || []).map((error) => error.field + " " + error.message).join("; ");
  status.textContent = outcome.success ? form.dataset.thanks || "Thank you." : wrong || outcome.message;
  if (outcome.success) form.reset();
}

// page reports a view of this page. A site that changes pages by itself calls it after each change.
function page() {
  if (!allowed || !pageIntake) return;
  const view = { type: "page_view", url: shorten(location.href), title: document.title.slice(0, maxValue) };
  if (document.referrer) view.referrer = shorten(document.referrer);
  // A body without a type needs no preflight.
  const body = new Blob([JSON.stringify(view)]);
  const address = base + pageIntake + "/visitors/" + record.visitor + "/activity";
  fetch(address, { method: "POST", body, keepalive: true, credentials: "omit" }).catch(() => {});
}

// consent(true) allows storage and page views, now and on later pages; consent(false) ends both and deletes what is stored. A browser
// that asks not to be tracked is never tracked.
function consent(given) {
  if (refused || given === allowed) return;
  allowed = given;
  if (given) start();
  else store(granted ? { consent: false, at: Date.now() } : null);
}

function start() {
  if (!allowed) return;
  visit();
  page();
}

window.leadlog = { consent, page, get visitor() { return allowed ? record.visitor : undefined; } };
if (document.prerendering) document.addEventListener("prerenderingchange", start, { once: true });
else start();
})();
